"""The chunks of one split that several readers on a host share, one after the other.

A chunk is an interval of offsets that one of them fetched. Where a chunk ends is known only when
it was fetched, so they form a chain: who holds its end may fetch the next one. What is known stands
in one file of fixed rows, and who works on what is said by locks, which the kernel frees when a
process dies. Nothing here knows what a chunk holds.

The file: a byte per reader, set once it is done with the split; then a row per chunk: until_offset,
the bytes of all chunks up to it (int64, little-endian), the state, and a byte per reader that says
what it has of the chunk. Bytes that are not written yet count as zeros.

All files are opened relative to the directory as it was when the reader came: where it is removed
and another is made under its name, nobody takes the one's locks for the other's.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Final

from keyrange.ranges.sharing.locks import lock_soon, lock_within, opened

_ROW: Final = struct.Struct("<qqB")
_STATE_AT: Final = 16
_FLAGS: Final = os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
_DIRECTORY_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

# What a reader has of a chunk. Whoever MADE it holds its own rows, and the file lacks them.
_NEEDS: Final = 0
_TAKEN: Final = 1
_MADE: Final = 2


class ChunkState(IntEnum):
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
    state: ChunkState


@dataclass(frozen=True, slots=True)
class ChainEnd:
    """The end of the chain: the chunk that comes next, and the bytes before it."""

    index: int
    from_offset: int
    bytes_before: int


class Chain:
    """One reader's hold on a chain. `readers` share it, numbered from 0; this one is `reader`.

    Every method raises OSError where the directory is gone or has no room. While a reader is here,
    it has a shared lock on the directory, so that nobody takes it for abandoned.
    """

    def __init__(self, directory: Path, readers: int, reader: int, from_offset: int) -> None:
        self._readers = readers
        self._reader = reader
        self._from_offset = from_offset
        self._row_bytes = _ROW.size + readers
        self._locks: dict[int, int] = {}
        directory.mkdir(mode=0o700, exist_ok=True)
        self._directory = os.open(directory, _DIRECTORY_FLAGS)
        try:
            lock_soon(self._directory, fcntl.LOCK_SH, directory.name)
            self._file = self._open("chain")
        except BaseException:
            os.close(self._directory)
            raise
        try:
            if self._bytes(0, readers)[reader]:
                # An earlier attempt of this reader gave up.
                self._write(bytes(1), reader)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let go of everything; chunks that were not finished are left to others."""
        for index in list(self._locks):
            self.unlock(index)
        os.close(self._file)
        os.close(self._directory)

    def result_name(self, index: int) -> str:
        """A name for the file of a chunk, which no other chain has while this one is open."""
        return f"{index}-{os.fstat(self._file).st_ino}"

    def __len__(self) -> int:
        return max(os.fstat(self._file).st_size - self._readers, 0) // self._row_bytes

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
        return Link(index, before[0], until_offset, total - before[1], ChunkState(state))

    def claim_end(self, wait_s: float = 0.0) -> ChainEnd | None:
        """Hold the end of the chain, so that nobody else makes its next chunk; None where another
        holds it for so long. `extend` or `release_end` lets go of it."""
        if not lock_within(self._file, fcntl.LOCK_EX, wait_s):
            return None
        index = len(self)
        if not index:
            return ChainEnd(0, self._from_offset, 0)
        last = os.pread(self._file, _ROW.size, self._row_at(index - 1))
        return ChainEnd(index, *_ROW.unpack(last)[:2])

    def release_end(self) -> None:
        fcntl.flock(self._file, fcntl.LOCK_UN)

    def extend(self, end: ChainEnd, until_offset: int, size: int) -> None:
        """Add the chunk that was fetched, keep it locked, and let others go on behind it."""
        self.try_lock(end.index)
        has = bytearray(self._readers)
        has[self._reader] = _MADE
        row = _ROW.pack(until_offset, end.bytes_before + size, ChunkState.PENDING)
        self._write(row + has, self._row_at(end.index))
        self.release_end()

    def try_lock(self, index: int) -> bool:
        """Become the maker of a pending chunk; False where another is at work on it."""
        descriptor = self._open(_lock_name(index))
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        except BaseException:
            os.close(descriptor)
            raise
        self._locks[index] = descriptor
        return True

    def wait(self, index: int, wait_s: float) -> bool:
        """Wait until nobody is at work on a pending chunk; False where somebody is for so long."""
        try:
            with opened(_lock_name(index), os.O_RDWR, self._directory) as descriptor:
                return lock_within(descriptor, fcntl.LOCK_EX, wait_s)
        except FileNotFoundError:
            # It was finished meanwhile.
            return True

    def finish(self, index: int, state: ChunkState) -> None:
        """Say what became of a chunk that this reader made."""
        self._write(bytes([state]), self._row_at(index) + _STATE_AT)
        # Nobody locks it from here on, and who looks for room goes through all files that are here.
        with suppress(FileNotFoundError):
            os.unlink(_lock_name(index), dir_fd=self._directory)
        self.unlock(index)

    def has_made(self, index: int) -> bool:
        """Whether this reader, maybe in an earlier attempt, made a chunk: the file that it left is
        without its rows."""
        return self._has(index)[self._reader] == _MADE

    def take(self, index: int) -> None:
        """Note that this reader needs the file of a chunk no more."""
        self._write(bytes([_TAKEN]), self._row_at(index) + _ROW.size + self._reader)

    def is_needed(self, index: int) -> bool:
        """Whether anybody who is not done with the split still needs the file of a chunk."""
        done = self._bytes(0, self._readers)
        return any(a == _NEEDS and not b for a, b in zip(self._has(index), done, strict=True))

    def leave(self) -> bool:
        """Note that this reader is done with the split; returns whether all are."""
        self._write(b"\1", self._reader)
        return 0 not in self._bytes(0, self._readers)

    def _has(self, index: int) -> bytes:
        return self._bytes(self._row_at(index) + _ROW.size, self._readers)

    def _bytes(self, at: int, count: int) -> bytes:
        return os.pread(self._file, count, at).ljust(count, b"\0")

    def _write(self, data: bytes | bytearray, at: int) -> None:
        if os.pwrite(self._file, data, at) != len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _open(self, name: str) -> int:
        return os.open(name, _FLAGS, 0o600, dir_fd=self._directory)

    def _row_at(self, index: int) -> int:
        return self._readers + index * self._row_bytes

    def unlock(self, index: int) -> None:
        """Stop being the maker of a chunk."""
        descriptor = self._locks.pop(index, None)
        if descriptor is not None:
            os.close(descriptor)


def _lock_name(index: int) -> str:
    return f"{index}.lock"
