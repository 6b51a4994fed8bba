"""Rows of open windows, and of ids that were seen, as the state of their keys."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import TimestampNTZType

from keyrange.keyed_state.initial_rows import unfit
from keyrange.keyed_state.variables import KEY, TIMERS
from keyrange.windowing.operators import KeptRows, Lasts

_PLACE: Final = ("topic", "partition", KEY)


def state_of_rows(frame: DataFrame, kept: KeptRows) -> DataFrame:
    """A row for each key, with the rows that it has in a frame and their timers. Raises
    INITIAL_STATE_UNFIT, also as an error of Spark's where a row cannot be."""
    names = [name for name, _ in kept.columns]
    if missing := [name for name in (KEY, *names) if name not in frame.columns]:
        raise unfit(f"there is no column {missing[0]!r}; the columns are {KEY}, {', '.join(names)}")
    if others := [name for name in frame.columns if name not in (*_PLACE, *names)]:
        raise unfit(f"column {others[0][:100]!r} is none of {', '.join((*_PLACE, *names))}")
    # Those without a zone are UTC in state: Spark would set timers by the session's.
    times = {kept.timer, *((kept.lasts.start, kept.lasts.end) if kept.lasts else ())}
    zoneless = [each for each in times if isinstance(frame.schema[each].dataType, TimestampNTZType)]
    in_utc = {name: F.concat(F.col(name).cast("string"), F.lit("Z")) for name in zoneless}
    frame = frame.withColumns({name: each.cast("timestamp") for name, each in in_utc.items()})
    if kept.lasts is not None:
        frame = _checked(frame, kept.lasts)
    else:
        is_told = F.col(kept.timer).isNotNull()
        frame = _where(frame, kept.timer, is_told, f"column {kept.timer!r} is null")
    row = F.struct(*[F.col(given).alias(name) for given, name in kept.columns])
    due = F.timestamp_micros(
        F.unix_micros(F.col(kept.timer).cast("timestamp")) + kept.timer_after_us
    )
    return frame.groupBy(*[name for name in _PLACE if name in frame.columns]).agg(
        F.collect_list(row).alias(kept.variable), F.collect_set(due).alias(TIMERS)
    )


def _checked(frame: DataFrame, lasts: Lasts) -> DataFrame:
    start, end = (_micros(F.col(name)) for name in (lasts.start, lasts.end))
    fits = (end - start) >= lasts.least_us
    text = f"columns {lasts.start!r} and {lasts.end!r}: a window is null or is too short"
    if lasts.most_us is not None:
        fits &= (end - start) <= lasts.most_us
        text = f"columns {lasts.start!r} and {lasts.end!r}: a window is null or of another size"
    if lasts.step_us is not None:
        fits &= F.pmod(start, F.lit(lasts.step_us)) == 0
        text += ", or begins at a time at which none does"
    return _where(frame, lasts.start, fits, text)


def _where(frame: DataFrame, name: str, fits: Column, text: str) -> DataFrame:
    """A frame whose column cannot be read in a row that does not fit."""
    refused = F.raise_error(F.lit(str(unfit(text))))
    whole = F.when(F.coalesce(fits, F.lit(False)), F.col(name)).otherwise(refused)
    return frame.withColumn(name, whole)


def _micros(column: Column) -> Column:
    return F.unix_micros(column.cast("timestamp"))
