"""A running count and the last offset of each key, in each way that Spark and keyrange have of
keeping state: what group `state` compares."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

import keyrange

COUNTED = "key binary, n long, at long"
STATE = {"seen": keyrange.ValueState("n long, at long")}
_SEEN = "n long, at long"


def count_record(record: Any, state: Any) -> None:
    n, _ = state.seen.get(default=(0, 0))
    state.seen.update((n + 1, record.offset))


def count_batch(records: pa.RecordBatch, groups: pa.Array, state: pa.RecordBatch) -> Any:
    seen = state.column("seen")
    numbers = groups.to_numpy()
    before = pc.fill_null(pc.struct_field(seen, "n"), 0).to_numpy()
    n = before + np.bincount(numbers, minlength=len(before))
    at = np.empty(len(before), np.int64)
    # Offsets ascend, and the last one that is written stays.
    at[numbers] = records.column("offset").to_numpy()
    new = pa.StructArray.from_arrays([pa.array(n), pa.array(at)], ["n", "at"])
    return None, pa.RecordBatch.from_arrays([new], ["seen"])


def by_aggregate(records: DataFrame) -> DataFrame:
    """Spark's own, in the JVM."""
    return records.groupBy("key").agg(F.count("*").alias("n"), F.max("offset").alias("at"))


def by_group_state(records: DataFrame) -> DataFrame:
    grouped = records.select("key", "offset").groupBy("key")
    return grouped.applyInPandasWithState(
        _count_group, COUNTED, _SEEN, "update", GroupStateTimeout.NoTimeout
    )


def _count_group(
    key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: GroupState
) -> Iterator[pd.DataFrame]:
    n, at = state.get if state.exists else (0, 0)
    for frame in frames:
        n, at = n + len(frame), int(frame["offset"].max())
    state.update((n, at))
    yield pd.DataFrame({"key": [key[0]], "n": [n], "at": [at]})


def by_transform(records: DataFrame) -> DataFrame:
    grouped = records.select("key", "offset").groupBy("key")
    return grouped.transformWithStateInPandas(_Counter(), COUNTED, "Update", "None")


class _Counter(StatefulProcessor):
    def init(self, handle: StatefulProcessorHandle) -> None:
        self._seen = handle.getValueState("seen", _SEEN)

    def handleInputRows(
        self,
        key: Any,
        rows: Iterator[pd.DataFrame],
        timerValues: Any,  # noqa: ARG002
    ) -> Iterator[pd.DataFrame]:
        n, at = self._seen.get() if self._seen.exists() else (0, 0)
        for frame in rows:
            n, at = n + len(frame), int(frame["offset"].max())
        self._seen.update((n, at))
        yield pd.DataFrame({"key": [key[0]], "n": [n], "at": [at]})

    def close(self) -> None:
        return
