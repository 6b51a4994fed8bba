"""Names in the commit table: who has ended leaves its own to the next one."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from keyrange.consumer import left_names
from keyrange.consumer.api import Consumer
from keyrange.consumer.commit_log import CommitLog
from keyrange.consumer.leader_epoch_agreement import Turn
from keyrange.consumer.settings import parse_consumer_options
from keyrange.errors import KeyrangeError
from keyrange.individual_commits.model.partition_progress import KeyRangeState
from keyrange.members.coordinator_client import GroupView
from keyrange.members.model.consumer_messages import Interest, write_interest
from keyrange.members.model.group_messages import Peer
from keyrange.model.key_ranges import SPACE, KeyRange, split_evenly
from keyrange.model.offsets import TopicPartition

PREFIX = "g-dynamic-"
FIRST, OTHER = TopicPartition("t", 0), TopicPartition("u", 0)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return tmp_path / "commits"


def options(table: Path) -> dict[str, str]:
    return {"kafka.bootstrap.servers": "h:1", "commitTable": str(table), "commitGroup": "g"}


def commit_log(table: Path, slot: str) -> CommitLog:
    begin = lambda wanted, _later: dict.fromkeys(wanted, 0)  # noqa: E731
    return CommitLog(parse_consumer_options(options(table)), slot, begin)


def started(table: Path, number: int) -> tuple[CommitLog, str | None]:
    """A dynamic consumer that takes everything."""
    made = commit_log(table, f"{PREFIX}{number:08x}")
    name = made.adopt(PREFIX, set)
    made.take({FIRST: [SPACE]}, {})
    return made, name


def goes_on(table: Path, epochs: int = 10) -> None:
    """The group has other things to do."""
    other = commit_log(table, "g-busy")
    for _ in range(epochs):
        other.take({OTHER: [SPACE]}, {})


def test_starts_leave_no_names_behind(table: Path) -> None:
    names = []
    for number in range(4):
        made, name = started(table, number)
        names.append(name)
        made.close()

    assert names == [None, *[f"{PREFIX}00000000"] * 3]
    assert list(commit_log(table, "g-x").claims()) == [f"consumer/g/{PREFIX}00000000"]


def test_one_that_lives_keeps_its_name(table: Path) -> None:
    first, _ = started(table, 1)
    second, name = started(table, 2)

    assert name is None
    # What it had is another's now, since some epochs only.
    goes_on(table, 9)
    assert commit_log(table, "g-x").adopt(PREFIX, set) is None
    first.close()
    assert not commit_log(table, "g-x").claims()[f"consumer/g/{PREFIX}00000001"].closed
    second.close()


def test_one_that_was_killed_leaves_its_name_after_a_while(table: Path) -> None:
    started(table, 1)
    started(table, 2)
    goes_on(table)
    killed = f"{PREFIX}00000001"

    assert commit_log(table, "g-x").adopt("g-other-", set) is None
    assert commit_log(table, "g-x").adopt(PREFIX, lambda: {killed}) is None
    assert commit_log(table, "g-x").adopt(PREFIX, set) == killed


def test_while_nobody_can_say_who_lives_only_closed_names_are_taken(table: Path) -> None:
    started(table, 1)
    second, _ = started(table, 2)
    goes_on(table)

    assert commit_log(table, "g-x").adopt(PREFIX, lambda: None) is None
    second.close()
    assert commit_log(table, "g-x").adopt(PREFIX, lambda: None) == f"{PREFIX}00000002"


@pytest.mark.parametrize(
    ("state", "is_adopted"), [("Stable", False), ("PreparingRebalance", False), ("Empty", True)]
)
def test_a_spare_that_lives_keeps_its_name_in_a_rebalance(
    table: Path, monkeypatch: pytest.MonkeyPatch, state: str, is_adopted: bool
) -> None:
    """While a group rebalances Kafka tells nobody's metadata."""
    spare = f"{PREFIX}00000001"
    commit_log(table, spare).take({FIRST: []}, {})
    metadata = write_interest(Interest(spare, ("t",))) if state == "Stable" else b""
    members = () if state == "Empty" else (Peer("m", None, metadata, "h"),)
    monkeypatch.setattr(left_names, "describe_members", lambda *_: GroupView(state, members))
    goes_on(table)

    consumer = Consumer({**options(table), "memberNames": "dynamic"})
    consumer._settle()
    assert (consumer._name.name == spare) is is_adopted


def test_of_two_who_want_a_name_one_gets_it(table: Path) -> None:
    started(table, 1)
    started(table, 2)
    goes_on(table)
    quick: list[str | None] = []

    def meanwhile() -> set[str]:
        quick.append(commit_log(table, "g-y").adopt(PREFIX, set))
        return set()

    assert commit_log(table, "g-x").adopt(PREFIX, meanwhile) is None
    assert quick == [f"{PREFIX}00000001"]


def test_who_took_a_name_and_has_no_key_range_yet_keeps_it(table: Path) -> None:
    """It has not joined the group so far, and is not seen there."""
    started(table, 1)
    started(table, 2)
    goes_on(table)
    heir, other = commit_log(table, "g-x"), commit_log(table, "g-y")
    assert heir.adopt(PREFIX, set) == f"{PREFIX}00000001"
    assert other.adopt(PREFIX, set) is None
    low, _ = split_evenly(SPACE, 2)
    heir.take({FIRST: [low]}, {})


