"""What Spark reports of a finished micro-batch, read: who, how much, how far behind, and what the
planning process has added of itself.

Python sources have no place for metrics in a progress. So keyrange's stand in `latestOffset`, under
its reserved key, in parts: `plan`, `commits`, `state`, `members`, `volumes`, `mirror` and `losses`.
They are as of the moment at which the batch was planned; those of `plan`, and the portions of
`members`, are of the batch before.

The tasks of a `keyrange.job` hand Spark a few rows for many records. Spark's `numInputRows` counts
these rows, so the counts that the job observes stand in its place.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Final, TypeGuard

from keyrange.individual_commits.model.batch_results import BatchResult
from keyrange.keyed_state.model.figures import OBSERVED_PREFIX, StateFigures
from keyrange.model.checkpoint import RESERVED, read_positions
from keyrange.model.lost_offset_counts import Lost, read_lost
from keyrange.model.offsets import TopicPartition
from keyrange.observing.model.lag import (
    Lag,
    behind_by_partition,
    offsets_behind_latest,
    total_behind,
)
from keyrange.observing.model.state_words import bytes_text, state_words
from keyrange.storage.model.merged_rows import Merged
from keyrange.text.escaping import one_line

# What is larger counts nothing that there is.
_FIGURE_MAX: Final = 2**63
_LOST_SHOWN: Final = 3
# Who reads the portions of a batch that is bound.
_READERS: Final = ("own", "foreign", "unowned", "standby")
# What a job calls the counts that it has Spark observe.
_OBSERVED: Final = "keyrange"
# In how many partitions something holds timers back.
_TIMERS_WAIT: Final = {
    "timers_await_records": "timersAwaitRecords",
    "timers_await_retry": "timersAwaitRetry",
}


def is_figure(value: object) -> TypeGuard[int | float]:
    """Whether it is a number that can be counted with: neither endless nor NaN."""
    # NaN is not below anything.
    return isinstance(value, int | float) and abs(value) <= _FIGURE_MAX


@dataclass(frozen=True, slots=True)
class SourceProgress:
    """A keyrange source of a query; `index` is its place among all sources of the query.

    `lag` is the read lag and `commit_lag` the commit lag, None where positions or ends are not
    known (`keyrange.observing.model.lag` says what they are); `behind` is the read lag by
    partition, in offsets, and `ends` is where partitions end. `parts` holds what the planning
    process says, by part and name.
    """

    index: int
    records: int
    lag: Lag | None
    commit_lag: Lag | None
    behind: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]
    parts: Mapping[str, Mapping[str, Any]]

    def number(self, part: str, name: str) -> float | None:
        """A figure of a part; None where it is not told, or is none."""
        value = self.parts.get(part, {}).get(name)
        return float(value) if is_figure(value) else None

    @property
    def lost(self) -> tuple[Lost, ...]:
        """What was found lost since the batch before, with failOnDataLoss=false."""
        return read_lost(self.parts.get("losses", {}).get("found"))

    @property
    def bound_share(self) -> float | None:
        """The part of the portions of the batch before that their owners read; None unbound."""
        counts = [self.number("members", f"{who}Portions") for who in _READERS]
        own, *others = [each or 0.0 for each in counts]
        total = own + sum(others)
        return own / total if total else None


@dataclass(frozen=True, slots=True)
class WorkDone:
    """What the tasks of a job did in a batch: `records` that are done, and the rows, files and
    bytes of files that they wrote. `state` is None of a job that keeps none."""

    records: int
    rows: int
    files: int
    bytes: int
    state: StateFigures | None = None


@dataclass(frozen=True, slots=True)
class QueryProgress:
    """A finished batch. `name` is "" where the query has none, `began` is when its trigger began,
    in ISO 8601; `records` are those of all its sources, `sources` only keyrange's. `work` is None
    of a query that is no job, and of a batch that was worked on before: it reads no record.
    `result` is what became of the records of a query that commits individually, None where that is
    not known here: pending records are those before the batch then. `merged`: the rows of its
    table with keys that the batch changed, None where none were merged here."""

    query_id: str
    run_id: str
    name: str
    batch_id: int
    began: str
    duration_ms: int
    records: int
    sources: tuple[SourceProgress, ...]
    work: WorkDone | None = None
    result: BatchResult | None = None
    merged: Merged | None = None

    @property
    def label(self) -> str:
        """What the query is called: its name, or its id."""
        return self.name or self.query_id

    @property
    def records_per_s(self) -> float:
        return self.records / max(self.duration_ms, 1) * 1000

    @property
    def lag(self) -> int | None:
        """The read lag of all partitions, in offsets; None where no source knows."""
        return _total(each.lag for each in self.sources)

    @property
    def commit_lag(self) -> int | None:
        """The commit lag of all partitions, in offsets; None where no source knows."""
        return _total(each.commit_lag for each in self.sources)

    @property
    def lost(self) -> tuple[Lost, ...]:
        """What its sources found lost since the batch before."""
        return tuple(each for source in self.sources for each in source.lost)

    def sum_of(self, part: str, name: str) -> float | None:
        """A figure summed up over the sources that tell it; None where none does."""
        told = [source.number(part, name) for source in self.sources]
        known = [each for each in told if each is not None]
        return sum(known) if known else None

    @property
    def factor(self) -> float | None:
        """The least throttle factor of its sources; None without a volume guard."""
        told = [source.number("volumes", "throttleFactor") for source in self.sources]
        return min((each for each in told if each is not None), default=None)


def _total(lags: Iterable[Lag | None]) -> int | None:
    return total_behind(None if lag is None else lag.total_offsets for lag in lags)


def read_query_progress(progress: Mapping[str, Any]) -> QueryProgress | None:
    """A progress as JSON has it; None of a query that reads nothing with keyrange.

    Raises INVALID_OFFSETS where keyrange's offsets cannot be read, KeyError, TypeError or
    ValueError where it is no progress.
    """
    work = work_done(progress)
    found = (read_source(index, each, work) for index, each in enumerate(progress["sources"]))
    sources = tuple(each for each in found if each is not None)
    if not sources:
        return None
    return QueryProgress(
        query_id=str(progress["id"]),
        run_id=str(progress["runId"]),
        name=str(progress.get("name") or ""),
        batch_id=_count(progress["batchId"]),
        began=str(progress.get("timestamp") or ""),
        duration_ms=_count(progress.get("batchDuration")),
        records=_count(progress.get("numInputRows")) if work is None else work.records,
        sources=sources,
        work=work,
    )


def work_done(progress: Mapping[str, Any]) -> WorkDone | None:
    """What the tasks of a job did, which reads one source; None where they did nothing.

    Raises ValueError where it cannot be."""
    metrics = progress.get("observedMetrics")
    found = metrics.get(_OBSERVED) if isinstance(metrics, Mapping) else None
    # A query of somebody else may observe something of that name.
    if not isinstance(found, Mapping) or found.keys() - _STATE_COUNTS.keys() != _COUNTS:
        return None
    state = None
    if found.keys() > _COUNTS:
        of_state = {each: _count(found.get(name)) for name, each in _STATE_COUNTS.items()}
        state = StateFigures(**of_state)
    return WorkDone(**{name: _count(found[name]) for name in _COUNTS}, state=state)


_COUNTS: Final = {each.name for each in fields(WorkDone)} - {"state"}
_STATE_COUNTS: Final = {f"{OBSERVED_PREFIX}{each.name}": each.name for each in fields(StateFigures)}


def read_source(
    index: int, source: Mapping[str, Any], work: WorkDone | None = None
) -> SourceProgress | None:
    """A source of a progress; None if neither of its offsets is keyrange's.

    Offsets are JSON, as text or parsed. Raises INVALID_OFFSETS where they cannot be read.
    """
    end, latest = (offset_document(source.get(each)) for each in ("endOffset", "latestOffset"))
    if RESERVED not in end and RESERVED not in latest:
        return None
    consumed, ends, parts = positions_in(end), positions_in(latest), parts_in(latest)
    # What was pending when the batch was planned counts as pending behind it too, and the batch's
    # own new records as done: what became of them is not known yet.
    uncommitted = positions_in(offset_document(parts.get("commits", {}).get("committed")))
    committed = {p: uncommitted.get(p, at) for p, at in consumed.items()}
    return SourceProgress(
        index=index,
        records=_count(source.get("numInputRows")) if work is None else work.records,
        lag=offsets_behind_latest(consumed, ends),
        commit_lag=offsets_behind_latest(committed, ends),
        behind=behind_by_partition(consumed, ends),
        ends=ends,
        parts=parts,
    )


def parts_in(latest: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """What the planning process says, by part and name."""
    reserved = latest.get(RESERVED)
    metrics = reserved.get("metrics") if isinstance(reserved, dict) else None
    found = metrics if isinstance(metrics, dict) else {}
    return {name: part for name, part in found.items() if isinstance(part, dict)}


def offset_document(offset: Any) -> dict[str, Any]:
    """An offset's JSON object; empty for what other sources write, and where there is none."""
    if isinstance(offset, str):
        try:
            offset = json.loads(offset)
        except (RecursionError, ValueError):
            return {}
    return offset if isinstance(offset, dict) else {}


