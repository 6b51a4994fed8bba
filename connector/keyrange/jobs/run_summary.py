"""What a query's checkpoint and tables say of its runs by a job: before one, and after it."""

from __future__ import annotations

from collections.abc import Mapping

from keyrange.individual_commits.batch_in_checkpoint import last_source
from keyrange.individual_commits.each_batch import OpenTable, open_table
from keyrange.options.commits import CommitOptions
from keyrange.storage.checkpoint_files import open_directory, unreadable
from keyrange.storage.model.spark_log import read_planned_batch
from keyrange.storage.object_store import FAILURES


def pending_records(
    options: CommitOptions, checkpoint: str, open_it: OpenTable = open_table
) -> int | None:
    """How many records wait for another delivery, by the last commit of a query; None of one that
    commits batches, or that has planned none.

    Raises INVALID_CHECKPOINT_PATH, and what a `CommitTable` raises.
    """
    source_id = last_source(checkpoint, options.revealed_storage()) if options.individual else None
    if source_id is None:
        return None
    states = open_it(options, source_id).known().states.values()
    return sum(len(piece.pending) for state in states for piece in state.pieces)


def is_of_a_job(checkpoint: str, storage: Mapping[str, str]) -> bool | None:
    """Whether tasks can write the next batch of a query as they could write its last one; None of a
    query that has planned no batch.

    With individual commits they can, whoever wrote the last one: what a batch has so far is beside
    the checkpoint. `storage`: settings of the object store. Raises INVALID_CHECKPOINT_PATH.
    """
    directory = open_directory(checkpoint, storage)
    try:
        last = max(directory.numbered("offsets"), default=None)
        if last is None:
            return None
        batch = read_planned_batch(last, directory.read(f"offsets/{last}").decode("utf-8"))
    except FAILURES as failure:
        raise unreadable(checkpoint, failure) from None
    return any(end and (end.source_id or end.commits) for end in batch.ends)
