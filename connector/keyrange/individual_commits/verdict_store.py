"""Where the verdict of a batch is kept: its output, and what became of the rest, made once.

    <verdictDirectory>/<source id>/<batch>/<attempt>/part-*.parquet
    <verdictDirectory>/<source id>/<batch>/manifest.json
    <verdictDirectory>/<source id>/<batch>/released.json
    <verdictDirectory>/<source id>/plan-*/part-*.parquet

Executors write the parts of an attempt; the manifest, written once and whole, says which attempt
counts. While there is none there is no verdict, and the function runs. Where there is one it never
runs again: files that it names and that are gone or changed are an error. Tasks that work while
they read know the plan of their batch and not its number: the plan is their attempt. Where a job's
rows are held, another manifest says which of these and of earlier ones are released by the batch.
"""

from __future__ import annotations

import uuid
from base64 import b64decode
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any, Final, TypeVar

import pyarrow as pa

from keyrange.errors import KeyrangeError, error
from keyrange.individual_commits import verdict_files
from keyrange.individual_commits.batch_in_checkpoint import Planned
from keyrange.individual_commits.model.batch_results import Failure
from keyrange.individual_commits.model.verdict_manifest import (
    Found,
    Manifest,
    planned,
    read_manifest,
)
from keyrange.individual_commits.verdict_files import Wanted
from keyrange.model.checkpoint import Checkpoint
from keyrange.storage.directory import Directory
from keyrange.storage.object_store import FAILURES, failing_as, is_unanswered

_MANIFEST: Final = "manifest.json"
_UNKEPT: Final = "the verdict cannot be kept"
_RELEASED: Final = "released.json"
_OF_A_PLAN: Final = "plan-"
_READERS: Final = 8
# Batches of a run between two lists of what is left in a store of objects.
_LIST_EVERY: Final = 100
# Of the parts of an attempt that are kept in memory.
_KEPT_BYTES: Final = 8 << 20

# What systems, Hadoop and object stores say of a place that takes no files.
_NO_FILES: Final = (
    "No space left on device",
    "Disk quota exceeded",
    "File too large",
    "Read-only file system",
    "Permission denied",
    "Mkdirs failed to create",
    "AccessDenied",
)

# What Spark says of a process of Python's that is gone.
_CRASHED: Final = "Python worker exited unexpectedly"
_TRACEBACK: Final = "Traceback (most recent call last)"

_T = TypeVar("_T")


