"""Whether a query went on by a job so far, by what its checkpoint says."""

from __future__ import annotations

from keyrange.storage.checkpoint_files import open_directory, unreadable
from keyrange.storage.directory import FAILURES
from keyrange.storage.model.spark_log import read_planned_batch


def is_of_a_job(checkpoint: str) -> bool | None:
    """Whether tasks can write the next batch of a query as they could write its last one; None of a
    query that has planned no batch.

    With individual commits they can, whoever wrote the last one: what a batch has so far is beside
    the checkpoint. Raises INVALID_CHECKPOINT_PATH.
    """
    directory = open_directory(checkpoint)
    try:
        last = max(directory.numbered("offsets"), default=None)
        if last is None:
            return None
        batch = read_planned_batch(last, directory.read(f"offsets/{last}").decode("utf-8"))
    except FAILURES as failure:
        raise unreadable(checkpoint, failure) from None
    return any(end and (end.source_id or end.commits) for end in batch.ends)
