"""A consumer of the nemesis: `python -m nemesis.consume OPTIONS TOPIC JOURNAL COPIES`, until it is
asked to stop.

Its journal says what it was handed and what it has committed; a process has a journal of its own.
Where COPIES names a topic, a row of each record goes there, in one transaction with what is done.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from keyrange import Consumer
from keyrange.errors import KeyrangeError
from nemesis.work import content
from queries.consuming import Journal

# Whoever was away too long is told so, and goes on with what it has then.
_LOST = {"RANGES_LOST", "COMMITS_FENCED", "MEMBERSHIP_ENDED"}
_POLL_MS = 300


def main(options_path: str, topic: str, journal_path: str, copies: str) -> None:
    stopping: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopping.append(number))
    # Who waits for this one to begin looks for the file.
    journal = Journal(Path(journal_path))
    options = json.loads(Path(options_path).read_text())
    consumer = Consumer(options, producer={} if copies else None)
    consumer.subscribe([topic])
    told: dict[str, Any] = {}

    def handed(records: Sequence[Any]) -> int:
        at = time.monotonic_ns()
        places = [(r.partition, r.offset, content(r.value).n) for r in records]
        told.update(at=at, places=places, keys=[record.key.decode() for record in records])
        journal.write("handed", **told)
        return at

    def committed() -> bool:
        if not (records := consumer.poll_records(_POLL_MS)):
            return False
        handed(records)
        consumer.acknowledge(records)
        consumer.commit()
        return True

    def sent() -> bool:
        with consumer.transaction() as transaction:
            if not (records := consumer.poll_records(_POLL_MS)):
                return False
            at = handed(records)
            transaction.send([_row(each, at) for each in records], topic=copies)
            consumer.acknowledge(records)
        return True

    work: Callable[[], bool] = sent if copies else committed
    while not stopping:
        try:
            if work():
                journal.write("committed", **told)
        except KeyrangeError as failure:
            if failure.condition.name not in _LOST:
                raise
            journal.write("refused", condition=failure.condition.name)
    consumer.close()
    journal.write("finished")


def _row(record: Any, at: int) -> dict[str, Any]:
    said, key = content(record.value), record.key
    place = {"partition": record.partition, "offset": record.offset, "n": said.n}
    row = {**place, "key": key.decode(), "run": said.run, "at": at}
    return {"key": key, "value": json.dumps(row).encode()}


if __name__ == "__main__":
    main(*sys.argv[1:])
