"""What a job calls in the function that it gives to `keyrange.each_batch`."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from keyrange.errors import error, invalid_options
from keyrange.individual_commits.batch_run import BatchRun, current, running
from keyrange.individual_commits.reported_outcomes import HIDDEN_SPARK, check_columns, schema_of
from keyrange.model.columns import IDENTIFYING, PLACE
from keyrange.work.function_signature import call_mistake
from keyrange.work.model.work_order import WorkSettings
from keyrange.work.outcome_rows import HIDDEN, HIDDEN_TYPE
from keyrange.work.task_context import Job
from keyrange.work.task_run import work_of

_Given = ParamSpec("_Given")
_Answer = TypeVar("_Answer")


def _heard(call: Callable[_Given, _Answer]) -> Callable[_Given, _Answer]:
    """A call that fails lets its batch fail, also where the job's function catches the error and
    returns: nothing would be known of the records, and all of them would count as done."""

    @wraps(call)
    def heard(*given: _Given.args, **named: _Given.kwargs) -> _Answer:
        try:
            return call(*given, **named)
        except BaseException as failure:
            if (run := running()) is not None:
                run.failure = failure
            raise

    return heard


@_heard
def process(
    batch: DataFrame,
    function: Callable[[Any], Any],
    schema: str | StructType,
    mode: str = "record",
) -> DataFrame:
    """Run `function` on the records of a batch, once, and answer with the output of those that are
    done; in transactional isolation with what of it is released.

    `schema` (DDL, or a StructType) is that of the output. With `mode` "record" the function is
    given one record and answers with None, a row (dict, tuple or Row) or a list of rows. A record
    is not done where it raises; it comes again after a while. With "arrow" it is given a
    pyarrow.RecordBatch of records of one partition and answers with one; where it raises it is
    called with halves, so it may see a record more than once.

    Raises KeyrangeError: OUTSIDE_EACH_BATCH, VERDICT_TWICE, UNSUITABLE_FRAME, VERDICT_DAMAGED,
    VERDICT_MISMATCH, VERDICT_UNWRITABLE.
    """
    run = current("keyrange.process")
    run.check_first("keyrange.process")
    check_columns(batch, "keyrange.process")
    if mode not in ("record", "arrow"):
        raise invalid_options(f"mode must be record or arrow, and is {mode[:40]!r}")
    if (mistake := call_mistake(function, mode)) is not None:
        raise invalid_options(mistake)
    plan, output = run.plan, StructType(list(schema_of(schema)))
    if HIDDEN in output.names:
        raise error("UNSUITABLE_FRAME", f"column {HIDDEN!r} is keyrange's own")
    if plan.commits.transactional and mode == "arrow" and not set(PLACE) <= set(output.names):
        raise error(
            "UNSUITABLE_FRAME",
            "with commit.isolation=transactional the output of a function of Arrow batches has "
            "the columns topic, partition and offset of the record that each row is of",
        )
    run.said = True
    return _made(run, batch, output, plan.terms(), mode, function=function)


@_heard
def materialize(df: DataFrame, error_column: str | None = None) -> DataFrame:
    """Compute a DataFrame once, keep it with the batch, and answer with what was kept, to be
    written, acknowledged and rejected.

    It has to be made of the batch and to have its columns topic, partition, offset and keyHash.
    Records of keys that have to wait are left out. With `error_column`, a column of texts, this is
    the verdict: where it is not null the record is rejected, what comes of its key is held back,
    and neither is in the answer. In transactional isolation only that decides.

    Raises KeyrangeError as `process` does.
    """
    run = current("keyrange.materialize")
    run.check_first("keyrange.materialize")
    named = [error_column] if error_column is not None else []
    check_columns(df, "keyrange.materialize", (*IDENTIFYING, *named))
    plan, output = run.plan, df.schema
    keeps_offsets = plan.commits.transactional
    held = plan.deliveries.holds_keys
    if error_column is not None:
        run.said = True
        run.errors_are_exceptions = False
        output = StructType([each for each in output.fields if each.name != error_column])
    elif keeps_offsets:
        run.said = True
    if error_column is None and not held and not (plan.wants_mentions and keeps_offsets):
        return run.make_verdict(output, lambda: _with_hidden(df, run), counted=False)
    terms = plan.terms(timed=False)
    return _made(run, df, output, terms, "column", error_column=error_column)


def transaction() -> dict[str, str]:
    """The options by which a Delta sink writes a batch once, where it runs again after a crash:
    `df.write.format("delta").options(**keyrange.transaction())`.

    One write to each table, whose property delta.setTransactionRetentionDuration, where it is set,
    is longer than the query may stand still. Raises OUTSIDE_EACH_BATCH.
    """
    planned = current("keyrange.transaction").plan.planned
    return {"txnAppId": planned.application, "txnVersion": str(planned.batch_id)}


@_heard
def acknowledge(df: DataFrame) -> None:
    """Say that the records of a DataFrame are done. It is made of what `materialize` returned.

    Raises KeyrangeError: OUTSIDE_EACH_BATCH, NOT_MATERIALIZED, VERDICT_TOO_LATE, UNSUITABLE_FRAME.
    """
    run = current("keyrange.acknowledge")
    check_columns(df, "keyrange.acknowledge", PLACE)
    run.check_materialized(df, "keyrange.acknowledge")
    run.acknowledge(df)


@_heard
def reject(df: DataFrame, error_column: str | None = None) -> None:
    """Say that the records of a DataFrame are not done, and why. It is made of what `materialize`
    returned. What is rejected and acknowledged is rejected.

    Later records of the same keys are not held back in this batch: the job decides about them.

    Raises KeyrangeError as `acknowledge` does.
    """
    run = current("keyrange.reject")
    named = [error_column] if error_column is not None else []
    check_columns(df, "keyrange.reject", (*IDENTIFYING, *named))
    run.check_materialized(df, "keyrange.reject")
    run.reject(df, error_column)


def _made(
    run: BatchRun, frame: DataFrame, output: StructType, terms: WorkSettings, mode: str, **how: Any
) -> DataFrame:
    """The output of a verdict that tasks make of a frame."""
    plan = run.plan
    # In rows that say what became of other records all of them are null.
    output = output.toNullable()
    job = Job(
        plan.works(),
        terms,
        mode,
        to_arrow_schema(output, timezone="UTC"),
        keeps_offsets=plan.commits.transactional,
        mentions=plan.wants_mentions and run.said,
        nulls_first=plan.settings.nulls_first,
        **how,
    )
    schema = StructType(list(output.fields)).add(HIDDEN, HIDDEN_SPARK)
    return run.make_verdict(output, lambda: frame.mapInArrow(work_of(job), schema), counted=True)


def _with_hidden(frame: DataFrame, run: BatchRun) -> DataFrame:
    """A frame as the rows of a verdict, without a way through Python."""
    hidden: Column = F.lit(None).cast(HIDDEN_SPARK)
    if run.plan.commits.transactional:
        location = F.struct(*[F.col(name) for name in PLACE])
        others = [F.lit(None)] * (HIDDEN_TYPE.num_fields - 1)
        hidden = F.struct(location, *others).cast(HIDDEN_SPARK)
    return frame.withColumn(HIDDEN, hidden)
