"""A query that commits individually, without Spark, Kafka and Delta: planner, worker and committer
as they are to go together, over a log in memory, with a crash wherever one may come.

Durable is what Spark's checkpoint, the commit table, the verdicts and the two sinks hold; all else
is lost with a crash.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from random import Random

import pytest

from keyrange.errors import KeyrangeError
from keyrange.individual_commits.batch_deliveries import plan_batch_deliveries
from keyrange.individual_commits.model.commit import Commit, CommitKind, Snapshot
from keyrange.individual_commits.model.delivery_splits import PartitionDelivery
from keyrange.individual_commits.model.partition_progress import PartitionState
from keyrange.individual_commits.model.state_before_batch import state_of
from keyrange.individual_commits.model.verdict_columns import PartitionVerdict
from keyrange.model.checkpoint import NEVER_DUE, Checkpoint, CommitMark
from keyrange.model.commit_settings import DeliveryLimits, RedeliveryPolicy
from keyrange.model.offsets import TopicPartition
from keyrange.options import parse_options
from keyrange.ranges.model.plan_check import Area
from keyrange.work.model.outcome import Cause, RecordOutcome
from tables.commit_model import apply_verdict
from tables.commit_tables import MemoryCommitTable

SOURCE = "s"
# Where a crash may come, in the order of a batch.
STEPS = ("planned", "fenced", "worked", "verdict", "sink", "dead letters", "committed")


class Crash(Exception):
    """The driver is gone, and with it what was not durable."""


@dataclass(frozen=True)
class Record:
    """A record; records of a null key have no order to keep."""

    partition: TopicPartition
    offset: int
    key_hash: int
    key: int | None
    poisoned: bool


@dataclass(frozen=True)
class Verdict:
    """What is stored of a batch, once: its output and what is not done."""

    output: tuple[Record, ...]
    said: Mapping[TopicPartition, PartitionVerdict]


@dataclass
class World:
    """What is durable, and the chances that things go wrong."""

    random: Random
    keeps_order: bool
    pending_max: int
    lag_max: int | None
    fails: float = 0.3
    crashes: float = 0.05
    now_ms: int = 1_000
    log: dict[TopicPartition, dict[int, Record]] = field(default_factory=dict)
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    begins: dict[TopicPartition, int] = field(default_factory=dict)
    offsets: list[Checkpoint] = field(default_factory=list)
    finished: int = -1
    handed_out: dict[int, set[tuple[TopicPartition, int]]] = field(default_factory=dict)
    verdicts: dict[int, Verdict] = field(default_factory=dict)
    sink: dict[int, tuple[Record, ...]] = field(default_factory=dict)
    dead: dict[int, tuple[tuple[TopicPartition, int], ...]] = field(default_factory=dict)
    store: list[Commit] = field(default_factory=list)
    crashed: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.policy = RedeliveryPolicy(3, backoff_ms=20, backoff_max_ms=50)
        options = parse_options({"subscribe": "t", "kafka.bootstrap.servers": "localhost:9092"})
        commits = replace(
            options.commits,
            individual=True,
            keeps_order=self.keeps_order,
            policy=self.policy,
            limits=DeliveryLimits(self.pending_max, self.lag_max),
        )
        self.options = replace(options, commits=commits)
        self.table = MemoryCommitTable(SOURCE, self.store)
        self.key_hashes = [self.random.getrandbits(63) for _ in range(6)] + [0, 2**63 - 1]

    def may_crash(self, step: str) -> None:
        if self.random.random() < self.crashes:
            self.crashed.append(step)
            raise Crash(step)

    def settled(self, before: int) -> set[tuple[TopicPartition, int]]:
        """What batches before this one have brought to the sink or the dead letters."""
        done = {
            (each.partition, each.offset)
            for batch, rows in self.sink.items()
            if batch < before
            for each in rows
        }
        for batch, given_up in self.dead.items():
            if batch < before:
                done.update(given_up)
        return done

    def produce(self) -> None:
        """Some records more, with gaps between them; now and then a partition more."""
        if len(self.log) < 3 and (not self.log or self.random.random() < 0.02):
            partition = TopicPartition("t", len(self.log))
            begin = self.random.choice([0, 7, 2**31 - 5, 2**53 - 5])
            self.begins[partition] = self.ends[partition] = begin
            self.log[partition] = {}
        for partition, log in self.log.items():
            for _ in range(self.random.choice([0, 0, 1, 4, 12])):
                at = self.ends[partition] + self.random.choice([0, 0, 0, 1, 5])
                null = self.random.random() < 0.1
                key_hash = self.random.choice([0, self.random.getrandbits(63)])
                key_hash = key_hash if null else self.random.choice(self.key_hashes)
                key = None if null else key_hash
                log[at] = Record(partition, at, key_hash, key, self.random.random() < 0.05)
                self.ends[partition] = at + 1


class Driver:
    """One run of the query: it plans, works and commits until it crashes."""

    def __init__(self, world: World, run_id: str) -> None:
        self.world = world
        self.run_id = run_id
        self.fenced = False

    def step(self) -> bool:
        """Finish the batch that is planned, or plan the next one and finish that; False where there
        is nothing to do."""
        world = self.world
        batch = world.finished + 1
        if len(world.offsets) == batch:
            end = self.plan()
            if end is None:
                return False
            world.offsets.append(end)
        end = world.offsets[batch]
        world.may_crash("planned")
        self.finish(batch, world.offsets[batch - 1] if batch else _fresh(world), end)
        world.finished = batch
        return True

    def plan(self) -> Checkpoint | None:
        """Where the next batch ends; None where it would hand out nothing."""
        world, known = self.world, self.world.table.known()
        start = world.offsets[-1] if world.offsets else _fresh(world)
        limits = world.options.commits.limits
        positions: dict[TopicPartition, int] = {}
        for partition, at in world.ends.items():
            state = known.states.get(partition)
            stood = state.position if state else world.begins[partition]
            held = state is not None and state.position - state.scanned > (limits.lag_max or 10**9)
            positions[partition] = stood if held else world.random.randint(stood, at)
        due = min(known.states.due_ms(world.keeps_order).tolist(), default=None)
        mark = CommitMark(
            SOURCE,
            known.seq,
            world.now_ms if due is not None and due <= world.now_ms else NEVER_DUE,
            {p: world.random.randint(1, 5) for p in positions if world.random.random() < 0.8},
        )
        initial = {p: world.begins[p] for p in positions if p not in start.positions or start.fresh}
        end = Checkpoint(positions, {"t": "id"}, initial=initial, commits=mark)
        moved = positions != dict(start.positions)
        deliveries = plan_batch_deliveries(known, start, end, world.options)
        return None if deliveries.is_empty and not moved else end

    def finish(self, batch: int, start: Checkpoint, end: Checkpoint) -> None:
        """What the process does in which foreachBatch runs."""
        world = self.world
        if not self.fenced:
            last = world.table.known()
            world.table.append(self.commit(last, CommitKind.FENCE, -1, {}))
            self.fenced = True
            world.may_crash("fenced")
        assert end.commits is not None
        known = world.table.known(end.commits.seq)
        deliveries = plan_batch_deliveries(known, start, end, world.options)
        self.check_handed_out(batch, deliveries)
        if batch not in world.verdicts:
            verdict = Worker(world, batch).work(deliveries)
            world.may_crash("worked")
            world.verdicts[batch] = verdict
        verdict = world.verdicts[batch]
        world.may_crash("verdict")
        world.sink.setdefault(batch, verdict.output)
        world.may_crash("sink")
        states, given_up = {}, []
        for partition, delivery in deliveries.items():
            state = state_of(known, partition, start, end)
            said = verdict.said.get(partition, PartitionVerdict())
            judged = apply_verdict(state, delivery, said, world.policy, world.now_ms)
            assert judged.state.committed >= state.committed
            states[partition] = judged.state
            given_up += [(partition, pending_record.offset) for pending_record in judged.dead]
        world.dead.setdefault(batch, tuple(given_up))
        world.may_crash("dead letters")
        commit = self.commit(world.table.known(), CommitKind.BATCH, batch, states)
        world.table.append(commit)
        world.may_crash("committed")

    def commit(
        self,
        last: Snapshot,
        kind: CommitKind,
        batch: int,
        states: Mapping[TopicPartition, PartitionState],
    ) -> Commit:
        whole = kind is CommitKind.BATCH and batch % 7 == 0
        return Commit(
            last.seq + 1,
            kind,
            "g",
            SOURCE,
            "q",
            self.run_id,
            batch,
            self.world.now_ms,
            states=states,
            whole=whole,
        )

    def check_handed_out(
        self, batch: int, deliveries: Mapping[TopicPartition, PartitionDelivery]
    ) -> None:
        """Nothing done comes again, and a batch that is planned once more is the same."""
        found: list[tuple[TopicPartition, int]] = []
        for partition, delivery in deliveries.items():
            found += [
                (partition, each.offset) for each in new_records(self.world, partition, delivery)
            ]
            found += [(partition, pending_record.offset) for pending_record in delivery.redelivered]
        assert len(found) == len(set(found))
        assert not set(found) & self.world.settled(batch)
        assert self.world.handed_out.setdefault(batch, set(found)) == set(found)


class Worker:
    """Works through a batch, range by range, each in the order of offsets."""

    def __init__(self, world: World, batch: int) -> None:
        self.world = world
        self.settled = world.settled(batch)

    def work(self, deliveries: Mapping[TopicPartition, PartitionDelivery]) -> Verdict:
        output: list[Record] = []
        said = {}
        for partition, delivery in deliveries.items():
            not_done: list[RecordOutcome] = []
            backs = []
            for cell in delivery.cells:
                done, failed, back = self.cell(partition, delivery, cell)
                output += done
                not_done += failed
                if back is not None:
                    backs.append((cell.span, back))
            said[partition] = PartitionVerdict(tuple(not_done), tuple(backs))
        return Verdict(tuple(output), said)

    def cell(
        self, partition: TopicPartition, delivery: PartitionDelivery, cell: Area
    ) -> tuple[list[Record], list[RecordOutcome], int | None]:
        world = self.world
        again = {h.offset: h for h in delivery.redelivered if cell.span.contains(h.key_hash)}
        records = [world.log[partition][at] for at in again]
        records += [
            r for r in new_records(world, partition, delivery) if cell.span.contains(r.key_hash)
        ]
        budget = world.random.choice([1, 3]) if world.random.random() < world.fails / 4 else 10**9
        done: list[Record] = []
        failed: list[RecordOutcome] = []
        waiting: set[int] = set()
        for number, each in enumerate(records):
            if number >= budget:
                return done, failed, each.offset
            held = each.key_hash in delivery.held or each.key_hash in waiting
            if world.keeps_order and each.key is not None and held:
                failed.append(RecordOutcome(each.offset, each.key_hash, Cause.HELD_BACK))
                continue
            self.check_order(each)
            if not each.poisoned and world.random.random() >= world.fails:
                done.append(each)
                self.settled.add((partition, each.offset))
                continue
            cause = world.random.choice([Cause.REJECTED, Cause.TIMED_OUT, Cause.UNMENTIONED])
            failed.append(RecordOutcome(each.offset, each.key_hash, cause))
            deliveries = again[each.offset].deliveries if each.offset in again else 0
            if deliveries + 1 >= world.policy.deliveries_max:
                self.settled.add((partition, each.offset))
            elif each.key is not None:
                waiting.add(each.key_hash)
        return done, failed, None

    def check_order(self, record: Record) -> None:
        """What comes before it, of its key, is settled."""
        if self.world.keeps_order and record.key is not None:
            earlier = {
                (each.partition, each.offset)
                for each in self.world.log[record.partition].values()
                if each.key == record.key and each.offset < record.offset
            }
            assert earlier <= self.settled


def new_records(
    world: World, partition: TopicPartition, delivery: PartitionDelivery
) -> Sequence[Record]:
    log = world.log[partition]
    offsets = sorted(log)
    wanted: set[int] = set()
    for cell in delivery.cells:
        begin, end = (bisect_left(offsets, at) for at in (cell.from_offset, cell.until_offset))
        wanted.update(at for at in offsets[begin:end] if cell.span.contains(log[at].key_hash))
    return [log[offset] for offset in sorted(wanted)]


def _fresh(world: World) -> Checkpoint:
    """What `initialOffset` answered: it is durable nowhere."""
    return Checkpoint({p: at for p, at in world.begins.items() if p.partition == 0}, fresh=True)


def run(world: World, steps: int) -> None:
    """So many batches or crashes, then without crashes to the end."""
    runs = 1
    driver = Driver(world, "run-1")
    for number in range(steps + 5_000):
        if number < steps:
            world.produce()
        elif number == steps:
            world.fails = world.crashes = 0.0
        world.now_ms += world.random.choice([0, 1, 5, 30])
        try:
            busy = driver.step()
        except Crash:
            before, runs = driver, runs + 1
            driver = Driver(world, f"run-{runs}")
            busy = True
            if world.random.random() < 0.5:
                _goes_on_as_if_nothing_were(world, before, driver)
        if number > steps and not busy and is_over(world):
            return
    raise AssertionError("the query does not come to its end")


def _goes_on_as_if_nothing_were(world: World, before: Driver, driver: Driver) -> None:
    """The old driver was cut off, and comes back when another has begun: it has to stop."""
    crashes, world.crashes = world.crashes, 0.0
    driver.step()
    world.crashes = crashes
    if driver.fenced and before.fenced:
        kept = list(world.store)
        known = world.table.known()
        beyond = before.commit(known, CommitKind.BATCH, known.batch_id + 1, known.states)
        with pytest.raises(KeyrangeError, match="COMMITS_FENCED"):
            world.table.append(beyond)
        assert world.store == kept


def is_over(world: World) -> bool:
    states = world.table.known().states
    return all(p in states and states[p].committed == end for p, end in world.ends.items())


def check_sinks(world: World) -> None:
    """Every record is in the sink once or in the dead letters once, each key's in order."""
    rows = [each for _, batch in sorted(world.sink.items()) for each in batch]
    given_up = [each for batch in world.dead.values() for each in batch]
    settled = [(each.partition, each.offset) for each in rows] + given_up
    every = [(p, at) for p, log in world.log.items() for at in log]
    assert sorted(settled) == sorted(every)
    poisoned = {(p, at) for p, log in world.log.items() for at in log if log[at].poisoned}
    assert poisoned <= set(given_up)
    if world.keeps_order:
        keyed = [each for each in rows if each.key is not None]
        keyed.sort(key=lambda each: (each.partition, each.key))
        for _, own in groupby(keyed, key=lambda each: (each.partition, each.key)):
            offsets = [each.offset for each in own]
            assert offsets == sorted(offsets)
