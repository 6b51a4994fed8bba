"""An executor that copies state which is not its own: a service tells it what, files have it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from brokers.real_broker import wait_until
from keyrange.keyed_state import cache, copying
from keyrange.keyed_state.cache import StateCache, copies_of
from keyrange.keyed_state.model.state_runs import StateRun, after_batch, clipped
from keyrange.keyed_state.state_files import StateFileWriter
from keyrange.keyed_state.states_of_task import PartitionRuns, StateSettings, TaskStates
from keyrange.keyed_state.variables import StateForm, ValueState, variables_of
from keyrange.members import heir
from keyrange.members.binding.service import BindingService
from keyrange.members.heir import Heir
from keyrange.members.heirs import Heirs
from keyrange.members.model.assignment import Owned
from keyrange.members.model.copy_book import KnownState
from keyrange.members.slot_directories import made_slots_directory
from keyrange.model.key_ranges import SPACE, KeyRange, split_evenly
from keyrange.options import SourceOptions, parse_options
from keyrange.storage.directory import Directory
from simulation.state_world import AT, FORM, KEYS, hash_of

LOWER, UPPER = split_evenly(SPACE, 2)


class Stage:
    """A driver that knows some state, of which slot b keeps copies, and executors."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.heirs = Heirs(1_000, tells=True)
        self.service = BindingService("127.0.0.1", 0, heirs=self.heirs)
        self.runs: list[StateRun] = []
        self.slot = "b"
        self.announced: list[tuple[str, int, Mapping[str, Any]]] = []
        self.is_ready = True
        self.standing = {AT: (Owned(UPPER, "b"),)}

    @property
    def root(self) -> Path:
        return copies_of(made_slots_directory(str(self.home / "slots")), "source")

    def options(self, **more: str) -> SourceOptions:
        given = {
            "kafka.bootstrap.servers": "127.0.0.1:1",
            "subscribe": "t",
            "splitBy": "keyRange",
            "pin": "prefer",
            "commitMode": "individual",
            "commitTable": str(self.home / "commits"),
            "stateDirectory": str(self.home / "state"),
            "slot.directory": str(self.home / "slots"),
            **more,
        }
        return parse_options(given, "stream")

    def change(self, count: int = 9) -> None:
        """A batch changes the state of some keys, and its commit names the file."""
        settings = StateSettings(str(self.home / "state"), "source", len(self.runs), 1)
        states = TaskStates(FORM, settings)
        states.begin({AT: PartitionRuns((SPACE,), (), True, "p")})
        rows = [{"key_hash": hash_of(key), "key": key, "n": {"n": 1}} for key in KEYS[:count]]
        states.change(AT, pa.RecordBatch.from_pylist(rows, FORM.schema))
        made = [run for _, run in states.finish()]
        self.runs = after_batch(self.runs, made, len(self.runs) + 1)
        self.tell()

    def tell(self) -> None:
        known = KnownState("source", {AT: tuple(self.runs)}, lambda _: "p")
        self.heirs.follow(known, self.standing)

    def heir(self, **more: str) -> Heir:
        def announce(slot: str, epoch: int, ranges: Mapping[str, Any]) -> bool:
            self.announced.append((slot, epoch, ranges))
            return self.is_ready

        lock = self.home / "heir.lock"
        options, address = self.options(**more), self.service.address
        return Heir(options, address, lambda: self.slot, announce, lock)

    def missing(self, span: KeyRange = UPPER) -> list[KeyRange]:
        cache = StateCache(self.root / "p")
        return [each for run in clipped(self.runs, span) for each in cache.missing(run)]


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path)
    yield stage
    stage.service.close()


def until(condition: Callable[[], bool]) -> None:
    wait_until(condition, 60)


def test_what_a_slot_stands_by_for_is_copied_and_followed(stage: Stage) -> None:
    stage.change()
    assert stage.missing() != []
    stage.heir().begin()
    until(lambda: not stage.missing())
    # Of the other half it has the file, and makes no copy.
    assert stage.missing(LOWER) != []
    stage.change(4)
    until(lambda: not stage.missing() and not stage.heirs.hint("b"))
    # Nothing more to stand by for: the thread ends, and lets another process begin.
    stage.standing = {}
    stage.tell()
    again = stage.heir()
    stage.standing = {AT: (Owned(LOWER, "b"),)}

    def begun() -> bool:
        stage.tell()
        again.begin()
        return not stage.missing(LOWER)

    until(begun)


