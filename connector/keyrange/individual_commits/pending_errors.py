"""The last errors of pending records, for people who look at them.

    <verdictDirectory>/<source id>/pending_errors.json

The verdict of a batch is removed soon after it, and the commit table has no errors, which may quote
records. So the process that commits keeps these beside the verdicts: of the records that hold back
the most with their texts, of more by the names of exceptions alone. Nothing rests on them: what
cannot be read or written is missing there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Final

from keyrange.individual_commits.model.batch_results import Failure, PendingError
from keyrange.individual_commits.model.state_columns import OFFSET, StateColumns
from keyrange.model.offsets import TopicPartition
from keyrange.storage.directory import Directory
from keyrange.storage.object_store import FAILURES

_FILE: Final = "pending_errors.json"
_VERSION: Final = 1
# Those of the lowest offsets hold back the most.
_TEXTS_MAX: Final = 1_000
# A name takes 40 bytes in the file, which is written with each batch that changes it.
_NAMES_MAX: Final = 50_000

Errors = dict[tuple[TopicPartition, int], PendingError]


class PendingErrors:
    """Those of one source, in the process that commits."""

    def __init__(
        self, location: str, source_id: str, storage: Mapping[str, str] | None = None
    ) -> None:
        self._directory = _directory(location, source_id, storage)
        self._known: Errors | None = None
        # A store of objects takes its time: the next batch need not wait for it.
        self._beside = ThreadPoolExecutor(1)
        self._written: Future[object] | None = None

    def update(self, states: StateColumns, failures: Iterable[Failure]) -> None:
        """With those of a batch, and without those of records that are not pending after it.

        Raises OSError or ValueError where they cannot be kept, or those of the batch before could
        not in a store of objects.
        """
        written, self._written = self._written, None
        if written is not None and (failure := written.exception()) is not None:
            # What is there now is read again.
            self._known = None
            raise failure
        known = _read(self._directory) if self._known is None else self._known
        found = known | {
            (each.partition, each.offset): PendingError(each.error, each.name) for each in failures
        }
        left: Errors = {}
        if found:
            own = states.only({partition for partition, _ in found})
            names = map(own.partitions.__getitem__, own.places_of_pending.part.tolist())
            pending = set(zip(names, own.pending[OFFSET].tolist(), strict=True))
            places = sorted(found.keys() & pending, key=lambda each: (each[1], each[0]))
            left = _kept((each, found[each]) for each in places)
        if known and not left:
            # It may quote records, so it stays no longer than it serves.
            self._do(lambda: self._directory.remove_files([_FILE]))
        elif left != known:
            rows = [
                [*partition, offset, error.text, error.name]
                for (partition, offset), error in left.items()
            ]
            document = {"version": _VERSION, "errors": rows}
            data = json.dumps(document).encode()
            self._do(lambda: self._directory.write(_FILE, data))
        self._known = left

    def _do(self, write: Callable[[], object]) -> None:
        if self._directory.is_local:
            write()
        else:
            self._written = self._beside.submit(write)


def _kept(found: Iterable[tuple[tuple[TopicPartition, int], PendingError]]) -> Errors:
    """What there is room for, of errors in the order of their offsets."""
    left: Errors = {}
    for place, error in found:
        kept = error if len(left) < _TEXTS_MAX else replace(error, text="")
        if kept.text or kept.name:
            left[place] = kept
        if len(left) == _NAMES_MAX:
            break
    return left


def pending_errors(
    location: str, source_id: str, storage: Mapping[str, str] | None = None
) -> Errors:
    """The last errors of pending records, as far as they are there, and nothing where they cannot
    be read."""
    try:
        return _read(_directory(location, source_id, storage))
    except FAILURES:
        return {}


def _directory(location: str, source_id: str, storage: Mapping[str, str] | None) -> Directory:
    return Directory(f"{location.rstrip('/')}/{source_id}", storage)


def _read(directory: Directory) -> Errors:
    data = directory.read_if_there(_FILE)
    if data is None:
        return {}
    try:
        document: Any = json.loads(data)
        rows = document["errors"] if document["version"] == _VERSION else []
        return {
            (TopicPartition(topic, number), int(at)): PendingError(str(text), str(name))
            for topic, number, at, text, name in rows
        }
    except (ValueError, KeyError, TypeError):
        # A driver was killed while it wrote them.
        return {}
