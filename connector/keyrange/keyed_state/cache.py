"""Copies of runs on the host that reads them: mapped by every process, written by none again.

    <directory>/<source>/<partition>/<file>-<groups>.<from hash>-<last hash>.<CRC-32>.arrow

A copy is the rows of a run in some key range. Its name says which, and its checksum; so what is
there is known by a list of names, and a copy that is damaged, or was not written whole, is told by
its bytes. These are read once a day and once a start of the host, and not by each process: Spark
ends Python workers that have nothing to do for a minute. Runs never change: a copy is right or it
is not there. Copies of a run that was merged are removed by whoever works on these keys next, those
of keys that left this host in a day, and those of a source that is over in a month.
"""

from __future__ import annotations

import io
import logging
import os
import time
import uuid
import zlib
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from keyrange.keyed_state.model.state_runs import StateRun
from keyrange.keyed_state.sorted_blocks import LoadedBlocks, within
from keyrange.model.key_ranges import KeyRange, common, subtract
from keyrange.model.offsets import TopicPartition
from keyrange.ranges.sharing.shared_directory import name_of

_log = logging.getLogger(__name__)

_SUFFIX: Final = ".arrow"
# Copies of keys that have gone to other hosts.
_IDLE_S: Final = 86_400.0
# And of sources of which nothing was read for so long.
_OVER_S: Final = 30 * 86_400.0
_LOOK_EVERY_S: Final = 3_600.0
_looked: Final[dict[Path, float]] = {}
# What other attempts of a task may still read, and what they are about to write. A query that runs
# on has two copies more of each key range with each batch.
_UNUSED_S: Final = 60.0
# What a reader that shares the copies of tasks leaves them: it may see a commit late.
OTHERS_UNUSED_S: Final = 600.0
_BEGUN_S: Final = 600.0
# Of a copy whose bytes were checked: when and as what.
_CHECKED: Final = "user.keyrange.checked"
_DAY_S: Final = 86_400
# Copies that this process has mapped.
_MAPPED: Final[dict[Path, list[pa.RecordBatch]]] = {}
_MAPPED_MAX: Final = 1_024


class StateCache:
    """The copies of one partition's runs on this host."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        # What there is by runs, which is listed once: it may be thousands of files.
        self._listed: dict[str, list[tuple[KeyRange, Path]]] | None = None

    def parts(self, run: StateRun) -> list[tuple[KeyRange, LoadedBlocks]]:
        """What there is of a run: its rows in key ranges that do not overlap, in order."""
        found: list[tuple[KeyRange, LoadedBlocks]] = []
        for span, path in self._copies(run):
            shared = common(span, run.span)
            if shared is None:
                continue
            for piece in subtract([shared], [at for at, _ in found]):
                blocks = self._mapped(path)
                if blocks is None:
                    break
                found.append((piece, LoadedBlocks([within(each, piece) for each in blocks])))
        return sorted(found, key=lambda each: each[0])

    def missing(self, run: StateRun) -> list[KeyRange]:
        """The key ranges of a run that have no copy now, by the names of copies alone."""
        self._listed = None
        return subtract([run.span], [span for span, _ in self._copies(run)])

    def keep(self, run: StateRun, blocks: Iterable[pa.RecordBatch], schema: pa.Schema) -> None:
        """Write a copy of a run's rows in its key range. A cache that cannot be written to is one
        that is not there."""
        draft = self.draft(schema)
        for block in blocks:
            draft.add(block)
            if draft.is_given_up:
                # The others would be read for nothing: all of a state, with each batch.
                break
        draft.keep(run)
        self._listed = None

    def draft(self, schema: pa.Schema) -> Draft:
        """A copy of a run that has no name yet."""
        return Draft(self._directory, schema)

    def sweep(self, span: KeyRange, used: Sequence[StateRun], unused_s: float = _UNUSED_S) -> None:
        """Remove copies that lie within a key range, are of none of the runs that whoever has it
        uses, and were used some time ago. What is used stays, also where nobody reads it: a standby
        only keeps it, and a reader has it open for long."""
        stems, now = {_stem(run) for run in used}, time.time()
        with suppress(OSError):
            for path in self._directory.iterdir():
                told = _read_name(path.name)
                shared = common(told[1], span) if told is not None else None
                if told is not None and told[0] in stems:
                    if shared is not None and _used_at(path) < now - _LOOK_EVERY_S:
                        _use(path)
                    continue
                if told is not None and shared != told[1]:
                    continue
                if _used_at(path) < now - (_BEGUN_S if told is None else unused_s):
                    path.unlink(missing_ok=True)
                    _MAPPED.pop(path, None)

    def _copies(self, run: StateRun) -> list[tuple[KeyRange, Path]]:
        if self._listed is None:
            self._listed = {}
            with suppress(OSError):
                for path in sorted(self._directory.iterdir()):
                    if (told := _read_name(path.name)) is not None:
                        self._listed.setdefault(told[0], []).append((told[1], path))
        # The widest first: of it less is left to others.
        return sorted(self._listed.get(_stem(run), ()), key=lambda each: -each[0].size)

    def _mapped(self, path: Path) -> list[pa.RecordBatch] | None:
        """The rows of a copy; None where it is no good, and then it goes."""
        with suppress(OSError):
            _use(path)
        if path in _MAPPED:
            return _MAPPED[path]
        told = _read_name(path.name)
        assert told is not None
        try:
            data = pa.memory_map(str(path)).read_buffer()
            if not _is_checked(path):
                if zlib.crc32(data) != told[2]:
                    raise ValueError("its bytes are not those that were written")
                _mark_checked(path)
            with pa.ipc.open_file(data) as reader:
                blocks = [reader.get_batch(at) for at in range(reader.num_record_batches)]
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as failure:
            _log.warning("a copy of state is thrown away and read anew, %s: %s", path, failure)
            path.unlink(missing_ok=True)
            return None
        while len(_MAPPED) >= _MAPPED_MAX:
            _MAPPED.pop(next(iter(_MAPPED)))
        _MAPPED[path] = blocks
        return blocks


def copies_of(slots: Path, source_id: str) -> Path:
    """Where a host keeps the copies of a source's states, below the directory of its slots, for all
    executors."""
    return slots / "state" / name_of(source_id)


def place_of(topic_id: str, partition: TopicPartition) -> str:
    """The directory of a partition's copies below that of its source."""
    return name_of(topic_id or partition.topic, partition.partition)


