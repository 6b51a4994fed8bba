"""Drivers of one group, each with a checkpoint of its own, with clocks that step by hours, crashes,
and others coming between any two calls to the table: of all of them one at a time says what is
done, and who goes on does so where the last one stood."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import pyarrow as pa
import pytest

from keyrange.errors import KeyrangeError
from keyrange.individual_commits.model.commit import Commit, CommitKind
from keyrange.individual_commits.model.driver_takeover import begin
from keyrange.individual_commits.model.partition_progress import fresh
from keyrange.individual_commits.table.commit_table import DeltaCommitTable
from keyrange.model.checkpoint import CommitMark
from keyrange.model.offsets import TopicPartition
from project.forms import by_form
from tables.memory_store import MemoryStore, Shared

PLACE = TopicPartition("t", 0)
GROUP = "orders"
HOUR_MS = 3_600_000
NOW_MS = 1_760_000_000_000
OVER = {
    "COMMITS_FENCED",
    "COMMITS_AHEAD",
    "COMMITS_OF_ANOTHER_QUERY",
    # The checkpoint is older than the table, as that of a driver that was killed may be.
    "COMMITS_BEHIND",
}


class Crash(Exception):
    """The driver is gone."""


@dataclass
class Driver:
    """A query with a checkpoint; `run_id` is "" while no driver of it lives."""

    source_id: str
    position: int
    resumes: tuple[str, int] | None
    run_id: str = ""
    runs: int = 0


class World:
    """A table, and how far the group has come, as whoever commits says."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.shared = Shared(hook=self.between, landed=self.landed)
        self.drivers: dict[str, Driver] = {}
        self.busy: list[str] = []
        self.budget = 0
        self.crashes = 0.01 * (seed % 3)
        self.position = 0
        self.last = ""
        self.now_ms = NOW_MS

    def between(self, _: str) -> None:
        if self.random.random() < self.crashes:
            raise Crash
        if self.budget and len(self.busy) < 3 and self.random.random() < 0.15:
            self.budget -= 1
            self.step()

    def landed(self, rows: pa.Table) -> None:
        [row] = rows.to_pylist()
        if row["kind"] == CommitKind.BATCH.value:
            where = f"{row['run_id']} goes on at {row['position']}"
            assert row["position"] == self.position + 1, where
            self.position, self.last = row["position"], row["source_id"]

    def step(self) -> None:
        idle = sorted(set(self.drivers) - set(self.busy))
        roll = self.random.random()
        if not idle or roll < 0.15:
            self.attempt(self.replace)
            return
        driver = self.drivers[self.random.choice(idle)]
        self.attempt(lambda: self.work(driver) if driver.run_id else self.start(driver), driver)

    def attempt(self, act: object, driver: Driver | None = None) -> None:
        self.busy.append(driver.source_id if driver else f"new-{len(self.busy)}")
        try:
            act()  # type: ignore[operator]
        except (Crash, KeyrangeError) as failure:
            if isinstance(failure, KeyrangeError) and failure.condition.name not in OVER:
                raise
            if driver:
                driver.run_id = ""
        finally:
            self.busy.pop()

    def table(self, source_id: str) -> DeltaCommitTable:
        return DeltaCommitTable(MemoryStore(self.shared), source_id)

    def replace(self) -> None:
        """A query with a new checkpoint goes on in the group."""
        driver = Driver(f"source-{len(self.drivers)}", 0, None)
        self.drivers[driver.source_id] = driver
        self.busy[-1:] = [driver.source_id]
        last = self.table(driver.source_id).last_source(GROUP, with_states=True)
        if last is not None:
            known = self.table(last).known()
            driver.position, driver.resumes = known.states[PLACE].position, (last, known.seq)
        self.start(driver)

    def start(self, driver: Driver) -> None:
        driver.runs += 1
        run_id = f"{driver.source_id}/{driver.runs}"
        driver.run_id = ""
        seq = self.table(driver.source_id).known().seq
        mark = CommitMark(driver.source_id, seq, resumes=driver.resumes)
        tables: dict[str, DeltaCommitTable] = {}

        def table_of(source_id: str) -> DeltaCommitTable:
            return tables.setdefault(source_id, self.table(source_id))

        begin(
            table_of, self.commit(driver, run_id, CommitKind.FENCE, 1, -1), mark, may_replace=True
        )
        driver.run_id = run_id

    def work(self, driver: Driver) -> None:
        table = self.table(driver.source_id)
        known = table.known()
        if known.states:
            driver.position = known.states[PLACE].position
        commit = self.commit(
            driver, driver.run_id, CommitKind.BATCH, known.seq + 1, known.batch_id + 1
        )
        table.append(commit)

    def commit(
        self, driver: Driver, run_id: str, kind: CommitKind, seq: int, batch_id: int
    ) -> Commit:
        self.now_ms += self.random.choice([-HOUR_MS, 0, 1, HOUR_MS])
        states = {PLACE: fresh("", driver.position + 1)} if kind is CommitKind.BATCH else {}
        group, source = GROUP, driver.source_id
        at_ms = self.now_ms
        return Commit(seq, kind, group, source, source, run_id, batch_id, at_ms, states=states)


@pytest.mark.parametrize("seed", range(by_form(1, 3, 200)))
def test_one_driver_at_a_time_goes_on_where_the_last_one_stood(seed: int) -> None:
    world = World(seed)
    for _ in range(45):
        world.budget = 3
        world.step()
    world.budget, world.crashes = 0, 0.0
    assert world.position > 1
    # Who did the last work goes on, whatever the clocks said, and so does who replaces it.
    last = world.drivers[world.last]
    last.run_id = ""
    world.start(last)
    world.work(last)
    world.busy = [""]
    world.replace()
    heir = next(reversed(world.drivers.values()))
    assert heir.position == world.position
    world.work(heir)
    with pytest.raises(KeyrangeError, match="COMMITS_FENCED"):
        world.work(last)
