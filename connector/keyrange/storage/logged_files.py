"""The files of a table as its log names them, with the bounds of their columns."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa

from keyrange.storage.log_actions import Action
from keyrange.storage.table_store import Bounds

# A file of half this size is not written again.
FILE_BYTES: Final = 8 * 1024 * 1024
_SMALL_BYTES: Final = FILE_BYTES // 2


@dataclass(frozen=True, slots=True)
class LoggedFile:
    """A file by its path below the table. `least` and `greatest`: of some columns, by their names;
    what is not there is not known."""

    path: str
    size_bytes: int
    least: Mapping[str, Any]
    greatest: Mapping[str, Any]


def may_hold(lows: Mapping[str, Any], highs: Mapping[str, Any], bounds: Bounds) -> bool:
    """Whether rows within all bounds may be among those of which the least and the greatest values
    of some columns are known."""
    for name, (least, greatest) in bounds.items():
        low, high = lows.get(name), highs.get(name)
        if greatest is not None and low is not None and low > greatest:
            return False
        if least is not None and high is not None and high < least:
            return False
    return True


class LoggedFiles:
    """All files of the version of a table that was seen last."""

    def __init__(self) -> None:
        self._files: dict[str, LoggedFile] = {}

    def __iter__(self) -> Iterator[LoggedFile]:
        return iter(self._files.values())

    def __len__(self) -> int:
        return len(self._files)

    def __contains__(self, path: str) -> bool:
        return path in self._files

    def opened(self, table: Any) -> None:
        """Those of a delta-rs table as it was opened."""
        # Arrow imports pandas for `pa.table`, and for times, which nobody asks for.
        told = pa.RecordBatchReader.from_stream(table.get_add_actions(flatten=True)).read_all()
        plain = [each.name for each in told.schema if not pa.types.is_timestamp(each.type)]
        found = (
            LoggedFile(row["path"], row["size_bytes"], _behind("min.", row), _behind("max.", row))
            for row in told.select(plain).to_pylist()
        )
        self._files = {each.path: each for each in found}

    def take(self, action: Action) -> None:
        """What came since."""
        if "add" in action:
            told = action["add"]
            path = unquote(told["path"])
            known = json.loads(told.get("stats") or "{}")
            self._files[path] = LoggedFile(
                path, told["size"], known.get("minValues", {}), known.get("maxValues", {})
            )
        elif "remove" in action:
            self._files.pop(unquote(action["remove"]["path"]), None)

    def that_may_hold(self, bounds: Bounds) -> list[LoggedFile]:
        return [each for each in self if may_hold(each.least, each.greatest, bounds)]

    def small(self, order: str) -> list[list[LoggedFile]]:
        """The small ones, together so many as make one; `order` is the column whose least values
        say what belongs together. Nothing where a file would stay alone."""
        small = [each for each in self if each.size_bytes < _SMALL_BYTES and order in each.least]
        small.sort(key=lambda each: (each.least[order], each.path))
        return [each for each in _bins(small) if len(each) > 1]


def _behind(prefix: str, row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name.removeprefix(prefix): value
        for name, value in row.items()
        if name.startswith(prefix) and value is not None
    }


def _bins(files: Sequence[LoggedFile]) -> Iterator[list[LoggedFile]]:
    found: list[LoggedFile] = []
    size = 0
    for file in files:
        found.append(file)
        size += file.size_bytes
        if size >= FILE_BYTES:
            yield found
            found, size = [], 0
    yield found
