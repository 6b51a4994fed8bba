"""The chunks of one split that several readers on a host share, one after the other.

A chunk is an interval of offsets that one of them fetched. Where a chunk ends is known only when
it was fetched, so they form a chain: who holds its end may fetch the next one. What is known stands
in one file of fixed rows, and who works on what is said by locks, which the kernel frees when a
process dies. Nothing here knows what a chunk holds.

The file: a byte per reader that is done with the split; then a row per chunk: until_offset, the
bytes of all chunks up to it (int64, little-endian), the state, and a byte per reader that has taken
its part.
"""

from __future__ import annotations

import fcntl
import os
import struct
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Final

_ROW: Final = struct.Struct("<qqB")
_STATE_AT: Final = 16
_FLAGS: Final = os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC


class State(IntEnum):
    """What became of a chunk. PENDING: its maker is at work, or dead. MEMORY and SPILL: it is kept
    there. NOWHERE: whoever needs it reads it for himself."""

    PENDING = 0
    MEMORY = 1
    SPILL = 2
    NOWHERE = 3


@dataclass(frozen=True, slots=True)
class Link:
    """A chunk of the chain: [from_offset, until_offset), and the bytes of log that it takes."""

    index: int
    from_offset: int
    until_offset: int
    size: int
    state: State


@dataclass(frozen=True, slots=True)
class End:
    """The end of the chain: the chunk that comes next, and the bytes before it."""

    index: int
    from_offset: int
    bytes_before: int


class Chain:
    """One reader's hold on a chain. `readers` share it, numbered from 0; this one is `reader`.

    Raises OSError where the directory cannot be used.
    """

    def __init__(self, directory: Path, readers: int, reader: int, from_offset: int) -> None:
        self.directory = directory
        self._readers = readers
        self._reader = reader
        self._from_offset = from_offset
        self._row_bytes = _ROW.size + readers
        directory.mkdir(mode=0o700, exist_ok=True)
        self._file = os.open(directory / "chain", _FLAGS, 0o600)
        self._locks: dict[int, int] = {}
        if os.fstat(self._file).st_size < readers:
            os.pwrite(self._file, b"\0", readers - 1)

    def close(self) -> None:
        """Let go of everything; chunks that were not finished are left to others."""
        for index in list(self._locks):
            self.unlock(index)
        os.close(self._file)

    def __len__(self) -> int:
        return (os.fstat(self._file).st_size - self._readers) // self._row_bytes

    def link(self, index: int) -> Link | None:
        """A chunk, or None where the chain does not reach so far."""
        first = max(index - 1, 0)
        rows = os.pread(self._file, 2 * self._row_bytes, self._row_at(first))
        if len(rows) < (index - first + 1) * self._row_bytes:
            return None
        before = (self._from_offset, 0)
        if index:
            before = _ROW.unpack_from(rows)[:2]
        until_offset, total, state = _ROW.unpack_from(rows, (index - first) * self._row_bytes)
        return Link(index, before[0], until_offset, total - before[1], State(state))

    def claim_end(self, wait: bool) -> End | None:
        """Hold the end of the chain, so that nobody else makes its next chunk; None where another
        holds it and there is no waiting. `extend` or `release_end` lets go of it."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return None
        index = len(self)
        last = self.link(index - 1) if index else None
        if last is None:
            return End(0, self._from_offset, 0)
        total = _ROW.unpack(os.pread(self._file, _ROW.size, self._row_at(index - 1)))[1]
        return End(index, last.until_offset, total)

    def release_end(self) -> None:
        fcntl.flock(self._file, fcntl.LOCK_UN)

    def extend(self, end: End, until_offset: int, size: int) -> None:
        """Add the chunk that was fetched, keep it locked, and let others go on behind it."""
        self.try_lock(end.index)
        row = _ROW.pack(until_offset, end.bytes_before + size, State.PENDING)
        os.pwrite(self._file, row + bytes(self._readers), self._row_at(end.index))
        self.release_end()

    def try_lock(self, index: int) -> bool:
        """Become the maker of a pending chunk; False where another is at work on it."""
        return self._lock(index, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def wait(self, index: int) -> None:
        """Wait until nobody is at work on a chunk."""
        if self._lock(index, fcntl.LOCK_EX):
            self.unlock(index)

    def finish(self, index: int, state: State) -> None:
        """Say what became of a chunk that this reader made."""
        os.pwrite(self._file, bytes([state]), self._row_at(index) + _STATE_AT)
        self.unlock(index)

    def take(self, index: int) -> bool:
        """Note that this reader needs a chunk no more; returns whether nobody does."""
        at = self._row_at(index) + _ROW.size
        os.pwrite(self._file, b"\1", at + self._reader)
        return 0 not in os.pread(self._file, self._readers, at)

    def leave(self) -> bool:
        """Note that this reader is done with the split; returns whether all are."""
        os.pwrite(self._file, b"\1", self._reader)
        return 0 not in os.pread(self._file, self._readers, 0)

    def _row_at(self, index: int) -> int:
        return self._readers + index * self._row_bytes

    def _lock(self, index: int, operation: int) -> bool:
        descriptor = os.open(self.directory / f"{index}.lock", _FLAGS, 0o600)
        try:
            fcntl.flock(descriptor, operation)
        except BlockingIOError:
            os.close(descriptor)
            return False
        except BaseException:
            os.close(descriptor)
            raise
        self._locks[index] = descriptor
        return True

    def unlock(self, index: int) -> None:
        """Stop being the maker of a chunk."""
        descriptor = self._locks.pop(index, None)
        if descriptor is not None:
            os.close(descriptor)
