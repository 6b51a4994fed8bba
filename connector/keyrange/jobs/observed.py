"""The counts of a job's batches, as Spark observes them: its own `numInputRows` counts the few rows
that tasks hand over."""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql import Column
from pyspark.sql import functions as F

from keyrange.keyed_state.model.figures import OBSERVED_PREFIX
from keyrange.work.outcome_rows import HIDDEN, HIDDEN_TYPE


def observed_columns(keeps_state: bool) -> Iterator[Column]:
    done, file = F.col(f"{HIDDEN}.done"), F.col(f"{HIDDEN}.file")
    yield F.sum(done.records).alias("records")
    yield F.sum(file.rows).alias("rows")
    yield F.count(file).alias("files")
    yield F.sum(file.size_bytes).alias("bytes")
    if keeps_state:
        kept = F.col(f"{HIDDEN}.state_work")
        for name in HIDDEN_TYPE.field("state_work").type.names:
            yield F.sum(kept[name]).alias(f"{OBSERVED_PREFIX}{name}")
