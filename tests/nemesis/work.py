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

COUNTED_SCHEMA = f"{SCHEMA}, seen bigint"
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


def evolved_schema(fields: int) -> str:
    """Of the rows of values with so many added fields."""
    return ", ".join([SCHEMA, "writer int", *(f"f{at} bigint" for at in range(1, fields + 1))])


def is_copied(n: int) -> bool:
    """Whether a record has a row in the table `copies` too."""
    return n % 3 != 0


def deletes(n: int) -> bool:
    """Whether a record takes its key out of the table `last`."""
    return n % 7 == 0


def evolved(record: Any, fields: int) -> Any:
    """What `work` makes of a value that has fields, with so many of the added ones."""
    value = record.value
    return (
        *work(record),
        value.writer,
        *(getattr(value, f"f{at}") for at in range(1, fields + 1)),
    )


def work(record: Any) -> Any:
    """A row that says when this was: the clock is the same for all processes of a machine."""
    at = time.monotonic_ns()
    found = content(record.value) if isinstance(record.value, bytes) else record.value
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


def count(record: Any, state: Any) -> Any:
    """The same row, with how many records of its key are done, itself among them."""
    seen = state.seen.get(default=0) + 1
    state.seen.update(seen)
    return (*work(record), seen)