def test_who_goes_on_has_what_was_done_and_the_one_before_can_change_nothing(table: Path) -> None:
    first, _ = started(table, 1)
    first.close()
    heir = commit_log(table, f"{PREFIX}00000009")
    assert heir.adopt(PREFIX, set) == f"{PREFIX}00000001"
    low, _ = split_evenly(SPACE, 2)
    taken = heir.take({FIRST: [low]}, {})

    assert [piece.span for piece in taken.pieces[FIRST]] == [low]
    with pytest.raises(KeyrangeError, match="COMMITS_FENCED"):
        first.commit({FIRST: [*taken.pieces[FIRST]]})


@pytest.mark.parametrize("ahead_ms", [-3_600_000, 3_600_000])
def test_a_clock_that_stepped_says_nothing_of_who_has_ended(
    table: Path, monkeypatch: pytest.MonkeyPatch, ahead_ms: int
) -> None:
    started(table, 1)
    started(table, 2)
    stepped = lambda: time.time_ns() + 2 * ahead_ms * 1_000_000  # noqa: E731
    monkeypatch.setattr("keyrange.consumer.claim_log.time", type("", (), {"time_ns": stepped}))
    assert commit_log(table, "g-x").adopt(PREFIX, set) is None
    goes_on(table)
    assert commit_log(table, "g-x").adopt(PREFIX, set) == f"{PREFIX}00000001"


def between(monkeypatch: pytest.MonkeyPatch, happens: Callable[[], None]) -> None:
    """Let something happen when the next consumer has read the claims, and has written nothing."""
    check = CommitLog._check_epoch

    def later(self: CommitLog, *arguments: Any) -> None:
        check(self, *arguments)
        monkeypatch.undo()
        happens()

    monkeypatch.setattr(CommitLog, "_check_epoch", later)


def test_a_claim_that_was_made_meanwhile_is_not_wiped_out(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who has the range moved on to another one: that it began there would be forgotten, and what
    it did there."""
    end = [100]
    latest = lambda wanted, _later: dict.fromkeys(wanted, end[0])  # noqa: E731
    settings = parse_consumer_options(options(table))
    moving, taking, after = (CommitLog(settings, slot, latest) for slot in ("x", "z", "y"))
    moving.take({FIRST: [SPACE]}, {})

    def moves_on() -> None:
        end[0] = 200
        assert moving.take({OTHER: [SPACE]}, {}).pieces == {OTHER: [KeyRangeState(SPACE, 200)]}
        moving.commit({OTHER: [KeyRangeState(SPACE, 250)]})

    between(monkeypatch, moves_on)
    assert taking.take({FIRST: [SPACE]}, {}).pieces == {FIRST: [KeyRangeState(SPACE, 100)]}
    end[0] = 900
    moving.commit({OTHER: [KeyRangeState(SPACE, 260)]})
    assert after.committed([OTHER], {}) == {OTHER: 260}
    assert after.take({OTHER: [SPACE]}, {}).pieces == {OTHER: [KeyRangeState(SPACE, 260)]}


@pytest.mark.parametrize("first", [{FIRST: [SPACE]}, {}])
@pytest.mark.parametrize("finds", [True, False])
def test_a_topic_that_a_pattern_finds_later_begins_at_its_beginning(
    table: Path, first: dict[TopicPartition, list[KeyRange]], finds: bool
) -> None:
    """With startingOffsets=latest nobody received what was written before it was found. Topics that
    a program names begin as its options say, and so do all in the group's first epoch."""
    begin = lambda wanted, later: dict.fromkeys(wanted, 0 if later else 100)  # noqa: E731
    settings = parse_consumer_options(options(table))
    consumer, other = (CommitLog(settings, slot, begin) for slot in ("x", "y"))
    third = TopicPartition("v", 0)
    consumer.take(first, {}, Turn(1, finds_topics=finds))
    taken = other.take({third: [SPACE]}, {}, Turn(1, finds_topics=finds))
    assert taken.pieces == {third: [KeyRangeState(SPACE, 100)]}
    taken = consumer.take({**first, OTHER: [SPACE]}, {}, Turn(2, finds_topics=finds))
    assert taken.pieces[OTHER] == [KeyRangeState(SPACE, 0 if finds else 100)]


def test_what_another_did_meanwhile_is_not_done_again(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody had the range when the claims were read, and somebody has when the claim is written:
    its epoch may be the lower one."""
    commit_log(table, "w").take({FIRST: [SPACE]}, {})
    commit_log(table, "v").take({FIRST: []}, {})
    commit_log(table, "w").take({OTHER: [SPACE]}, {})
    quick = commit_log(table, "x")

    def works() -> None:
        quick.take({FIRST: [SPACE]}, {}, Turn(3))
        quick.commit({FIRST: [KeyRangeState(SPACE, 50)]})

    between(monkeypatch, works)
    taken = commit_log(table, "z").take({FIRST: [SPACE]}, {}, Turn(4))
    assert taken.pieces == {FIRST: [KeyRangeState(SPACE, 50)]}
    with pytest.raises(KeyrangeError, match="COMMITS_FENCED"):
        quick.commit({FIRST: [KeyRangeState(SPACE, 60)]})
