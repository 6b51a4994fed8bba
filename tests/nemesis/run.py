"""A run: start, feed, hurt, heal, wait, stop, check."""

from __future__ import annotations

import heapq
import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from brokers.committed_records import PATIENCE_MS
from nemesis import operations
from nemesis.acts import ACTS
from nemesis.checker import check, lost, waiting
from nemesis.consumers import Consumers, consumed, not_committed
from nemesis.driver import Supervisor
from nemesis.facts import Facts, Place, Row
from nemesis.faults import Heal, Missed
from nemesis.leftovers import Usage, memory_left, processes_left, secrets_told
from nemesis.modes import MODES
from nemesis.report import Result
from nemesis.schedule import Fault, Met, Schedule
from nemesis.steps import StepHung, end_after, step
from nemesis.tables import (
    SinkRows,
    committed_offsets,
    copied_rows,
    is_assigned,
    last_rows,
    letters,
    open_transactions,
    positions,
    replayed,
    sent_rows,
    versions,
    worked_on,
)
from nemesis.time_tables import timed
from nemesis.truth import read_log
from nemesis.window_checks import forgotten, unclosed
from nemesis.world import World
from spark.standalone import standalone_cluster

_TICK_S = 0.2
_LOOK_S = 4.0
# A look does not hold up what heals faults.
_LOOK_MS = 3_000
_START_S = 400.0
# A query that has something to do does some of it in this time, also between faults.
_STALL_S = 240.0
# When what could not be healed is tried once more, and for how long.
_AGAIN_S = 2.0
_HEALED_S = 120.0
_SETTLE_S = 900.0
_WAIT_S = 4.0
_WAITING_MAX = 2_000
# No step of the harness itself takes so long, on a machine that has much else to do.
_STEP_S = 180.0
_CHECK_S = 600.0


