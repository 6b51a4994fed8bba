"""A user's listener in an executor: told once what its slot gets, loses, and has lost."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from threading import Barrier, Thread
from types import ModuleType
from typing import Any

import pytest

from keyrange import KeyRangeListener
from keyrange.errors import KeyrangeError
from keyrange.members import range_listener_calls as module
from keyrange.members.range_listener_calls import Held, Listening
from keyrange.model.key_ranges import HASH_MAX, SPACE, KeyRange
from keyrange.model.offsets import TopicPartition

HALF = HASH_MAX // 2
LOWER = [[0, HALF]]
ALL: dict[str, Any] = {"t": {"0": [[0, HASH_MAX]]}}
LOWER_AND_OTHER: dict[str, Any] = {"t": {"0": LOWER, "10": LOWER, "9": LOWER}}
FIRST = TopicPartition("t", 0)
UPPER_SPAN, LOWER_SPAN = KeyRange(HALF + 1, HASH_MAX + 1), KeyRange(0, HALF + 1)
OWN = Held("g-0", "id-1", "run-1")


class Told:
    """What listeners of this test were told, and what they do with it."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []
        self.failure: Exception | None = None
        self.is_ready = True

    def note(self, what: str, ranges: Any) -> None:
        self.calls.append((what, {p: list(spans) for p, spans in ranges.items()}))
        if self.failure is not None:
            raise self.failure


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    told = Told()

    class Noting(KeyRangeListener):
        def on_key_ranges_announced(self, ranges: Any) -> bool:
            told.note("announced", ranges)
            return told.is_ready

        def on_key_ranges_assigned(self, ranges: Any) -> None:
            told.note("assigned", ranges)

        def on_key_ranges_revoked(self, ranges: Any) -> None:
            told.note("revoked", ranges)

        def on_key_ranges_lost(self, ranges: Any) -> None:
            told.note("lost", ranges)

    module: Any = ModuleType("state_here")
    module.Noting, module.other = Noting, dict
    monkeypatch.setitem(sys.modules, "state_here", module)
    return told


@pytest.fixture
def listening(tmp_path: Path, told: Told) -> Listening:
    return Listening("state_here:Noting", "query", "g", tmp_path)


def has(ranges: Any) -> Callable[[], Any]:
    return lambda: ranges


def not_asked() -> Any:
    raise AssertionError("nothing is to be asked")


def test_an_assignment_is_told_once(listening: Listening, told: Told, tmp_path: Path) -> None:
    listening.tell(OWN, 1, has(ALL))
    listening.tell(OWN, 1, not_asked)
    # Another process of the executor.
    Listening("state_here:Noting", "query", "g", tmp_path).tell(OWN, 1, not_asked)

    assert told.calls == [("assigned", {FIRST: [SPACE]})]


def test_what_goes_and_what_comes(listening: Listening, told: Told) -> None:
    listening.tell(OWN, 1, has(ALL))
    told.calls.clear()
    listening.tell(OWN, 2, has(LOWER_AND_OTHER))

    others = [TopicPartition("t", number) for number in (9, 10)]
    assert told.calls == [
        ("revoked", {FIRST: [UPPER_SPAN]}),
        ("assigned", {partition: [LOWER_SPAN] for partition in others}),
    ]
    # In the order of the partitions' numbers.
    assert list(told.calls[1][1]) == others


@pytest.mark.parametrize("now", [Held("g-0", "id-2", "run-1"), Held("g-7", "id-1", "run-1")])
def test_what_went_while_the_name_was_another_s_is_lost(
    listening: Listening, told: Told, now: Held
) -> None:
    listening.tell(OWN, 1, has(ALL))
    told.calls.clear()
    listening.tell(now, 3, has({"t": {"0": LOWER}}))

    assert told.calls == [("lost", {FIRST: [UPPER_SPAN]})]


def test_an_executor_that_lost_its_name_is_told_once(listening: Listening, told: Told) -> None:
    listening.tell(OWN, 1, has(ALL))
    told.calls.clear()
    listening.lose()
    listening.lose()

    assert told.calls == [("lost", {FIRST: [SPACE]})]


def test_another_run_with_the_same_ranges_is_no_change(listening: Listening, told: Told) -> None:
    listening.tell(OWN, 5, has(ALL))
    told.calls.clear()
    # Its table may have begun anew.
    listening.tell(Held("g-0", "id-1", "run-2"), 1, has(ALL))
    assert told.calls == []
    listening.tell(Held("g-0", "id-1", "run-2"), 2, has({}))
    assert told.calls == [("revoked", {FIRST: [SPACE]})]


