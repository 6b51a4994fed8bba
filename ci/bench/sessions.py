"""Windows of the records of a key, in each way that Spark and keyrange have of them: what group
`windows` compares.

Events come out of order by less than the delay of the watermark, so that no side has late ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

import keyrange
from bench import queries
from bench.queries import PARTITIONS, bounds, by_time, job, json_of, spark_side

BEGAN_MS: Final = int(datetime(2024, 5, 1, tzinfo=UTC).timestamp() * 1000)
MINUTE_MS: Final = 60_000
GAP: Final = "30 minutes"
SIZE: Final = "1 hour"
DELAY: Final = "10 minutes"
_DISORDER_MS: Final = 5 * MINUTE_MS
# Of all records, however many there are. A key has one each 20 minutes.
HOURS: Final = 10
RECORDS_OF_KEY: Final = HOURS * 3
_SCHEMA: Final = "at long, amount long"
_VALUE_BYTES: Final = 200
TYPED: Final = {"keyFormat": "string", "valueFormat": "json", "valueSchema": _SCHEMA}
TIME: Final = keyrange.EventTime("at", delay=DELAY)
COLUMNS: Final = ("key", "window_start", "window_end", "n", "total", "most")


def events(spark: SparkSession, rows: int, keys: int) -> DataFrame:
    """Records of 200 bytes with a time in their value, each key in one partition."""
    step_ms = HOURS * 60 * MINUTE_MS / rows
    at = f"{BEGAN_MS} + CAST(id * {step_ms} AS LONG) - pmod(hash(id, 7), {_DISORDER_MS})"
    start = f'concat(\'{{"at":\', {at}, \',"amount":\', pmod(hash(id, 3), 10000), \',"note":"\')'
    # One task writes them, in the order of time.
    return spark.range(0, rows, 1, 1).selectExpr(
        f"concat('key-', lpad(pmod(hash(id), {keys}), 10, '0')) AS key",
        f"concat(rpad({start}, {_VALUE_BYTES - 2}, 'late aircraft, '), '\"}}') AS value",
        f"CAST(pmod(pmod(hash(id), {keys}), {PARTITIONS}) AS INT) AS partition",
    )


def value_at(at_ms: int) -> str:
    return f'{{"at":{at_ms},"amount":0}}'


def last() -> str:
    return value_at(BEGAN_MS + 1000 * HOURS * 60 * MINUTE_MS)


def _aggregates(windows: keyrange.windows.WindowedAggregation) -> queries.Side:
    made = windows.count(n="*").sum(total="amount").max(most="amount")
    return job(made, options=TYPED, time=TIME)


def by_windows(kind: str) -> queries.Side:
    """keyrange's."""
    windows = {
        "session": keyrange.windows.session("30m"),
        "tumbling": keyrange.windows.tumbling("1h"),
    }
    return _aggregates(windows[kind])


def by_spark() -> queries.Side:
    """Spark's own sessions, in the JVM."""

    def rows(records: DataFrame) -> DataFrame:
        timed = by_time(json_of(records, _SCHEMA), DELAY)
        of_key = timed.groupBy("key", F.session_window("at", GAP).alias("window"))
        found = of_key.agg(
            F.count("*").alias("n"), F.sum("amount").alias("total"), F.max("amount").alias("most")
        )
        return found.select("key", *bounds(), "n", "total", "most")

    return spark_side(rows)


def by_transform() -> queries.Side:
    """Sessions in Python with timers, as Spark has them."""

    def rows(records: DataFrame) -> DataFrame:
        timed = by_time(json_of(records, _SCHEMA), DELAY)
        schema = "key string, window_start timestamp, window_end timestamp, n long, total long, "
        return timed.groupBy("key").transformWithStateInPandas(
            _Sessions(), f"{schema}most long", "Append", "EventTime"
        )

    return spark_side(rows)


class _Sessions(StatefulProcessor):
    """The open sessions of a key in a list, in order, and a timer where each ends."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        state = "start long, end long, n long, total long, most long"
        self._open = handle.getListState("open", state)

    def handleInputRows(
        self,
        key: Any,  # noqa: ARG002
        rows: Iterator[pd.DataFrame],
        timerValues: Any,  # noqa: ARG002
    ) -> Iterator[pd.DataFrame]:
        before = sorted(self._open.get()) if self._open.exists() else []
        new = []
        for frame in rows:
            at = frame["at"].astype("int64") // 1_000_000
            for at_ms, amount in zip(at, frame["amount"], strict=True):
                new.append((int(at_ms), int(at_ms) + 30 * MINUTE_MS, 1, int(amount), int(amount)))
        found: list[tuple[int, ...]] = []
        for each in sorted([*map(tuple, before), *new]):
            if found and each[0] <= found[-1][1]:
                start, end, n, total, most = found[-1]
                joined = (n + each[2], total + each[3], max(most, each[4]))
                found[-1] = (start, max(end, each[1]), *joined)
            else:
                found.append(each)
        self._open.put(found)
        wanted = {each[1] + 1 for each in found}
        had = {each[1] + 1 for each in before}
        for at_ms in had - wanted:
            self._handle.deleteTimer(at_ms)
        for at_ms in wanted - had:
            self._handle.registerTimer(at_ms)
        yield from ()

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[pd.DataFrame]:
        del timerValues
        end = expiredTimerInfo.getExpiryTimeInMs() - 1
        sessions = [tuple(each) for each in self._open.get()]
        left = [each for each in sessions if each[1] != end]
        if left:
            self._open.put(left)
        else:
            self._open.clear()
        [(start, _, n, total, most)] = [each for each in sessions if each[1] == end]
        times = [pd.Timestamp(each, unit="ms") for each in (start, end)]
        yield pd.DataFrame([[key[0], *times, n, total, most]], columns=list(COLUMNS))

    def close(self) -> None:
        return


def stateless() -> queries.Side:
    """The same records, read in the same way, for a function that writes nothing and keeps
    nothing."""
    schema = "key string, window_start timestamp, window_end timestamp, n long, total long"
    return job(no_rows, f"{schema}, most long", "arrow", options=TYPED)


def no_row(_record: Any) -> None:
    return None


def no_rows(records: pa.RecordBatch) -> pa.RecordBatch:
    """The columns that windows would use are looked at, and none of the records is kept."""
    value = records.column("value")
    found = value.field("at"), value.field("amount")
    return pa.RecordBatch.from_arrays(
        [
            records.column("key").slice(0, 0),
            *(pa.array([], pa.timestamp("us", "UTC")) for _ in range(2)),
            *(each.slice(0, 0) for each in (found[1], found[1], found[1])),
        ],
        names=list(COLUMNS),
    )
