"""A consumer of the nemesis: `python -m nemesis.consume OPTIONS TOPIC JOURNAL`, until SIGTERM.

Its journal says what it was handed and what it has committed; a process has a journal of its own.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from pathlib import Path

from keyrange import Consumer
from keyrange.errors import KeyrangeError
from nemesis.work import content
from queries.consuming import Journal

# Whoever was away too long is told so, and goes on with what it has then.
_LOST = {"RANGES_LOST", "COMMITS_FENCED", "MEMBERSHIP_ENDED"}


def main(options_path: str, topic: str, journal_path: str) -> None:
    stopping: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopping.append(number))
    # Who waits for this one to begin looks for the file.
    journal = Journal(Path(journal_path))
    consumer = Consumer(json.loads(Path(options_path).read_text()))
    consumer.subscribe([topic])
    while not stopping:
        try:
            records = consumer.poll_records(300)
            at = time.monotonic_ns()
            places = [(r.partition, r.offset, content(r.value).n) for r in records]
            if not records:
                continue
            keys = [record.key.decode() for record in records]
            journal.write("handed", at=at, places=places, keys=keys)
            consumer.acknowledge(records)
            consumer.commit()
        except KeyrangeError as failure:
            if failure.condition.name not in _LOST:
                raise
            journal.write("refused", condition=failure.condition.name)
        else:
            journal.write("committed", at=at, places=places, keys=keys)
    consumer.close()
    journal.write("finished")


if __name__ == "__main__":
    main(*sys.argv[1:])