def positions_in(document: Mapping[str, Any]) -> dict[TopicPartition, int]:
    """Those of an offset. Raises INVALID_OFFSETS."""
    return read_positions({k: v for k, v in document.items() if k != RESERVED}, least=0)


def _count(value: Any) -> int:
    """A whole number; 0 for None."""
    if value is None:
        return 0
    if not is_figure(value) or value < 0:
        raise ValueError(f"{str(value)[:20]} is no number of things")
    return int(value)


def batch_line(progress: QueryProgress) -> str:
    """One line for one batch, for people."""
    lag, behind = (
        "not known" if each is None else f"{each:,}" for each in (progress.lag, progress.commit_lag)
    )
    # With pending records it is known as of when the batch was planned.
    moment = " before it" if progress.sum_of("commits", "pending") else ""
    words = [
        f"batch {progress.batch_id}: {progress.records:,} records in "
        f"{progress.duration_ms / 1000:.2f} s ({progress.records_per_s:,.0f}/s), read lag {lag}, "
        f"commit lag {behind}{moment}"
    ]
    if work := progress.work:
        words.append(f"wrote {work.rows:,} rows, {work.files:,} files, {bytes_text(work.bytes)}")
        words += state_words(work.state)
    words += [str(progress.merged)] if progress.merged else []
    if lost := progress.lost:
        words.append(f"lost {lost_text(lost)}")
    words += _pending_words(progress)
    if held := progress.sum_of("commits", "partitionsHeld"):
        words.append(f"{held:,.0f} partitions take in less")
    if progress.factor is not None:
        words.append(f"throttle factor {progress.factor:g}")
    if before := _before(progress):
        words.append(f"the batch before: {before}")
    if progress.name:
        words.append(f"query {one_line(progress.name)}")
    return ", ".join(words)


