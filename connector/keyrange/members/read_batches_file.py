"""What a slot's directory says of the batches whose records were read beside it.

The record lies in the directory itself: who removes the directory removes it too.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from keyrange.members.model.read_batches import ReadBatches
from keyrange.ranges.sharing.shared_directory import locked, put_in_place

_RECORD: Final = ".keyrange-batches.json"
_LOCK: Final = ".keyrange-batches.lock"


@dataclass(frozen=True, slots=True)
class ReadRecord:
    """The record of one directory, for one query: another's batches have other numbers."""

    directory: Path
    query: str

    def read(self) -> ReadBatches | None:
        """None where there is none, or another query's."""
        try:
            return _read(json.loads((self.directory / _RECORD).read_bytes()), self.query)
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def begin(self, batch: int, last: int) -> None:
        """Note that a task of a batch begins; `last` as in `ReadBatches.reaches`. Raises OSError
        where the directory is gone or full."""
        none = ReadBatches(batch, batch)
        self._change(none, lambda known: known.reaches(batch, last))

    def finish(self, batch: int, plan: str, portion: int, count: int) -> None:
        """Note that a portion was handed over whole. Raises OSError."""
        none = ReadBatches(batch, batch)
        self._change(none, lambda known: known.with_portion(batch, plan, portion, count))

    def _change(self, none: ReadBatches, change: Callable[[ReadBatches], ReadBatches]) -> None:
        with locked(self.directory / _LOCK):
            before = self.read()
            after = change(before or none)
            if after != before:
                put_in_place(self.directory / _RECORD, json.dumps(_written(after, self.query)))


def _written(known: ReadBatches, query: str) -> dict[str, Any]:
    return {"version": 1, "query": query} | asdict(known) | {"portions": sorted(known.portions)}


def _read(document: Any, query: str) -> ReadBatches | None:
    if document["version"] != 1 or document["query"] != query:
        return None
    start, stop, plan = document["start"], document["stop"], document["plan"]
    portions = frozenset(document["portions"])
    if not (type(start) is type(stop) is int and start <= stop and isinstance(plan, str)):
        raise ValueError("it is no record")
    return ReadBatches(start, stop, plan, portions)