class Run:
    """One run of a schedule."""

    def __init__(
        self,
        schedule: Schedule,
        home: Path,
        say: Callable[[str], None],
        private: bool,
        rate: int = 60,
        store: str = "files",
    ) -> None:
        self.schedule, self.home, self._private, self._rate = schedule, home, private, rate
        self._store = store
        self._say = say
        self.mode = MODES[schedule.mode]
        self.result = Result(schedule.mode, schedule.seed, schedule.seconds)
        self._done_count = 0
        self.log: dict[Place, str] = {}
        self._moved_at = self._looked_at = 0.0
        self._met: list[Met] = []
        self._usage = Usage()
        self._hurting = False

    def run(self) -> Result:
        """Raises StepHung where a step of the harness is not over in its time."""
        end_after(self.schedule.seconds + 2 * _START_S + _SETTLE_S + 3 * _CHECK_S)
        with ExitStack() as stack:
            with step("brokers start", _START_S):
                self.world = World(
                    self.home, self.mode, self.schedule.seed, self._rate, self._private, self._store
                )
            self._sink = SinkRows(self.world)
            stack.callback(self._closing, "brokers end", self.world.close)
            self.world.say = self.say
            with step("executors start", _START_S):
                self.supervisor = self._supervisor(stack)
            stack.callback(self._closing, "everything is killed", self.supervisor.kill)
            self._hurt()
            self._settle()
            self._stop()
            with step("looking for what is left behind", _CHECK_S):
                self.world.complaints += self._left()
            self._check()
            with step("keeping the tables", _STEP_S):
                self.world.keep()
        return self.result

    def _closing(self, name: str, close: Callable[[], None]) -> None:
        with step(name, _STEP_S):
            close()

    def _stop(self) -> None:
        self.say("everything is done; the job is asked to stop")
        with step("the job ends", 2 * _STEP_S):
            code = self.supervisor.stop()
        if code != 0:
            self._complain("no orderly end", f"the driver ended with {code} when asked to stop")

    def _supervisor(self, stack: ExitStack) -> Any:
        if self.mode.job == "consumer":
            return Consumers(self.world, self._met)
        cluster = None
        if self.mode.executors == "standalone":
            cluster = stack.enter_context(standalone_cluster(self.world.logs, has_names=True))
        return Supervisor(self.world, cluster, self._met)

    def say(self, text: str) -> None:
        pending = len(self.world.feeder.sent) - self.world.feeder.done
        self._say(f"{self.world.now:7.1f} s  {self._done_count:>6} done {pending:>6} left  {text}")

    def _complain(self, what: str, text: str) -> None:
        self.world.complaints.append((what, text))
        self.say(f"{what}: {text[:300]}")

    def _hurt(self) -> None:
        """Start the job, and carry the schedule out."""
        world, schedule = self.world, self.schedule
        world.feeder.start()
        self.supervisor.start()
        started = time.monotonic()
        while self._done_count == 0 or (self.mode.pinned and not is_assigned(world)):
            assert not self.supervisor.ends, self.supervisor.ends
            assert time.monotonic() < started + _START_S, "the job did not begin to work"
            self._tick()
        world.begin()
        world.feeder.waiting_max = _WAITING_MAX
        self._moved_at = self._looked_at = 0.0
        self._hurting = True
        self.say("the job works")
        counter = itertools.count()
        due: list[tuple[float, int, Any, Any]] = [
            (fault.at_s, next(counter), fault, None) for fault in schedule.faults
        ]
        heapq.heapify(due)
        while due or world.now < schedule.seconds:
            if due and due[0][0] <= world.now:
                _, _, fault, heal = heapq.heappop(due)
                if heal is not None:
                    if not self._heal(fault, heal):
                        heapq.heappush(due, (world.now + _AGAIN_S, next(counter), fault, heal))
                elif (heal := self._begin(fault)) is not None:
                    heapq.heappush(due, (world.now + fault.hold_s, next(counter), fault, heal))
            self._tick()
        self.result.seconds = world.now
        self._hurting = False

    def _begin(self, fault: Fault) -> Heal | None:
        what = f"{fault.kind}" + (f" for {fault.hold_s:.1f} s" if fault.hold_s else "")
        began = self.world.now
        try:
            with step(f"{fault.kind} begins", _STEP_S):
                heal = ACTS[fault.kind](self.world, self.supervisor, fault)
        except Missed as why:
            self.result.missed[fault.kind] += 1
            self.say(f"{what}: nobody there ({why})")
            return None
        except StepHung as hung:
            self._complain("hung", str(hung))
            return None
        except Exception as failure:
            self.result.missed[fault.kind] += 1
            self.say(f"{what}: could not be done, {failure!r}")
            return None
        self.result.faults[fault.kind] += 1
        until = self.world.now if heal is None else float("inf")
        self._met.append(Met(fault, began, until))
        self.say(what)
        return heal

    def _heal(self, fault: Fault, heal: Heal) -> bool:
        """Whether a fault is over. What another fault holds up, such as a topic that is made anew
        while the broker is away, is tried once more when that one may be over."""
        try:
            with step(f"{fault.kind} is healed", _STEP_S):
                heal()
        except Exception as failure:
            if self.world.now < fault.at_s + fault.hold_s + _HEALED_S:
                self.say(f"{fault.kind} is not over yet: {failure!r}"[:200])
                return False
            self._complain("not healed", f"{fault.kind}: {failure!r}")
        at = next(n for n, each in enumerate(self._met) if each.fault is fault)
        self._met[at] = self._met[at]._replace(until_s=self.world.now)
        self.say(f"{fault.kind} is over")
        return True

    def _tick(self) -> None:
        with step("the job is looked after", _STEP_S):
            self.supervisor.tick()
        if self.world.now - self._looked_at >= _LOOK_S:
            self._looked_at = self.world.now
            with step("the tables are looked at", _STEP_S):
                self._look()
        time.sleep(_TICK_S)

    def _look(self) -> None:
        world = self.world
        self._usage.look(world.run, is_warm=self._done_count > 0)
        try:
            found = self._rows(self._sink, _LOOK_MS)
            buried = letters(world)
            # Until a window is over its records have no row.
            more = set() if self.mode.has_rows else worked_on(world)
            operations.follow_resets(world)
        except StepHung:
            raise
        except Exception as failure:
            self.say(f"the table could not be read: {failure!r}"[:200])
            return
        present = {each.place for each in (*found, *buried)} | world.unreadable
        done = len(found) + len(buried) + len(more)
        present |= more
        if done != self._done_count or not world.feeder.sent:
            self._moved_at = world.now
        self._done_count = done
        # Rows are no count of what was sent: some were written twice on request, and some are of
        # records that were never acknowledged. Nor does the feeder wait for what a fault took.
        sent = dict(world.feeder.sent)
        world.feeder.done = len(sent) - sum(1 for _ in waiting(sent, present, world.gone))
        if self._hurting and world.now - self._moved_at > _STALL_S:
            self._moved_at = world.now
            self._complain("stalled", f"nothing was done for {_STALL_S:.0f} s while faults came")

    def _settle(self) -> None:
        """Wait, without faults, until everything is done that can be."""
        world = self.world
        with step("the feeder stops", _STEP_S):
            world.feeder.stop()
        self.say("the feeder has stopped; the log is read")
        with step("the log is read", _STEP_S):
            self.log = read_log(world)
        self.say(f"the log holds {len(self.log):,} records")
        ends: dict[int, int] = {}
        for place in self.log:
            ends[place.partition] = max(ends.get(place.partition, 0), place.offset + 1)
        began = moved_at = world.now
        before: object = None
        while (left := self._left_to_do(ends)) != (0, {}):
            if left != before:
                before, moved_at = left, world.now
                self.say(f"waiting for {left[0]} records and for commits of partitions {left[1]}")
            quiet_s = world.now - moved_at
            if quiet_s > _STALL_S or world.now - began > _SETTLE_S:
                self._complain("stalled", f"{left} are not done, for {quiet_s:.0f} s")
                return
            until = world.now + _WAIT_S
            while world.now < until:
                self._tick()

    def _left_to_do(self, ends: Mapping[int, int]) -> tuple[int, dict[int, int]]:
        """How many records are not in the table, and where partitions stand below their ends."""
        with step("the tables are read", _STEP_S):
            return self._count_left(ends)

    def _count_left(self, ends: Mapping[int, int]) -> tuple[int, dict[int, int]]:
        facts = self._facts()
        count = sum(1 for _ in chain(lost(facts), forgotten(facts)))
        if self.mode.job == "consumer":
            return count, {}
        done = committed_offsets(self.world)
        behind = {number: done.get(number, 0) for number in ends}
        return count, {number: at for number, at in behind.items() if at < ends[number]}

    def _left(self) -> Iterator[tuple[str, str]]:
        yield from self._usage.grown(self.world.store.connections)
        yield from processes_left(self.world)
        yield from secrets_told(self.world, self._usage.directories)
        yield from memory_left(self.world)

    def _rows(self, sink: SinkRows, patience_ms: int = PATIENCE_MS) -> list[Row]:
        """Where a topic is all that is written, those that are there."""
        if not self.mode.table:
            return list(sent_rows(self.world, patience_ms))
        return consumed(self.world) if self.mode.job == "consumer" else sink.rows()

    def _facts(self) -> Facts:
        world = self.world
        return Facts(
            run=world.run,
            sent={**world.feeder.sent, **self.log},
            rows=self._rows(SinkRows(world)),
            letters=letters(world),
            log=frozenset(self.log),
            unsure=world.feeder.unsure,
            gone=world.gone,
            again=list(world.resets.values()),
            # Of the others some were given up long before: nobody has sent them again.
            in_both_logs=frozenset(
                place.n for place in world.feeder.sent if place.n in world.unsure_at_cuts
            ),
            replayed=frozenset(each.place for each in replayed(world)),
            unreadable=frozenset(world.unreadable),
            ends=self.supervisor.ends,
            complaints=world.complaints,
            last=last_rows(world),
            copies=copied_rows(world),
            deliveries_max=int(self.mode.options().get("maxDeliveries", 1)),
            timed=timed(world),
        )

    def _check(self) -> None:
        if self.mode.job != "ingest":
            with step("commits verify", _CHECK_S):
                for finding in operations.verify(self.world):
                    self._complain("verify", finding)
        if self.mode.job == "consumer":
            with step("one more consumer", _CHECK_S):
                for place in not_committed(self.world):
                    self._complain("not committed", str(place))
        if self.world.copies_topic:
            with step("transactions are over", _CHECK_S):
                for each in open_transactions(self.world):
                    self._complain("open transactions", each)
        with step("the history is read", _CHECK_S):
            facts = replace(self._facts(), positions=positions(self.world))
            if self.mode.evolves:
                names = {"table", *self.mode.tables} - {"last"}
                grown = {name: list(versions(self.world, name)) for name in names}
                facts = replace(facts, versions=grown, starts=self.world.starts)
            if facts.timed is not None:
                facts = replace(facts, timed=timed(self.world, with_history=True))
                self.result.windows = len(facts.timed.windows)
                if not self.mode.has_rows:
                    buried = {each.place for each in facts.letters}
                    self.result.open_records = len(unclosed(facts) - buried)
        self.result.records, self.result.rows = len(facts.sent), len(facts.rows)
        self.result.dead_letters = len(facts.letters)
        self.result.ends = facts.ends
        self.result.findings = check(facts)
