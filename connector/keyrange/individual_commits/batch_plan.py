"""What a batch was planned from, in the process that commits it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from keyrange.errors import error
from keyrange.individual_commits.batch_deliveries import work_of, work_settings
from keyrange.individual_commits.batch_in_checkpoint import Planned
from keyrange.individual_commits.model.commit_settings import RedeliveryPolicy
from keyrange.individual_commits.model.delivery_columns import DeliveryColumns
from keyrange.individual_commits.model.state_columns import StateColumns
from keyrange.individual_commits.model.verdict_columns import (
    Outcome,
    StrangeVerdict,
    apply_verdicts,
)
from keyrange.individual_commits.reported_outcomes import ReportedResults
from keyrange.kafka.model.offsets import TopicPartition
from keyrange.keyed_state.model.state_runs import StateRun
from keyrange.options.commits import CommitOptions
from keyrange.work.model.work_order import TaskPartition, WorkSettings


@dataclass(frozen=True)
class BatchPlan:
    """What a batch was planned from: the states before it, and what it hands out."""

    planned: Planned
    states: StateColumns
    deliveries: DeliveryColumns
    commits: CommitOptions
    nulls_first: bool
    # The committed offsets as the last batch left them, whatever somebody has set since.
    reached: Mapping[TopicPartition, int] = field(default_factory=dict)
    # Where the state of keys is, of a job that keeps some.
    runs: Mapping[TopicPartition, tuple[StateRun, ...]] = field(default_factory=dict)

    def works(self) -> dict[TopicPartition, TaskPartition]:
        """What the tasks know of each partition."""
        return {partition: work_of(delivery) for partition, delivery in self.deliveries.items()}

    def terms(self, timed: bool = True) -> WorkSettings:
        return work_settings(self.planned.mark, self.commits, timed)

    @property
    def policy(self) -> RedeliveryPolicy:
        return replace(self.commits.policy, deliveries_max=self.terms().deliveries_max)

    @property
    def verdict_terms(self) -> dict[str, str]:
        """The options that the rows of a verdict rest on."""
        terms = self.commits.terms(self.nulls_first)
        return {
            "nullKeys": terms.null_keys,
            "commit.isolation": terms.isolation,
            "unmentioned": "retry" if self.wants_mentions else "done",
        }

    @property
    def wants_mentions(self) -> bool:
        return not self.commits.unmentioned_is_done

    def judge(self, told: ReportedResults, now_ms: int) -> Outcome:
        """The states after the batch, and what is given up. Raises IMPLAUSIBLE_VERDICT."""
        said = told.verdicts()
        try:
            strange = sorted(said.keys() - self.deliveries.keys())
            if strange:
                raise StrangeVerdict(strange[0], "the batch reads no such partition")
            return apply_verdicts(self.deliveries, said, self.policy, now_ms)
        except StrangeVerdict as failure:
            raise error(
                "IMPLAUSIBLE_VERDICT",
                f"what was said of partition {failure.partition} cannot be: {failure}",
                batch=self.planned.batch_id,
            ) from None
