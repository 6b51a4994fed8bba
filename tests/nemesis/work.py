"""What the nemesis has done to each record, and how a record says what it is.

A value is `run|n|mark|padding`, or has such fields: `n` is its number in the run. Records with mark
"!" fail whenever they are worked on, those with "?" sometimes; both go to the dead letters in the
end, or do not.

A value with fields also has those that were added while the run lasted, `f1` and so on, as many as
`writer` says.
"""

from __future__ import annotations

import random
import time
from typing import Any, NamedTuple

SCHEMA = (
    "topic string, partition int, offset bigint, key string, n bigint, run string, at bigint, "
    "deliveries int"
)
# Where key and number are in a row.
KEY, N = 3, 4

# What an added field is where its writer does not know it yet.
ADDED_DEFAULT = -1


class Content(NamedTuple):
    run: str
    n: int
    mark: str


def written(said: Content, padding: int) -> bytes:
    return f"{said.run}|{said.n}|{said.mark}|".encode() + b"x" * padding


def content(value: bytes) -> Content:
    run, n, mark, _ = value.split(b"|", 3)
    return Content(run.decode(), int(n), mark.decode())


def added(n: int, number: int) -> int:
    """What a writer has written as the field `f{number}`."""
    return n * 100 + number


def is_copied(n: int) -> bool:
    """Whether a record has a row in the table `copies` too."""
    return n % 3 != 0


def deletes(n: int) -> bool:
    """Whether a record takes its key out of the table `last`."""
    return n % 7 == 0


def content_of(record: Any) -> Any:
    """What a record says, read by the source where its values have fields."""
    return content(record.value) if isinstance(record.value, bytes) else record.value


def work(record: Any) -> Any:
    """A row that says when this was: the clock is the same for all processes of a machine."""
    at, found = time.monotonic_ns(), content_of(record)
    time.sleep(0.0005)
    if found.mark == "!" or (found.mark == "?" and random.random() < 0.5):
        raise ValueError(f"no {found.n}")
    return (
        record.topic,
        record.partition,
        record.offset,
        record.key.decode(),
        found.n,
        found.run,
        at,
        record.deliveries,
    )