def test_one_process_of_an_executor_copies(stage: Stage) -> None:
    stage.change()
    stage.heir().begin()
    until(lambda: not stage.heirs.hint("b"))
    second = stage.heir()
    began = time.monotonic()
    second.run()
    assert time.monotonic() - began < 30
    assert len(stage.announced) == 1


def test_a_slot_that_loses_its_name_is_no_heir_any_more(stage: Stage) -> None:
    stage.change()
    stage.slot = ""
    before = os.getpriority(os.PRIO_PROCESS, 0)
    stage.heir().run()
    assert stage.missing() != []
    # Only its own thread goes behind others.
    assert os.getpriority(os.PRIO_PROCESS, 0) == before


def test_what_a_commit_has_merged_away_is_passed_over(stage: Stage) -> None:
    stage.change()
    [gone] = {run.file for run in stage.runs}
    (stage.home / "state" / gone).unlink()
    stage.change(5)
    left = [run for run in stage.runs if run.file != gone]
    heir = stage.heir()
    heir.begin()
    cache = StateCache(stage.root / "p")
    until(lambda: all(not cache.missing(run) for run in clipped(left, UPPER)))
    until(lambda: not stage.heirs.hint("b"))


def test_a_listener_that_is_not_ready_is_asked_again_and_waited_for(stage: Stage) -> None:
    stage.change()
    stage.is_ready = False
    stage.heir().begin()
    until(lambda: len(stage.announced) > 1)
    assert stage.heirs.hint("b"), "it has copied, and does not say so"
    assert stage.missing() == []
    stage.is_ready = True
    until(lambda: not stage.heirs.hint("b"))


def test_copies_that_no_task_reads_are_kept_and_made_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tasks of this host remove what was not used for a day; state may stay as it is for longer."""
    monkeypatch.setattr(heir, "_AGAIN_S", 0.1, raising=False)
    stage.change()
    stage.heir().begin()
    until(lambda: not stage.missing() and not stage.heirs.hint("b"))
    [copy] = stage.root.rglob("*.arrow")
    long_ago = time.time() - 2 * 86_400
    os.utime(copy, (long_ago, long_ago))
    wait_until(lambda: copy.stat().st_atime > long_ago, 20)
    cache.sweep_idle(stage.root)
    assert stage.missing() == []
    copy.unlink()
    until(lambda: not stage.missing())


def test_it_copies_no_faster_than_it_may(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.change()
    slept: list[float] = []
    read = copying.Copying.__init__

    def noted(self: Any, directory: Any, rate: int, sleep: Any) -> None:
        read(self, directory, rate, slept.append)

    monkeypatch.setattr(copying.Copying, "__init__", noted)
    size = sum(run.size_bytes for run in clipped(stage.runs, UPPER))
    stage.heir(**{"warmup.bytes.per.second": "10"}).begin()
    until(lambda: not stage.heirs.hint("b"))
    # A row group is read whole, of which half is copied.
    assert sum(slept) == pytest.approx(2 * size / 10, rel=0.5)


def test_few_row_groups_are_in_memory_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a run of 32 MB."""
    form = StateForm(variables_of({"kept": ValueState("blob binary")}))
    directory, groups = Directory(str(tmp_path / "state")), 32
    writer = StateFileWriter(directory, "source", form)
    rows = (
        {"key_hash": n, "key": b"k%d" % n, "kept": {"blob": os.urandom(1 << 20)}}
        for n in range(groups)
    )
    writer.add(AT, SPACE, 1, (pa.RecordBatch.from_pylist([row], form.schema) for row in rows))
    [(_, made)] = writer.finish()
    held: list[int] = []
    add, before = cache.Draft.add, pa.total_allocated_bytes()

    def noted(self: cache.Draft, block: pa.RecordBatch) -> None:
        held.append(pa.total_allocated_bytes() - before)
        add(self, block)

    monkeypatch.setattr(cache.Draft, "add", noted)
    copies = StateCache(tmp_path / "copies")
    copying.Copying(directory, 0, time.sleep).copy(copies, made.committed(2))
    assert copies.missing(made.committed(2)) == []
    assert len(held) == groups
    assert max(held) < 8 << 20
