"""The slot that a task believes to run in: as long as its name is held, and no longer."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from keyrange.errors import KeyrangeError, error
from keyrange.members import executor_member as module
from keyrange.members import slot_directories
from keyrange.members.binding.service import BindingService
from keyrange.members.executor_member import greeted, read_bound
from keyrange.members.executor_names import NameSettings
from keyrange.members.launch import member_directory
from keyrange.members.model.late_binding import PinRule, WorkUnitCounts
from keyrange.members.model.task_greeting import Greeting
from keyrange.members.read_tasks import BoundTask, ReadTask
from keyrange.members.slot_directories import Slot, slot
from keyrange.members.status import MemberSetup, MemberStatus, now_ms, write_status
from keyrange.options import SourceOptions, parse_options

HELD = MemberStatus(name="g-0", is_static=True, state="STABLE", joined=1)
TASK: dict[str, Any] = {"splits": [], "brokers": [], "leaders": [], "topicIds": {}}


class Stage:
    """An executor with a member whose status a test says."""

    def __init__(self, home: Path, service: BindingService) -> None:
        self.home, self.service = home, service
        self.status: MemberStatus | None = None
        self.batch = 0
        # What a function is told that takes the rows.
        self.told: list[Slot] = []
        self.fails = False

    def hold(self, for_ms: int) -> None:
        self.status = replace(HELD, held_until_ms=now_ms() + for_ms)

    def options(self, **more: str) -> SourceOptions:
        given = {
            "kafka.bootstrap.servers": "127.0.0.1:1",
            "subscribe": "t",
            "splitBy": "keyRange",
            "pin": "prefer",
            "memberTable": str(self.home / "members"),
            "memberGroup": "g",
            "slot.directory": str(self.home / "slots"),
            **more,
        }
        return parse_options(given, "stream")

    def rows(self, _: ReadTask) -> Iterator[Any]:
        """No rows, and what a function would be told while it has them."""
        with suppress(KeyrangeError):
            self.told.append(slot("g"))
        if self.fails:
            raise OSError("the function has failed")
        return iter(())

    def read(self, **more: str) -> WorkUnitCounts:
        """Who is counted as the reader of a portion of g-0."""
        rule = PinRule(wait_ms=0, pause_ms=1)
        documents = [
            {**TASK, "slot": "g-0", "reader": "g-0", "number": at, "count": 2} for at in range(2)
        ]
        plan = self.service.add(["g-0"] * 2, documents, {"g-0"}, 1, rule)
        task = BoundTask(Greeting(self.service.address, "run"), plan, 0, 1)
        assert list(read_bound(self.options(**more), task, self.rows)) == []
        counts = self.service.counts(plan)
        assert counts is not None
        return counts


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    service = BindingService("127.0.0.1", 0)
    stage = Stage(tmp_path, service)
    (tmp_path / "executor").mkdir()
    monkeypatch.setattr(module, "executor_directory", lambda: tmp_path / "executor")
    monkeypatch.setattr(slot_directories, "executor_directory", lambda: tmp_path / "executor")
    monkeypatch.setattr(module, "batch_of_task", lambda: stage.batch)
    monkeypatch.setattr(slot_directories, "batch_of_task", lambda: stage.batch)
    service.tell_ranges(1, {"g-0": {"ranges": {"t": {"0": [[0, 9]]}}, "since": ["run", 1]}})
    monkeypatch.setattr(module, "ensure_member", lambda *_: stage.status)
    # Greetings go on for longer than a test.
    monkeypatch.setattr(module, "Thread", Mock())
    yield stage
    service.close()


def test_a_task_reads_what_its_slot_has(stage: Stage) -> None:
    stage.hold(60_000)

    assert stage.read() == WorkUnitCounts(own=2, foreign=0, unowned=0)
    assert stage.service.slots() == {"g-0"}


def test_a_slot_that_was_away_is_told_that_others_have_read_for_it(stage: Stage) -> None:
    """In a batch, in a part of one, and in one that is not bound."""
    stage.hold(60_000)
    for stage.batch in (4, 5):
        stage.read()
    assert [(each.read_batches, each.portion) for each in stage.told] == [
        (range(4, 4), "own"),
        (range(4, 4), "own"),
        (range(4, 5), "own"),
        (range(4, 5), "own"),
    ]

    stage.hold(-1)
    stage.batch = 6
    stage.read()
    stage.hold(60_000)
    stage.told.clear()
    for stage.batch in (7, 8):
        stage.read()
    assert [each.read_batches for each in stage.told[::2]] == [range(7, 7), range(7, 8)]

    stage.service.add([], [], (), 0, PinRule())
    stage.told.clear()
    stage.batch = 10
    stage.read()
    assert stage.told[0].read_batches == range(10, 10)


def test_a_batch_whose_task_has_failed_is_not_read_before_it_is_read_again(stage: Stage) -> None:
    stage.hold(60_000)
    stage.read()
    stage.batch, stage.fails = 1, True
    with pytest.raises(OSError, match="the function has failed"):
        stage.read()
    stage.fails = False
    stage.told.clear()

    stage.read()
    assert stage.told[0].read_batches == range(1)
    stage.batch = 2
    stage.read()
    assert stage.told[-1].read_batches == range(2)


def test_a_late_task_notes_nothing(stage: Stage) -> None:
    """Its plan was made with an assignment that another one followed."""
    stage.hold(60_000)
    ranges = {"t": {"0": [[0, 4]]}}
    stage.service.tell_ranges(2, {"g-0": {"ranges": ranges, "since": ["run", 2]}})

    stage.read()

    assert {(each.epoch, each.read_batches) for each in stage.told} == {(2, range(0))}
    assert slot("g").read_batches == range(0)


def test_a_name_that_nobody_confirmed_in_time_is_no_slot(stage: Stage) -> None:
    """The status is what a process wrote before it was paused."""
    stage.hold(-1)

    assert stage.read() == WorkUnitCounts(own=0, foreign=2, unowned=0)
    assert stage.service.slots() == frozenset()


def greeted_rows(stage: Stage, names: str) -> list[str]:
    """What a task that is not bound yields, while the member's file says what it says."""
    options = stage.options(memberNames=names)
    assert stage.status is not None
    setup = MemberSetup(NameSettings("g"), options.members.kafka_group, {})
    directory = member_directory(setup, stage.home / "executor")
    directory.mkdir(exist_ok=True)
    write_status(directory, stage.status)
    greeting = Greeting(stage.service.address, "run")
    return list(greeted(options, greeting, iter(["row"])))  # type: ignore[arg-type]