def with_result(progress: QueryProgress, result: BatchResult) -> QueryProgress:
    """With what became of the records: what was pending when the batch was planned is not the
    number after it, and where nothing is, the commit lag is the read lag."""
    sources = tuple(_with_pending(each, result.pending) for each in progress.sources)
    return replace(progress, sources=sources, result=result)


def _with_pending(source: SourceProgress, pending: int) -> SourceProgress:
    commits = source.parts.get("commits")
    if commits is None:
        return source
    commit_lag = source.commit_lag if pending else source.lag
    parts = {**source.parts, "commits": {**commits, "pending": pending}}
    return replace(source, parts=parts, commit_lag=commit_lag)


def _pending_words(progress: QueryProgress) -> list[str]:
    pending, result = progress.sum_of("commits", "pending"), progress.result
    if result is None:
        return [f"{pending:,.0f} pending before it"] if pending else []
    words = [f"{result.failed:,} failed"] if result.failed else []
    words += [f"{result.dead:,} dead"] if result.dead else []
    return words + ([f"{result.pending:,} pending"] if result.pending else [])


def lost_text(lost: Sequence[Lost]) -> str:
    """How many offsets, and the first few intervals."""
    more = f" and {len(lost) - _LOST_SHOWN} more" if len(lost) > _LOST_SHOWN else ""
    shown = ", ".join(map(str, lost[:_LOST_SHOWN]))
    return f"{sum(each.span.size for each in lost):,} offsets: {one_line(shown)}{more}"


