"""A file of progress: a line of JSON for each finished batch, as Spark reports it.

Lines are whole: each is one write to the end of the file. A line that was torn all the same, by a
disk that was full, is followed by a line break before the next one, and readers leave it out. The
file is bounded: a full one is renamed, with `.1` behind it, and takes the place of the one before.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from keyrange.errors import invalid_options

BYTES_MAX: Final = 64 * 1024 * 1024
_TAIL_BYTES: Final = 256 * 1024


class ProgressFile:
    """Appends to a local file of at most `bytes_max` bytes, and another as large beside it.

    Several processes may append to one file. Raises INVALID_OPTIONS for what is no local path.
    """

    def __init__(self, path: str | Path, bytes_max: int = BYTES_MAX) -> None:
        if "://" in str(path) or not str(path):
            raise invalid_options(
                f"the progress file is a path on this machine, which {str(path)!r} is not"
            )
        if bytes_max < 1:
            raise invalid_options(f"the progress file has at least one byte, not {bytes_max}")
        self.path = Path(path).expanduser()
        self._bytes_max = bytes_max

    def append(self, document: Mapping[str, Any]) -> None:
        """Write one line. Raises OSError."""
        line = json.dumps(document, separators=(",", ":"), default=str).encode() + b"\n"
        file = self._locked(len(line))
        try:
            size = os.fstat(file).st_size
            if size and os.pread(file, 1, size - 1) != b"\n":
                line = b"\n" + line
            written = os.write(file, line)
            if written < len(line):
                raise OSError(f"{written} of {len(line)} bytes were written to {self.path}")
        finally:
            os.close(file)

    def _locked(self, more: int) -> int:
        """The file with room for so many bytes, and a lock on it that ends when it is closed."""
        while True:
            file = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                fcntl.flock(file, fcntl.LOCK_EX)
                # Another process may have renamed it in between.
                if self._is_in_place(file):
                    size = os.fstat(file).st_size
                    if not size or size + more <= self._bytes_max:
                        return file
                    os.replace(self.path, rotated(self.path))
            except BaseException:
                os.close(file)
                raise
            os.close(file)

    def _is_in_place(self, file: int) -> bool:
        try:
            return os.path.samestat(os.fstat(file), os.stat(self.path))
        except FileNotFoundError:
            return False


def rotated(path: Path) -> Path:
    """Where the lines before those of a file are."""
    return path.with_name(f"{path.name}.1")


def read_last(path: str | Path, count: int, query_id: str = "") -> list[dict[str, Any]]:
    """The last progresses of a query, or of all, oldest first; no more is read than that takes, by
    and large.

    Raises FileNotFoundError where there is no such file, OSError where it cannot be read.
    """
    found: list[dict[str, Any]] = []
    whole = Path(path).expanduser()
    for file in (whole, rotated(whole)):
        try:
            for document in _backwards(file):
                if not query_id or document.get("id") == query_id:
                    found.append(document)
                if len(found) == count:
                    return found[::-1]
        except FileNotFoundError:
            if file == whole and not rotated(whole).exists():
                raise
    return found[::-1]


def _backwards(path: Path) -> Iterator[dict[str, Any]]:
    """The documents of a file, the last one first."""
    with path.open("rb") as file:
        at = file.seek(0, os.SEEK_END)
        rest = b""
        step = _TAIL_BYTES
        while at:
            step = min(step, at)
            at -= step
            file.seek(at)
            # What stands before the first line break may begin farther to the front.
            first, *lines = (file.read(step) + rest).split(b"\n")
            rest = first
            step *= 4
            yield from documents(reversed(lines))
        yield from documents([rest])


def documents(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """The documents among lines, in their order."""
    for line in lines:
        try:
            document = json.loads(line)
        except (RecursionError, ValueError):
            continue
        if isinstance(document, dict):
            yield document
