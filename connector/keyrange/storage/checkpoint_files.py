"""The files of a checkpoint directory.

Rule of this file: `keyrange.storage.model.spark_log` says what bytes mean; here they are found and
read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from keyrange.errors import KeyrangeError, error
from keyrange.model.offsets import Positions
from keyrange.storage.directory import Directory
from keyrange.storage.model.spark_log import (
    CheckpointProgress,
    PlannedBatch,
    read_initial_offsets,
    read_planned_batch,
    read_progress,
    unsupported,
)
from keyrange.storage.object_store import FAILURES

_WRONG_PATH: Final = (FileNotFoundError, NotADirectoryError, IsADirectoryError)


def open_directory(
    location: str,
    storage: Mapping[str, str] | None = None,
    kind: type[Directory] = Directory,
) -> Directory:
    """`storage`: settings of the object store. Raises INVALID_CHECKPOINT_PATH where there can be no
    such place, CHECKPOINT_UNREADABLE where it cannot be reached."""
    try:
        return kind(location, storage)
    except FAILURES as failure:
        raise unreadable(location, failure) from None


def unreadable(
    location: str, failure: Exception, what: str = "the checkpoint cannot be read"
) -> KeyrangeError:
    """INVALID_CHECKPOINT_PATH where the path is wrong, or what is there is no checkpoint;
    CHECKPOINT_UNREADABLE where whoever keeps it did not answer, or refused."""
    is_wrong = not isinstance(failure, OSError) or isinstance(failure, _WRONG_PATH)
    name = "INVALID_CHECKPOINT_PATH" if is_wrong else "CHECKPOINT_UNREADABLE"
    return error(name, f"{what}: {failure}", path=location)


def is_checkpoint(location: str) -> bool:
    """Whether a place looks like a checkpoint of Spark's, whatever else may be wrong with it."""
    try:
        directory = Directory(location)
        return bool(_query_id(directory.read("metadata")) and directory.numbered("offsets"))
    except (*FAILURES, KeyrangeError):
        return False


def load_progress(directory: Directory) -> CheckpointProgress:
    """What a checkpoint says. Raises INVALID_CHECKPOINT_PATH where it holds no batch, and
    CHECKPOINT_UNREADABLE where it cannot be reached."""
    try:
        metadata = directory.read_if_there("metadata")
        if metadata is None:
            raise error("INVALID_CHECKPOINT_PATH", _instead_of(directory), path=directory.location)
        query_id = _query_id(metadata)
        # First what is committed: a batch that is planned and committed between the two listings is
        # an open one then, not a commit of a batch that is not there.
        commits = directory.numbered("commits")
        numbers = directory.numbered("offsets")
        planned = list(_planned(directory, numbers))
        if not planned:
            raise error(
                "INVALID_CHECKPOINT_PATH", "the checkpoint holds no batch", path=directory.location
            )
        _check_sources(directory, planned)
        initial = dict(_initial(directory, planned[-1]))
    except FAILURES as failure:
        raise unreadable(directory.location, failure) from None
    return read_progress(query_id, planned, commits, initial)


def _instead_of(directory: Directory) -> str:
    """What is in the place of a checkpoint."""
    if directory.is_empty():
        return "there is no checkpoint: the directory is empty, or not there"
    if "_delta_log" in directory.directories(""):
        return "a Delta table is in the place of the checkpoint; `keyrange commits show` takes one"
    return "there is no checkpoint: the directory has no file metadata"


def _planned(directory: Directory, numbers: Sequence[int]) -> Iterator[PlannedBatch]:
    """The batches of a listing: a query that runs removes its oldest ones meanwhile."""
    for number in numbers:
        path = f"offsets/{number}"
        is_last = number == numbers[-1]
        data = directory.read(path) if is_last else directory.read_if_there(path)
        if data is not None:
            yield read_planned_batch(number, data.decode("utf-8"))


def _check_sources(directory: Directory, planned: Sequence[PlannedBatch]) -> None:
    """A file that ends behind a line is whole by itself, and has fewer sources than the query."""
    most = max(len(batch.ends) for batch in planned)
    for batch in planned:
        if len(batch.ends) < most:
            what = f"are cut off: they are of {len(batch.ends)} of {most} sources"
            raise unsupported(batch.batch_id, what, path=directory.location)


def _query_id(metadata: bytes) -> str:
    document = json.loads(metadata)
    return str(document.get("id", "")) if isinstance(document, dict) else ""


def _initial(directory: Directory, last: PlannedBatch) -> Iterator[tuple[int, Positions]]:
    """Initial positions by source. Other sources than Kafka's keep other things in such files."""
    for source, end in enumerate(last.ends):
        path = f"sources/{source}/0"
        data = directory.read_if_there(path) if end is not None else None
        if data is None:
            continue
        try:
            yield source, read_initial_offsets(data)
        except KeyrangeError as failure:
            raise error(
                failure.condition.name, failure.message, path=f"{directory.location}/{path}"
            ) from None