def _before(progress: QueryProgress) -> str:
    """What is known of the batch before, once the next one is there."""
    words = []
    if read := progress.sum_of("plan", "bytes"):
        words.append(bytes_text(read))
        fetched = progress.sum_of("plan", "fetchedBytes") or 0.0
        if ranges := progress.sum_of("plan", "keyRanges"):
            words.append(f"by {ranges:,.0f} key ranges")
        words.append(f"sent {fetched / read:.2f} times")
    shares = [each.bound_share for each in progress.sources if each.bound_share is not None]
    if shares:
        words.append(f"{min(shares):.0%} read by owners")
    return " ".join(words)


def batch_fields(progress: QueryProgress) -> dict[str, Any]:
    """The same as a document, for programs; None for what is not known."""
    work, read = progress.work, progress.sum_of("plan", "bytes")
    fetched = progress.sum_of("plan", "fetchedBytes")
    shares = [each.bound_share for each in progress.sources if each.bound_share is not None]
    return {
        "query": progress.label,
        "query_id": progress.query_id,
        "run_id": progress.run_id,
        "batch_id": progress.batch_id,
        "records": progress.records,
        "duration_ms": progress.duration_ms,
        "records_per_s": round(progress.records_per_s, 1),
        "written": work and {name: getattr(work, name) for name in sorted(_COUNTS - {"records"})},
        "merged": progress.merged and asdict(progress.merged),
        "state": state_figures(progress),
        "read_lag": progress.lag,
        "commit_lag": progress.commit_lag,
        "pending": progress.sum_of("commits", "pending"),
        "failed": progress.result.failed if progress.result else None,
        "dead": progress.result.dead if progress.result else None,
        "held": progress.sum_of("commits", "partitionsHeld"),
        "throttle_factor": progress.factor,
        "lost": [
            {
                "topic": each.partition.topic,
                "partition": each.partition.partition,
                "from_offset": each.span.from_offset,
                "until_offset": each.span.until_offset,
            }
            for each in progress.lost
        ],
        "before": {
            "bytes": read,
            "key_ranges": progress.sum_of("plan", "keyRanges"),
            "tasks": progress.sum_of("plan", "tasks"),
            "amplification": round(fetched / read, 3) if read and fetched is not None else None,
            "bound_share": round(min(shares), 4) if shares else None,
        },
    }


def state_figures(progress: QueryProgress) -> dict[str, Any] | None:
    """How much state of keys there is, and what the batch did with it, None for what is not known:
    a batch that was worked on before does nothing. None of a query that keeps none."""
    sizes = {name: progress.sum_of("state", name) for name in ("rows", "bytes", "runs")}
    lag = progress.sum_of("state", "watermarkLagSeconds")
    done = progress.work.state if progress.work is not None else None
    if done is None and sizes["bytes"] is None:
        return None
    work = {each.name: getattr(done, each.name, None) for each in fields(StateFigures)}
    waits = {name: progress.sum_of("state", told) for name, told in _TIMERS_WAIT.items()}
    return {**sizes, "watermark_lag_seconds": lag, **waits, **work}