def test_a_late_task_of_an_earlier_assignment_tells_nothing(
    listening: Listening, told: Told
) -> None:
    listening.tell(OWN, 5, has(ALL))
    listening.tell(OWN, 4, not_asked)

    assert len(told.calls) == 1


def test_what_failed_is_told_again(listening: Listening, told: Told) -> None:
    told.failure = RuntimeError("no room")
    with pytest.raises(KeyrangeError, match=r"KEY_RANGE_LISTENER_FAILED.*Noting raised Runtime"):
        listening.tell(OWN, 1, has(ALL))
    told.failure = None
    listening.tell(OWN, 1, has(ALL))

    assert [what for what, _ in told.calls] == ["assigned", "assigned"]


def test_a_file_that_was_cut_counts_as_none(
    listening: Listening, told: Told, tmp_path: Path
) -> None:
    listening.tell(OWN, 1, has(ALL))
    [file] = tmp_path.glob("told-*.json")
    file.write_text(file.read_text()[:20])
    listening.tell(OWN, 1, has(ALL))

    assert [what for what, _ in told.calls] == ["assigned", "assigned"]


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ("no_such_module:Noting", "No module named"),
        ("state_here:Nothing", "Nothing"),
        ("state_here:other", "is no keyrange.KeyRangeListener"),
    ],
)
@pytest.mark.usefixtures("told")
def test_what_is_no_listener_is_named(tmp_path: Path, named: str, said: str) -> None:
    with pytest.raises(KeyrangeError, match=rf"KEY_RANGE_LISTENER_NOT_FOUND.*{said}"):
        Listening(named, "query", "g", tmp_path).tell(OWN, 1, has(ALL))


def test_of_many_tasks_one_tells_and_all_wait_for_it(
    listening: Listening, told: Told, tmp_path: Path
) -> None:
    begin, seen = Barrier(8), []

    def task() -> None:
        begin.wait()
        Listening("state_here:Noting", "query", "g", tmp_path).tell(OWN, 1, has(ALL))
        seen.append(len(told.calls))

    threads = [Thread(target=task) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()

    assert seen == [1] * 8
    listening.tell(OWN, 1, not_asked)


def test_what_it_gets_is_announced_until_it_is_ready(
    listening: Listening, told: Told, tmp_path: Path
) -> None:
    told.is_ready = False
    assert [listening.announce("g-0", 2, ALL) for _ in range(2)] == [False, False]
    told.is_ready = True
    assert listening.announce("g-0", 2, ALL)
    # Another process of the executor, which begins anew.
    assert Listening("state_here:Noting", "query", "g", tmp_path).announce("g-0", 2, ALL)
    assert told.calls == [("announced", {FIRST: [SPACE]})] * 3
    # A second change, while that one is prepared, and a slot by another name.
    assert listening.announce("g-0", 2, LOWER_AND_OTHER)
    assert listening.announce("g-0", 3, LOWER_AND_OTHER)
    assert listening.announce("g-1", 3, LOWER_AND_OTHER)
    assert len(told.calls) == 6


def test_where_nothing_is_announced_it_hears_nothing(listening: Listening, told: Told) -> None:
    assert listening.announce("g-0", 0, {})
    assert told.calls == []


def test_one_that_fails_has_nothing_to_prepare(
    listening: Listening, told: Told, caplog: pytest.LogCaptureFixture
) -> None:
    """Key ranges move at once, and the failure is in the log."""
    told.failure = RuntimeError("no room")
    assert [listening.announce("g-0", 2, ALL) for _ in range(2)] == [True, True]
    assert len(told.calls) == 1
    assert "no room" in caplog.text


def test_queries_and_groups_are_told_apart(tmp_path: Path, told: Told) -> None:
    for query, group in (("query", "g"), ("other", "g"), ("query", "h")):
        Listening("state_here:Noting", query, group, tmp_path).tell(OWN, 1, has(ALL))

    assert len(told.calls) == 3


def test_a_task_that_had_to_wait_looks_again(
    listening: Listening, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it waited for the lock another one has told what came later."""
    locked = module.locked

    def waiting(path: Path) -> Any:
        monkeypatch.setattr(module, "locked", locked)
        listening.tell(OWN, 2, has(ALL))
        return locked(path)

    monkeypatch.setattr(module, "locked", waiting)
    listening.tell(OWN, 1, not_asked)

    assert told.calls == [("assigned", {FIRST: [SPACE]})]
