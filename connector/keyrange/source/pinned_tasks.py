"""The tasks of a query whose key ranges belong to executors, whichever way it commits."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import InputPartition

from keyrange.options import SourceOptions
from keyrange.source.planning import BatchReads, SampledHashes, Sizes, check_accepted
from keyrange.source.tasks import TaskMaker, TaskPlans

if TYPE_CHECKING:
    from keyrange.members.pinning import Pinning

_log = logging.getLogger(__name__)


class PinnedTaskPlans(TaskPlans):
    """Plans tasks that ask for portions of their executor's slot, if there is an assignment, and
    otherwise tasks that run anywhere."""

    def __init__(self, options: SourceOptions, pinning: Pinning) -> None:
        super().__init__()
        self._options = options
        self._pinning = pinning

    def close(self) -> None:
        self._pinning.close()

    def look(self) -> None:
        self._pinning.look()

    def plan(
        self, reads: BatchReads, sizes: Sizes, key_hashes: SampledHashes, maker: TaskMaker
    ) -> Sequence[InputPartition]:
        pinning, ranges = self._pinning, reads.ranges
        there = maker.view.partitions()
        pinning.take_in({p: span.size * sizes[p] for p, span in ranges.items()}, there)
        greeting = pinning.greeting()
        assignment = pinning.owners(list(ranges))
        if assignment is not None:
            check_accepted(ranges, self._options)
            portions = reads.portions(assignment.owners, pinning.shape, sizes, key_hashes)
            if portions is not None:
                tasks = pinning.bind(portions, lambda portion: maker.task(portion.splits))
                self._note(len(tasks), [portion.splits for portion in portions], sizes)
                return tasks
            pinning.pass_over()
            _log.info("the batch was cut for another assignment: its tasks run anywhere")
        return self._run_anywhere(reads.splits(sizes, key_hashes), sizes, maker, greeting)

    def metrics(self) -> dict[str, Any]:
        return super().metrics() | {"members": self._pinning.metrics()}