class VerdictStore:
    """The verdicts of one source, for all batches of a run."""

    def __init__(
        self,
        location: str,
        source_id: str,
        storage: Mapping[str, str] | None = None,
        decides: bool = True,
    ) -> None:
        """`decides`: whether the manifest says which of several drivers counts, and not the
        output's table, which takes a batch once."""
        self._of_all = location
        self._location = f"{location.rstrip('/')}/{source_id}"
        self._storage = storage
        self._directory = Directory(self._location, storage)
        self._decides = decides
        # How often this process was to remove what is over.
        self._removals = 0
        # The batch whose verdict it has published last.
        self._published: int | None = None
        # The files of verdicts that take room in a store of objects, by batch.
        self._files: dict[int, list[str]] = {}
        # The parts of one attempt in such a store, where they are small: three ask for them.
        self._attempt = ""
        self._parts: dict[str, pa.Buffer] = {}

    @property
    def location(self) -> str:
        """Where all of them are, as Spark names it."""
        return self._location

    def manifest(self, batch_id: int, start: Checkpoint, end: Checkpoint) -> Manifest | None:
        """The verdict of a batch, None where there is none yet.

        A run asks for that of its first batch alone: Spark plans a batch when the one before is
        finished, and so of a later one there is no verdict but by a driver that is late, which
        `publish` finds. Raises VERDICT_MISMATCH where it was made for another plan,
        CHECKPOINT_BEHIND where the checkpoint that has the verdicts has the plan too,
        VERDICT_DAMAGED where its files are no good or not there, VERDICT_UNREADABLE where the store
        does not give them.
        """
        return None if batch_id - 1 == self._published else self._asked(batch_id, start, end)

    def _asked(self, batch_id: int, start: Checkpoint, end: Checkpoint) -> Manifest | None:
        found = self.manifest_of(batch_id)
        if found is not None and (found.start, found.end) != planned(start, end):
            raise error(
                "VERDICT_MISMATCH" if self._decides else "CHECKPOINT_BEHIND",
                f"the verdict of batch {batch_id} is one of other offsets",
                path=self._path(batch_id),
            )
        return found

    def manifest_of(self, batch_id: int) -> Manifest | None:
        """The verdict of a batch, whatever it was planned from."""
        return self._read(batch_id, _MANIFEST)

    def released_by(self, batch_id: int) -> Manifest | None:
        """What a batch has written of output that is held; None where that is not decided."""
        return self._read(batch_id, _RELEASED)

    def written_by(self, manifest: Manifest) -> Manifest | None:
        """The manifest of the files that a batch has written, None where that is not decided."""
        return self.released_by(manifest.batch_id) if manifest.is_held else manifest

    def _read(self, batch_id: int, name: str) -> Manifest | None:
        try:
            data = self._directory.read_if_there(f"{batch_id}/{name}")
            if data is None:
                return None
            manifest = read_manifest(batch_id, data)
            place = _place(batch_id, manifest.attempt)
            sizes = self._directory.sizes(place) if manifest.files else {}
        except FAILURES as failure:
            raise self._unreadable(batch_id, failure) from None
        for name, size in sorted(manifest.files.items()):
            if sizes.get(name) != size:
                there = f"has {sizes[name]} bytes" if name in sizes else "is not there"
                raise self._damaged(batch_id, f"{name} {there}, the manifest says {size}")
        return manifest

    def before(self, at: Planned) -> Manifest | None:
        """The verdict of the batch before one, or the last one of the source from whose commits the
        query goes on; None where there is none any more."""
        if at.batch_id or at.mark.resumes is None:
            return self.manifest_of(at.batch_id - 1) if at.batch_id else None
        other = VerdictStore(self._of_all, at.mark.resumes[0], self._storage)
        batches = (int(each) for each in other._directory.directories("") if each.isdecimal())
        found = map(other.manifest_of, sorted(batches, reverse=True))
        return next((each for each in found if each is not None), None)

    def new_attempt(self, batch_id: int) -> tuple[str, str]:
        """The name of an attempt, and where executors are to write its parts."""
        attempt = uuid.uuid4().hex
        return attempt, f"{self._location}/{_place(batch_id, attempt)}"

    @contextmanager
    def writing(self) -> Iterator[None]:
        """While tasks of Spark's make an attempt, whose failures come as text. Raises
        VERDICT_UNWRITABLE where the directory takes no files, WORKER_CRASHED where a process has
        ended that called the function, and all else as it is."""
        try:
            yield
        except KeyrangeError:
            raise
        except Exception as failure:
            text = str(failure)
            if _CRASHED in text and _TRACEBACK not in text:
                raise error(
                    "WORKER_CRASHED", "a process ended while it called the function"
                ) from None
            reason = _reason(text, self._location)
            if reason is None:
                raise
            raise error("VERDICT_UNWRITABLE", f"{_UNKEPT}: {reason}", path=self._location) from None

    def files_of(self, batch_id: int, attempt: str) -> dict[str, int]:
        """The parts that Spark has written."""
        sizes = self._directory.sizes(f"{batch_id}/{attempt}")
        return {name: size for name, size in sizes.items() if name.startswith("part-")}

    def publish(self, manifest: Manifest, start: Checkpoint, end: Checkpoint) -> Manifest:
        """Make a verdict the one that counts; another one where it was there before.

        Raises VERDICT_UNWRITABLE.
        """
        found = self._write_once(manifest, _MANIFEST)
        if found is not None:
            self._published = manifest.batch_id
            return found
        found = self._asked(manifest.batch_id, start, end)
        assert found is not None
        return found

    def release(self, manifest: Manifest) -> Manifest:
        """Make it what a batch writes of output that is held; what it was where that was decided.
        Raises VERDICT_UNWRITABLE."""
        found = self._write_once(manifest, _RELEASED) or self.released_by(manifest.batch_id)
        assert found is not None
        return found

    def _write_once(self, manifest: Manifest, name: str) -> Manifest | None:
        at, data = manifest.batch_id, manifest.to_json()
        with keeping(self._location):
            if not self._directory.write_once(f"{at}/{name}", data):
                return None
        parts = [f"{_place(at, manifest.attempt)}/{name}" for name in manifest.files]
        parts += manifest.staged_files
        if parts and not self._directory.is_local:
            self._files.setdefault(at, []).extend([f"{at}/{name}", *parts])
        return read_manifest(at, data)

    def paths(self, manifest: Manifest) -> list[str]:
        """Where the parts are, for Spark to read."""
        root = f"{self._location}/{_place(manifest.batch_id, manifest.attempt)}"
        return [f"{root}/{name}" for name in sorted(manifest.files)]

    def rows_in(
        self, manifest: Manifest, wanted: Wanted, offsets: Collection[int] | None = None
    ) -> Found:
        """What a verdict says, in the manifest and in all of the parts (`verdict_files.rows_in`).
        Raises VERDICT_DAMAGED, VERDICT_UNREADABLE."""
        read = partial(verdict_files.rows_in, wanted=wanted, offsets=offsets)
        found = [manifest.rows, *self._in_each(manifest, read)]
        return {name: [row for each in found for row in each.get(name, ())] for name in wanted}

    def failures_in(self, manifest: Manifest) -> list[Failure]:
        """What `verdict_files.failures_in` finds in all of the parts. Raises VERDICT_DAMAGED,
        VERDICT_UNREADABLE."""
        found = self._in_each(manifest, lambda source: list(verdict_files.failures_in(source)))
        return [failure for each in found for failure in each]

    def _in_each(self, manifest: Manifest, read: Callable[[Any], _T]) -> list[_T]:
        is_kept = not self._directory.is_local and sum(manifest.files.values()) <= _KEPT_BYTES
        if manifest.attempt != self._attempt:
            self._attempt, self._parts = manifest.attempt, {}

        def read_part(name: str) -> _T:
            if name in manifest.inline:
                return read(pa.BufferReader(b64decode(manifest.inline[name])))
            path = f"{_place(manifest.batch_id, manifest.attempt)}/{name}"
            if not is_kept:
                with self._directory.open(path) as source:
                    return read(source)
            if path not in self._parts:
                with self._directory.open(path) as source:
                    self._parts[path] = source.read_buffer()
            return read(pa.BufferReader(self._parts[path]))

        names = sorted([*manifest.files, *manifest.inline])
        if not names:
            return []
        try:
            # A remote store takes its time for each.
            with ThreadPoolExecutor(min(len(names), _READERS)) as readers:
                return list(readers.map(read_part, names))
        except FAILURES as failure:
            raise self._unreadable(manifest.batch_id, failure) from None

    def holds(self, batch_id: int, attempt: str, paths: Sequence[str]) -> bool:
        """Whether all of some URIs are parts of one attempt."""
        inside = f"/{batch_id}/{attempt}/part-"
        source = self._location.rpartition("/")[2]
        return all(f"/{source}{inside}" in path for path in paths)

    def remove_old(self, is_over: Callable[[int], bool], last: Manifest | None = None) -> None:
        """Remove the batches that are over, and with `last`, the manifest of the last batch, what
        tasks have written for plans that no verdict names. Raises VERDICT_UNWRITABLE."""
        is_due = self._directory.is_local or self._removals % _LIST_EVERY == 0
        self._removals += 1
        with keeping(self._location):
            if is_due:
                self._remove_what_is_there(is_over, last)
            else:
                self._remove_published(is_over)

    def _remove_published(self, is_over: Callable[[int], bool]) -> None:
        """In a store of objects, where a list costs like ten reads: what takes room, by its names.
        What an attempt has left there that does not count goes with the next list."""
        over = list(filter(is_over, self._files))
        files = [file for batch_id in over for file in self._files[batch_id]]
        if files:
            self._directory.remove_files(files)
        for batch_id in over:
            del self._files[batch_id]

    def _remove_what_is_there(self, is_over: Callable[[int], bool], last: Manifest | None) -> None:
        names = self._directory.directories("")
        batches = {int(name) for name in names if name.isdecimal()}
        over = set(filter(is_over, batches))
        left = {name for name in names if name.startswith(_OF_A_PLAN)}
        left = left - last.attempts if last is not None else set()
        if left and last is not None:
            others = [self.manifest_of(each) for each in batches - over - {last.batch_id}]
            left -= {name for each in others if each is not None for name in each.attempts}
        self._directory.remove({*map(str, over), *left})
        self._files = {at: each for at, each in self._files.items() if not is_over(at)}

    def _path(self, batch_id: int) -> str:
        return f"{self._location}/{batch_id}"

    def _unreadable(self, batch_id: int, failure: BaseException) -> KeyrangeError:
        if not is_unanswered(failure):
            return self._damaged(batch_id, str(failure))
        text = f"the store did not give the verdict of batch {batch_id}: {failure}"
        return error("VERDICT_UNREADABLE", text, path=self._path(batch_id))

    def _damaged(self, batch_id: int, why: str) -> KeyrangeError:
        return error(
            "VERDICT_DAMAGED",
            f"the verdict of batch {batch_id} cannot be used: {why}",
            path=self._path(batch_id),
        )


def plan_attempt(location: str, source_id: str, plan: str) -> tuple[str, str]:
    """The attempt of the tasks of a plan, and where they are to write its parts."""
    attempt = f"{_OF_A_PLAN}{plan}"
    return attempt, f"{location.rstrip('/')}/{source_id}/{attempt}"


def _place(batch_id: int, attempt: str) -> str:
    """The directory of an attempt's parts."""
    return attempt if attempt.startswith(_OF_A_PLAN) else f"{batch_id}/{attempt}"


def _reason(text: str, location: str) -> str | None:
    """The line of a failure of Spark's that says that a place takes no files; None where it is
    another failure."""
    # What Python workers fail with is of the job or of the source, whatever it says.
    of_python = "PythonException" in text or _TRACEBACK in text
    if of_python or not ("TASK_WRITE_FAILED" in text or location in text):
        return None
    lines = (line.strip() for line in text.splitlines())
    return next((line[:300] for line in lines if any(each in line for each in _NO_FILES)), None)


def keeping(location: str) -> AbstractContextManager[None]:
    """What fails while a verdict is kept. Raises VERDICT_UNWRITABLE."""
    return failing_as("VERDICT_UNWRITABLE", _UNKEPT, path=location)