def sweep_idle(directory: Path) -> None:
    """Remove copies that no task has used for a day, of any partition of the source that has
    `directory`, and in a month those of others: one that is over has no tasks. Looked for once an
    hour."""
    now, home = time.time(), directory.parent
    if now - _looked.get(home, 0.0) < _LOOK_EVERY_S:
        return
    _looked[home] = now
    with suppress(OSError):
        for path in home.glob("*/*/*"):
            idle_s = _IDLE_S if path.parent.parent == directory else _OVER_S
            if path.suffix in ("", _SUFFIX) and _used_at(path) < now - idle_s:
                path.unlink(missing_ok=True)


def _use(path: Path) -> None:
    """It is in use. When it was written stays as it is."""
    os.utime(path, ns=(time.time_ns(), path.stat().st_mtime_ns))


def _used_at(path: Path) -> float:
    """When a copy was read last, or what is to be one was written to."""
    status = path.stat()
    return max(status.st_atime, status.st_mtime)


class Draft:
    """A copy that is being written."""

    def __init__(self, directory: Path, schema: pa.Schema) -> None:
        self._directory = directory
        self._path = directory / f".{uuid.uuid4().hex}"
        self.is_given_up = False
        self._file: Any = None
        self._writer: Any = None
        self._schema = schema

    def add(self, block: pa.RecordBatch) -> None:
        if self.is_given_up:
            return
        try:
            self._opened().write_batch(block)
        except (OSError, ValueError) as failure:
            self._give_up(failure)

    def keep(self, run: StateRun) -> None:
        """Let it be the copy of a run. One without rows says that there are none."""
        if self.is_given_up:
            return
        try:
            self._opened().close()
            self._file.close()
            name = f"{_stem(run)}.{run.span.from_hash}-{run.span.until_hash - 1}"
            # What was written is in the kernel's memory as it was summed up.
            _mark_checked(self._path)
            os.replace(self._path, self._directory / f"{name}.{self._file.sum:08x}{_SUFFIX}")
        except (OSError, ValueError) as failure:
            self._give_up(failure)

    def _opened(self) -> Any:
        if self._writer is None:
            # Not the directory of the slots: who takes a slot makes that, closed to others.
            for each in (*reversed(self._directory.parents[:2]), self._directory):
                each.mkdir(mode=0o700, exist_ok=True)
            self._file = _Summed(self._path)
            self._writer = pa.ipc.new_file(self._file, self._schema)
        return self._writer

    def abandon(self) -> None:
        self.is_given_up = True
        with suppress(OSError, ValueError):
            if self._file is not None:
                self._file.close()
            self._path.unlink(missing_ok=True)

    def _give_up(self, failure: BaseException) -> None:
        _log.warning("state has no copy on this host: %s", failure)
        self.abandon()


class _Summed(io.BufferedWriter):
    """A file that is written from its beginning to its end, and the checksum of what it has."""

    def __init__(self, path: Path) -> None:
        super().__init__(io.FileIO(path, "w"))
        self.sum = 0

    def write(self, data: Any, /) -> int:
        self.sum = zlib.crc32(data, self.sum)
        return super().write(data)


def _mark_checked(path: Path) -> None:
    """Where files have no attributes each process checks for itself."""
    with suppress(OSError, AttributeError):
        os.setxattr(path, _CHECKED, _as_it_is_now(path))


def _is_checked(path: Path) -> bool:
    """Whether a copy was checked today, since the host has started, and not written to since."""
    try:
        return os.getxattr(path, _CHECKED) == _as_it_is_now(path)
    except (OSError, AttributeError):
        return False


def _as_it_is_now(path: Path) -> bytes:
    status = path.stat()
    day = int(time.time()) // _DAY_S
    return f"{_boot()} {day} {status.st_size} {status.st_mtime_ns}".encode()


@cache
def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _stem(run: StateRun) -> str:
    name = run.file.rpartition("/")[2].removesuffix(".parquet")
    return f"{name}-{run.groups[0]}-{run.groups[1]}"


def _read_name(name: str) -> tuple[str, KeyRange, int] | None:
    """Of which run a copy is, its key range, and its checksum."""
    parts = name.removesuffix(_SUFFIX).split(".")
    if not name.endswith(_SUFFIX) or len(parts) != 3:
        return None
    try:
        low, high = map(int, parts[1].split("-"))
        return parts[0], KeyRange(low, high + 1), int(parts[2], 16)
    except ValueError:
        return None
