"""The figures of all queries of a session, as metrics: counters that go on over restarts of a
query, and gauges that end with its run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from keyrange.observing.model.metric_table import (
    FAILURES,
    FINISHED_AT,
    OF_PLAN,
    OF_QUERY,
    OF_RUN,
    OF_SOURCE,
    PARTITION_LAG,
    PARTITION_LOST,
    RUNNING,
    Metric,
    MetricKind,
)
from keyrange.observing.model.query_progress import QueryProgress, SourceProgress

# Queries that have ended and are still counted; of more, those that ended first are forgotten.
_ENDED_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class Sample:
    """A figure, with a value for each of its metric's labels."""

    metric: Metric
    labels: tuple[str, ...]
    value: float


_Series = dict[tuple[Metric, tuple[str, ...]], float]


@dataclass(slots=True)
class _Query:
    run_id: str = ""
    running: bool = True
    batch_id: int = -1
    counts: _Series = field(default_factory=dict)
    gauges: _Series = field(default_factory=dict)
    # The last plan that was counted, and the sums of the run, by source.
    plans: dict[int, float] = field(default_factory=dict)
    sums: _Series = field(default_factory=dict)

    def add(self, metric: Metric, labels: tuple[str, ...], value: float) -> None:
        key = metric, labels
        self.counts[key] = self.counts.get(key, 0.0) + value


class QueryMetrics:
    """The figures of all queries that were seen. Not for several threads at once.

    `partitions_max` says of how many partitions of a source the lag has a figure of its own: the
    first ones by topic and number, so that they are the same ones at all times.
    """

    def __init__(self, partitions_max: int = 0) -> None:
        self._partitions_max = partitions_max
        self._queries: dict[str, _Query] = {}

    def observe(self, progress: QueryProgress, now_s: float) -> None:
        """Take in a batch that was done at `now_s`, in seconds since 1970."""
        # The youngest is last.
        query = self._queries.pop(progress.label, None) or _Query()
        self._queries[progress.label] = query
        if query.run_id != progress.run_id:
            query.run_id, query.batch_id = progress.run_id, -1
            query.plans, query.sums = {}, {}
        query.running = True
        labels = (progress.label,)
        query.gauges = {(FINISHED_AT, labels): now_s}
        # Told twice, a batch is counted once.
        is_new = progress.batch_id > query.batch_id
        query.batch_id = max(progress.batch_id, query.batch_id)
        for metric, of_query in OF_QUERY:
            value = of_query(progress)
            if metric.kind is MetricKind.GAUGE and value is not None:
                query.gauges[metric, labels] = value
            elif value is not None and is_new:
                query.add(metric, labels, value)
        for source in progress.sources:
            self._observe_source(query, source, (progress.label, str(source.index)), is_new)

    def _observe_source(
        self, query: _Query, source: SourceProgress, labels: tuple[str, ...], is_new: bool
    ) -> None:
        for metric, read in OF_SOURCE:
            value = read(source)
            if value is not None:
                query.gauges[metric, labels] = value
        plan = source.number("plan", "number")
        if plan is not None and plan != query.plans.get(source.index):
            query.plans[source.index] = plan
            for metric, read in OF_PLAN:
                query.add(metric, labels, read(source) or 0.0)
        for metric, read in OF_RUN:
            told = read(source)
            if told is not None:
                query.add(metric, labels, max(told - query.sums.get((metric, labels), 0.0), 0.0))
                query.sums[metric, labels] = told
        known = sorted(source.behind)[: self._partitions_max]
        for partition in known:
            where = (*labels, partition.topic, str(partition.partition))
            query.gauges[PARTITION_LAG, where] = source.behind[partition]
        # One that is gone, which loses most, lags behind nothing.
        gone = sorted({each.partition for each in source.lost} - source.behind.keys())
        for partition in [*known, *gone[: self._partitions_max]] if is_new else ():
            where = (*labels, partition.topic, str(partition.partition))
            lost = sum(each.span.size for each in source.lost if each.partition == partition)
            if lost:
                query.add(PARTITION_LOST, where, lost)

    def end(self, label: str, run_id: str, failed: bool) -> None:
        """A run has ended. Its gauges go: what they said is no longer so. Another run of the query
        may have begun before that is told; and one that failed may have done no batch at all."""
        query = self._queries.pop(label, None)
        if query is None:
            if not failed:
                return
            query = _Query(running=False)
        self._queries[label] = query
        if failed:
            query.add(FAILURES, (label,), 1)
        if query.run_id == run_id:
            query.running, query.gauges = False, {}
        ended = [name for name, each in self._queries.items() if not each.running]
        for name in ended[:-_ENDED_MAX]:
            del self._queries[name]

    def samples(self) -> Iterator[Sample]:
        """All figures as they are, those of a query together."""
        for label, query in self._queries.items():
            yield Sample(RUNNING, (label,), float(query.running))
            yield from (Sample(metric, of, at) for (metric, of), at in query.gauges.items())
            if (FAILURES, (label,)) not in query.counts:
                # A rate of something that was never there has no first rise.
                yield Sample(FAILURES, (label,), 0.0)
            yield from (Sample(metric, of, at) for (metric, of), at in query.counts.items())
