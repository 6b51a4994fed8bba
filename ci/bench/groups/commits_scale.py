"""Group `commits_scale`: what many key ranges cost the driver of individual commits.

A batch of 10,000 partitions in 4 key ranges each: plan, verdict and commit, where all of
them have new records and where one in a hundred has. A thousand records fail in each batch and come
again in the next one. The planning process of 10,000 partitions in 16 key ranges is a process of
its own, which opens the table and plans a batch with all its tasks.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

from bench.figures import Figure, at_most, from_runs
from bench.groups.scale import task_maker
from bench.registry import Bench, Group
from keyrange.individual_commits.batch_deliveries import plan_batch_deliveries, spans_of
from keyrange.individual_commits.model.commit import Commit, CommitCounts, CommitKind
from keyrange.individual_commits.model.verdict_columns import PartitionVerdict, apply_verdicts
from keyrange.individual_commits.table.commit_table import DeltaCommitTable, open_commit_table
from keyrange.model.checkpoint import Checkpoint, CommitMark
from keyrange.model.commit_settings import RedeliveryPolicy
from keyrange.model.offsets import TopicPartition
from keyrange.options import SourceOptions, parse_options
from keyrange.options.commits import CommitOptions
from keyrange.source.planning import Deliveries
from keyrange.source.tasks import TaskPlans
from keyrange.work.model.outcome import Cause, RecordOutcome

_SOURCE, _TOPIC = "bench", "scale"
_NOW_MS = 1_760_000_000_000
_RECORDS = 1_000
_FAILED = 1_000
_POLICY = RedeliveryPolicy(deliveries_max=1_000, backoff_ms=0)
_GIVEN = {"kafka.bootstrap.servers": "127.0.0.1:9", "subscribe": _TOPIC, "splitBy": "keyRange"}
_PLANNING = """
import re, sys
from bench.groups.commits_scale import Query
query = Query(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
tasks = query.tasks()
# Not ru_maxrss, which begins with what the process had before it was another program.
peak_kb = re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]
print(int(peak_kb) / 1024, len(tasks))
"""


def run(bench: Bench) -> Iterator[Figure]:
    partitions = bench.pick(full=10_000, quick=10_000, tiny=200)
    path = str(bench.directory / "table")
    query = Query(path, partitions, 4)
    query.batch(1)
    name = "commits.scale.10000x4"
    for label, share in {"": 1, ".hundredth": 100}.items():
        found: dict[str, list[float]] = {"plan": [], "verdict": [], "commit": []}
        for _ in range(bench.runs):
            for step, seconds in query.batch(share).items():
                found[step].append(seconds * 1e3)
        for step, values in found.items():
            yield from_runs(f"{name}{label}.{step}.ms", values, "ms")
        totals = [sum(each) for each in zip(*found.values(), strict=True)]
        yield from_runs(f"{name}{label}.ms", totals, "ms")
        bench.progress(f"{partitions:,} partitions, one in {share} of them")
    yield from_runs("commits.scale.open.10000x4.seconds", query.opened(bench.runs), "s")
    other = str(bench.directory / "planned")
    Query(other, partitions, 16).batch(1)
    sizes = [_planning_mb(other, partitions, 16) for _ in range(bench.runs)]
    yield from_runs("commits.scale.planning.10000x16.rss_mb", sizes, "MB")


class Query:
    """A query of which all is in the checkpoint and in the table."""

    def __init__(self, path: str, partitions: int, ranges: int) -> None:
        self._path = path
        self._names = [TopicPartition(_TOPIC, number) for number in range(partitions)]
        self._ranges = ranges
        commits = replace(CommitOptions(table=path), individual=True, policy=_POLICY)
        self._options: SourceOptions = replace(parse_options(_GIVEN), commits=commits)
        self._table = self._open()
        positions = dict.fromkeys(self._names, 0) | self._known_positions()
        self._at = Checkpoint(positions, {_TOPIC: "id"}, initial=positions)

    def batch(self, share: int) -> dict[str, float]:
        """The seconds of each step of a batch in which one partition of so many has new records."""
        times = [time.perf_counter()]
        known = self._table.known()
        end = self._end(share)
        deliveries = plan_batch_deliveries(known, self._at, end, self._options)
        times.append(time.perf_counter())
        said = self._failed(self._names[::share])
        judging = time.perf_counter()
        judged = apply_verdicts(deliveries, said, _POLICY, _NOW_MS)
        times.append(times[-1] + time.perf_counter() - judging)
        committing = time.perf_counter()
        touched = deliveries.states.where(deliveries.busy)
        self._table.append(
            Commit(
                known.seq + 1,
                CommitKind.BATCH,
                "bench",
                _SOURCE,
                "query",
                "run",
                known.seq,
                _NOW_MS + known.seq,
                states=judged.states.only(touched),
                counts={each: CommitCounts(done=_RECORDS) for each in touched},
                whole=known.base_is_due,
            )
        )
        times.append(times[-1] + time.perf_counter() - committing)
        self._at = replace(end, initial={})
        steps = zip(times[1:], times[:-1], strict=True)
        return dict(zip(("plan", "verdict", "commit"), (b - a for b, a in steps), strict=True))

    def opened(self, runs: int) -> list[float]:
        """The seconds until a handle of its own knows the state."""
        found = []
        for _ in range(runs):
            table, started = self._open(), time.perf_counter()
            table.known()
            found.append(time.perf_counter() - started)
        return found

    def tasks(self) -> Sequence[object]:
        """The tasks of a batch of all partitions, as the planning process makes them."""
        end, options = self._end(1), self._options
        assert end.commits is not None
        planned = plan_batch_deliveries(self._table.known(), self._at, end, options)
        deliveries = {each: planned[each] for each in planned.states.where(planned.busy)}
        spans = {each: spans_of(each, end.commits, options) for each in deliveries}
        reads, sizes = Deliveries(deliveries, spans, options), dict.fromkeys(self._names, 100.0)
        return TaskPlans().plan(reads, sizes, lambda _: (), task_maker(self._names))

    def _end(self, share: int) -> Checkpoint:
        moved = {each: self._at.positions[each] + _RECORDS for each in self._names[::share]}
        mark = CommitMark(
            _SOURCE, self._table.known().seq, _NOW_MS, dict.fromkeys(self._names, self._ranges)
        )
        return replace(self._at, positions={**self._at.positions, **moved}, commits=mark)

    def _failed(self, names: Sequence[TopicPartition]) -> dict[TopicPartition, PartitionVerdict]:
        """The first records of these partitions fail, a thousand in all or one of each."""
        count = max(_FAILED // len(names), 1)
        return {
            each: PartitionVerdict(
                tuple(
                    RecordOutcome(self._at.positions[each] + at, _hash_of(at), Cause.REJECTED)
                    for at in range(count)
                )
            )
            for each in names[:_FAILED]
        }

    def _known_positions(self) -> dict[TopicPartition, int]:
        states = self._table.known().states
        return dict(zip(states, states.positions.tolist(), strict=True))

    def _open(self) -> DeltaCommitTable:
        return open_commit_table(CommitOptions(table=self._path), _SOURCE)


def _hash_of(at: int) -> int:
    """A place in the hash space, anywhere."""
    return at * 0x9E3779B97F4A7C15 % 2**63


def _planning_mb(path: str, partitions: int, ranges: int) -> float:
    """The memory at its peak of a process that plans."""
    command = [sys.executable, "-c", _PLANNING, path, str(partitions), str(ranges)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    peak_mb, tasks = done.stdout.split()
    if int(tasks) == 0:
        raise RuntimeError("nothing was planned")
    return float(peak_mb)


GROUP = Group(
    order=7,
    run=run,
    targets={
        "commits.scale.10000x4.ms": at_most(400),
        "commits.scale.10000x4.hundredth.ms": at_most(60),
        "commits.scale.open.10000x4.seconds": at_most(1),
        "commits.scale.planning.10000x16.rss_mb": at_most(400),
    },
    own_broker=True,
)
