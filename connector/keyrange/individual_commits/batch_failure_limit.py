"""When so many records of a batch fail that the function is at fault, and not they."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from keyrange.errors import error
from keyrange.individual_commits.batch_plan import BatchPlan
from keyrange.individual_commits.model.batch_results import Failure, failure_kinds, kinds_text
from keyrange.individual_commits.reported_outcomes import ReportedResults
from keyrange.work.model.outcome import Cause

# Fewer than so many stop no query: a few bad records are no bad function.
FAILURES_MIN: Final = 10


def check_failures(
    plan: BatchPlan,
    told: ReportedResults,
    most: float,
    failures: Callable[[], Iterable[Failure]],
) -> None:
    """Raises TOO_MANY_FAILURES where a larger part than `most` of the records fails that a batch
    delivers for the first time: those that come again have failed before."""
    failed = 0
    for partition, delivery in plan.deliveries.items():
        known = {record.offset for record in delivery.redelivered}
        failed += sum(
            each.cause is not Cause.HELD_BACK and each.offset not in known
            for each in told.verdict_on(partition).not_done
        )
    worked_on = failed + sum(told.done.values())
    if failed < FAILURES_MIN or failed <= most * worked_on:
        return
    raise error(
        "TOO_MANY_FAILURES",
        f"{failed:,} of {worked_on:,} records failed, and maxFailureRatio is {most:g}: "
        f"{kinds_text(failure_kinds(failures()))}",
        batch=plan.planned.batch_id,
    )