def test_a_member_tells_the_rack_that_its_environment_names(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By which standbys are chosen."""
    racks: list[str] = []

    def ensured(setup: MemberSetup, *_: object) -> MemberStatus | None:
        racks.append(setup.rack)
        return stage.status

    monkeypatch.setattr(module, "ensure_member", ensured)
    monkeypatch.setenv("ZONE", "eu-1a")
    stage.hold(60_000)
    stage.read()
    assert {*racks} == {""}
    racks.clear()
    stage.read(**{"client.rack.env": "ZONE"})
    assert {*racks} == {"eu-1a"}


def test_who_has_to_have_a_name_and_has_none_is_told_why(stage: Stage) -> None:
    stage.status = MemberStatus(state="FAILED", run="run", failure="NO_STATIC_MEMBER_INFO_SET: no")

    with pytest.raises(KeyrangeError, match=r"MEMBER_NOT_STARTED.*NO_STATIC_MEMBER_INFO_SET"):
        greeted_rows(stage, "static")
    assert greeted_rows(stage, "auto") == ["row"]


def test_a_name_that_was_taken_fails_tasks_that_are_not_bound_too(stage: Stage) -> None:
    stage.status = replace(HELD, state="FENCED", run="run", failure="FENCED_INSTANCE_ID: taken")

    with pytest.raises(KeyrangeError, match="DUPLICATE_STATIC_MEMBER"):
        greeted_rows(stage, "auto")


def test_what_became_of_another_run_says_nothing(stage: Stage) -> None:
    stage.status = replace(HELD, state="FENCED", run="before", failure="FENCED_INSTANCE_ID: taken")

    assert greeted_rows(stage, "static") == ["row"]


def test_an_executor_whose_name_was_taken_reads_nothing(stage: Stage) -> None:
    stage.status = replace(HELD, state="FENCED", failure="FENCED_INSTANCE_ID: another has it")

    with pytest.raises(KeyrangeError, match=r"DUPLICATE_STATIC_MEMBER.*g-0.*FENCED_INSTANCE_ID"):
        stage.read()


NO_ROOM = OSError(errno.ENOSPC, "No space left on device")
NOT_STARTED = error("MEMBER_NOT_STARTED", "the member process ended with 1: no room")


def failing(failure: Exception) -> Mock:
    return Mock(side_effect=failure)


@pytest.mark.parametrize("failure", [NO_ROOM, NOT_STARTED])
def test_rows_do_without_a_member_that_cannot_start(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    asked = failing(failure)
    monkeypatch.setattr(module, "ensure_member", asked)

    assert stage.read() == WorkUnitCounts(own=0, foreign=2, unowned=0)
    # Each try may start a process: a task that asks again at once starts no other.
    assert asked.call_count == 1
    with pytest.raises(type(failure)):
        stage.read(memberNames="static")


def test_rows_do_without_an_executors_directory(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.hold(60_000)
    monkeypatch.setattr(module, "executor_directory", failing(NO_ROOM))

    assert stage.read() == WorkUnitCounts(own=0, foreign=2, unowned=0)
    greeting, rows = Greeting(stage.service.address, "run"), iter(["row"])
    assert list(greeted(stage.options(), greeting, rows)) == ["row"]  # type: ignore[arg-type]
    with pytest.raises(OSError, match="No space"):
        stage.read(memberNames="static")


def test_rows_do_without_a_home(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A container may run as a user that it does not know; nobody named a slot.directory."""
    stage.hold(60_000)
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", failing(RuntimeError("Could not determine home directory.")))

    assert stage.read(**{"slot.directory": ""}) == WorkUnitCounts(own=2, foreign=0, unowned=0)
    assert "slot g-0 has no directory: this user has no home" in caplog.text


def test_an_executor_that_got_no_slot_in_time_greets_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_GREETING_S", 0.0)
    stage.status = MemberStatus(state="JOINING", run="run")
    started = Mock()
    monkeypatch.setattr(module, "Thread", started)
    for greetings in (1, 2):
        assert greeted_rows(stage, "auto") == ["row"]
        assert started.call_count == greetings
        started.call_args.kwargs["target"]()

    # One that has it has said so.
    stage.hold(60_000)
    assert greeted_rows(stage, "auto") == ["row"]
    started.call_args.kwargs["target"]()
    assert greeted_rows(stage, "auto") == ["row"]
    assert started.call_count == 3
    assert stage.service.slots() == {"g-0"}


@pytest.mark.parametrize("reads", [True, False])
def test_a_slot_copies_what_it_is_to_have_whether_it_reads_or_not(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, reads: bool
) -> None:
    """One that has just come has nothing to read yet."""
    begun: list[Any] = []
    monkeypatch.setattr(module, "Heir", lambda *given: Mock(begin=lambda: begun.append(given)))
    hints: list[str] = []
    heirs = Mock(hint=lambda slot: bool(hints.append(slot)) or slot == "g-0")
    monkeypatch.setattr(stage.service, "_heirs", heirs)
    stage.hold(60_000)
    own = "g-0" if reads else "g-1"
    plan = stage.service.add(
        [own], [{**TASK, "slot": own, "reader": own, "number": 0, "count": 1}], {own}, 2, PinRule()
    )
    task = BoundTask(Greeting(stage.service.address, "run"), plan, 0, 1)
    if not reads:
        # The owner's task is given it.
        stage.service.answer(
            {"ask": {"plan": plan, "task": 1, "position": 0, "slot": own, "batch": 0}}
        )
    assert list(read_bound(stage.options(), task, stage.rows)) == []
    assert len(begun) == 1
    assert set(hints) == {"g-0", own}
