"""What the nemesis has done to each record, and how a record says what it is.

A value is `run|n|mark|padding`: `n` is its number in the run. Records with mark "!" fail whenever
they are worked on, those with "?" sometimes; both go to the dead letters in the end, or do not.
"""

from __future__ import annotations

import random
import time
from typing import Any, NamedTuple

SCHEMA = (
    "topic string, partition int, offset bigint, key string, n bigint, run string, at bigint, "
    "deliveries int"
)


COUNTED_SCHEMA = f"{SCHEMA}, seen bigint"


class Content(NamedTuple):
    run: str
    n: int
    mark: str


def written(run: str, n: int, mark: str, padding: int) -> bytes:
    return f"{run}|{n}|{mark}|".encode() + b"x" * padding


def content(value: bytes) -> Content:
    run, n, mark, _ = value.split(b"|", 3)
    return Content(run.decode(), int(n), mark.decode())


def work(record: Any) -> Any:
    """A row that says when this was: the clock is the same for all processes of a machine."""
    at = time.monotonic_ns()
    found = content(record.value)
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
