"""When so many records of a batch fail that the function is at fault, and not they."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from keyrange.errors import error
from keyrange.individual_commits.batch_deliveries import BatchPlan
from keyrange.individual_commits.model.batch_results import Failure, failure_kinds, kinds_text
from keyrange.individual_commits.reported_outcomes import ReportedResults

# Fewer than so many stop no query: a few bad records are no bad function.
FAILURES_MIN: Final = 10
# Errors of a program, each as far as its text cannot quote a record: `Order(**value)` names a field
# of the value.
_OF_PROGRAM: Final = re.compile(
    r"(NameError|UnboundLocalError|ImportError|ModuleNotFoundError): .*"
    r"|(SyntaxError|IndentationError): .*"
    r"|AttributeError: (module '[\w.]+'|'(KeyState|Record|ValueRow)' object.*?) has no attribute"
    r"|AttributeError: state\.\w+ cannot be set: call its update, put or append"
    r"|RuntimeError: the job has no on_timer"
    r"|TypeError: \S+\(\) (takes|missing|got an unexpected keyword|got multiple values)"
)


@dataclass(frozen=True, slots=True)
class Worked:
    """So many records that were delivered for the first time failed, and so many are done.
    `tombstones`: those of them that have no value, where values are read. They are done whatever
    the schema is."""

    failed: int = 0
    done: int = 0
    tombstones: int = 0

    def __add__(self, more: Worked) -> Worked:
        tombstones = self.tombstones + more.tombstones
        return Worked(self.failed + more.failed, self.done + more.done, tombstones)


NO_RECORDS: Final = Worked()


def worked_in(plan: BatchPlan, told: ReportedResults) -> Worked:
    """What a batch came to. Records that come again have failed before, and do not count."""
    failed = 0
    for partition, verdict in told.verdicts().items():
        delivery = plan.deliveries.get(partition)
        known = {record.offset for record in delivery.redelivered} if delivery else set()
        failed += sum(
            each.cause.was_worked_on and each.offset not in known for each in verdict.not_done
        )
    return Worked(failed, sum(told.done.values()), told.tombstones)


def check_failures(
    batch_id: int,
    most: float | None,
    batch: Worked,
    before: Worked,
    failures: Callable[[], Iterable[Failure]],
) -> None:
    """Raises TOO_MANY_FAILURES where a larger part of the batch fails than `maxFailureRatio` says,
    which is `most`, and by default where all records of the run fail, tombstones left aside;
    FUNCTION_FAILED where its first records meet an error of the program. `before`: earlier batches
    of the run."""
    run = batch + before
    if most == 1 or not batch.failed:
        return
    if before == NO_RECORDS:
        _check_program(batch_id, batch, failures)
    limit = "by default a run stops in which no record is done"
    if run.tombstones:
        limit += " but tombstones"
    if most is not None:
        run, limit = batch, f"maxFailureRatio is {most:g}"
    if run.failed < FAILURES_MIN or (
        run.failed <= most * (run.failed + run.done)
        if most is not None
        else run.done > run.tombstones
    ):
        return
    raise error(
        "TOO_MANY_FAILURES",
        f"{run.failed:,} of {run.failed + run.done:,} records failed, and {limit}: "
        f"{kinds_text(failure_kinds(failures()))}",
        batch=batch_id,
    )


def _check_program(batch_id: int, batch: Worked, failures: Callable[[], Iterable[Failure]]) -> None:
    """Half of the first records: fewer may be what a program makes of unusual ones."""
    found = [
        (each, raised[0])
        for each in failures()
        if each.is_exception and (raised := _OF_PROGRAM.match(each.error))
    ]
    if 2 * len(found) <= batch.failed + batch.done:
        return
    first, text = found[0]
    text = text.removesuffix(f" ({first.place})")
    where = f" ({first.place})" if first.place else ""
    raise error(
        "FUNCTION_FAILED",
        f"{len(found):,} of the first {batch.failed + batch.done:,} records ended in an error of "
        f"the program: {text}{where}",
        partition=first.partition,
        offset=first.offset,
        batch=batch_id,
    )
