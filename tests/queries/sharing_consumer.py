"""A process that shares the partitions of a topic, for tests that kill or stop it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from keyrange import Consumer, KeyRangeListener
from keyrange.errors import KeyrangeError
from queries.consuming import Journal, consumer_options

SHORT_SESSION_MS = 6_000


class Telling(KeyRangeListener):
    """Writes each call down, with how much of the hash space it is about."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def _tell(self, what: str, ranges: Any) -> None:
        self._journal.write(what, hashes=sum(s.size for spans in ranges.values() for s in spans))

    def on_key_ranges_announced(self, ranges: Any) -> bool:
        self._tell("announced", ranges)
        return True

    def on_key_ranges_assigned(self, ranges: Any) -> None:
        self._tell("assigned", ranges)

    def on_key_ranges_revoked(self, ranges: Any) -> None:
        self._tell("revoked", ranges)

    def on_key_ranges_lost(self, ranges: Any) -> None:
        self._tell("lost", ranges)


def sharing_options(
    servers: str,
    table: Path | str,
    name: str,
    session_ms: int | str = SHORT_SESSION_MS,
    **given: str,
) -> dict[str, str]:
    return consumer_options(
        servers,
        table,
        member__name=name,
        session__timeout__ms=str(session_ms),
        **{
            "heartbeat__interval__ms": "500",
            "registration__timeout__ms": "1",
            "expansion__timeout__ms": "0",
            **given,
        },
    )


def share(servers: str, table: str, topic: str, name: str, session_ms: str, path: str) -> None:
    """Consume until the process is killed."""
    journal = Journal(Path(path))
    options = sharing_options(servers, table, name, session_ms, memberGroup=f"m-{topic}")
    consumer = Consumer(options)
    consumer.subscribe([topic], Telling(journal))
    generation = -1
    while True:
        records = consumer.poll_records(200)
        assert consumer._sharing is not None
        if consumer._sharing.member.seen.generation != generation:
            generation = consumer._sharing.member.seen.generation
            journal.write("generation", generation=generation)
        for each in records:
            journal.write("handed", place=[each.partition, each.offset], key=str(each.key))
        consumer.acknowledge(records)
        try:
            consumer.commit()
        except KeyrangeError as failure:
            journal.write("refused", condition=failure.condition.name)
        else:
            journal.write("committed", places=[[r.partition, r.offset] for r in records])
