"""Batch commits: all records of a batch are done when Spark has finished the batch.

So Spark's checkpoint says all that is committed, and a batch reads new records alone.
"""

from __future__ import annotations

from dataclasses import replace

from keyrange.errors import invalid_options
from keyrange.individual_commits.model.checkpoint_agreement import check_agreement, check_all_done
from keyrange.kafka.cluster import Cluster
from keyrange.kafka.cluster_view import ClusterView
from keyrange.kafka.model.offsets import Positions, pending
from keyrange.kafka.position_lookup import earliest
from keyrange.options import SourceOptions
from keyrange.source.commit_strategy import CommitStrategy, NextBatch, OpenTable
from keyrange.source.model.checkpoint import Checkpoint
from keyrange.source.planning import NewRecords, check_partitions


class BatchCommits(CommitStrategy):
    """`open_table` is for a query that committed individually before."""

    def __init__(
        self, options: SourceOptions, cluster: Cluster, open_table: OpenTable | None
    ) -> None:
        self._options = options
        self._cluster = cluster
        self._open_table = open_table

    def look(self, start: Checkpoint) -> None:
        """A query may go back to batch commits when nothing is left that would never come again.

        Raises COMMIT_TERMS_CHANGED, and INVALID_OPTIONS where the commit table is not named.
        """
        if start.commits is None:
            return
        if not self._options.commits.table or self._open_table is None:
            raise invalid_options(
                [
                    "option 'commitTable' must be given until the next batch is done: the "
                    "checkpoint is of a query that commits individually, and only its commit table "
                    "tells whether everything is done; or set commitMode=individual"
                ]
            )
        known = self._open_table(self._options.commits, start.commits.source_id).known()
        check_agreement(known, start)
        check_all_done(known, "commitMode was individual and is batch")

    def committed(self, at: Checkpoint) -> Positions:
        return at.positions

    def end(self, batch: NextBatch) -> Checkpoint | None:
        if batch.waits:
            return None
        check_partitions(batch.latest, self._options)
        end = batch.limited(batch.latest)
        if end == dict(batch.start.positions) and not batch.moved:
            return None
        return replace(batch.base, positions=end)

    def reads(self, start: Checkpoint, end: Checkpoint, view: ClusterView) -> NewRecords:
        known = set(view.partitions())
        begin = {p: end.start_of(p, start) for p in end.positions}
        unknown = earliest(
            self._cluster, view, [p for p, at in begin.items() if at is None and p in known]
        )
        begins: Positions = {
            p: at if at is not None else unknown.get(p, end.positions[p]) for p, at in begin.items()
        }
        return NewRecords(pending(begins, end.positions), self._options)
