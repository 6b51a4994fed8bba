"""What a run of a job leaves behind: records that are neither done nor dead."""

from __future__ import annotations

from pyspark.sql import SparkSession

from keyrange.individual_commits.each_batch import OpenTable, open_table
from keyrange.individual_commits.planned import last_source
from keyrange.options import SourceOptions


def pending_records(
    options: SourceOptions, checkpoint: str, spark: SparkSession, open_it: OpenTable = open_table
) -> int | None:
    """How many records wait for another delivery, by the last commit of a query; None of one that
    commits batches, or that has planned none.

    Raises INVALID_CHECKPOINT_PATH, and what a `CommitTable` raises.
    """
    source_id = last_source(checkpoint) if options.commits.individual else None
    if source_id is None:
        return None
    states = open_it(options, source_id, spark).known().states.values()
    return sum(len(piece.pending) for state in states for piece in state.pieces)
