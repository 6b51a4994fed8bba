"""Where a consumer goes on: seek, pause and what they mean where each record is committed alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from brokers.scripted_broker import World
from keyrange.consumer import reading_order as reading_module
from keyrange.consumer.owned_ranges import OwnedRanges
from keyrange.errors import KeyrangeError
from keyrange.members.range_listener import KeyRangeListener
from keyrange.model.key_ranges import SPACE, split_evenly
from keyrange.model.offsets import TopicPartition
from queries.scripted_consumer import (
    FIRST,
    a_key_each,
    acknowledged,
    commits_fit,
    done,
    holding,
    polled,
)

SECOND = TopicPartition("t", 1)
LOW, HIGH = split_evenly(SPACE, 2)


@pytest.fixture
def world() -> World:
    """Logs of ten records, that may grow."""
    made = World(lambda _node, _partition, offset: a_key_each(offset, made.latest), latest=10)
    return made


@pytest.fixture
def made(world: World, tmp_path: Path) -> OwnedRanges:
    """One that has both partitions, and was handed out nothing."""
    made = holding(world, tmp_path)
    made.take(world.view(), {FIRST: [SPACE], SECOND: [SPACE]})
    return made


def by_partition(made: OwnedRanges) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    while (each := made.next(KeyRangeListener())) is not None:
        found.setdefault(each[0].partition, []).extend(each[1].column("offset").to_pylist())
    return found


class TestSeekBack:
    def test_what_was_not_acknowledged_comes_again_at_once(
        self, made: OwnedRanges, world: World
    ) -> None:
        made.pause([SECOND], pauses=True)
        assert polled(made) == list(range(10))
        acknowledged(made, 5, 7)
        made.seek(FIRST, 4)
        assert made.position(FIRST) == 4
        assert polled(made) == [4, 6, 8, 9]
        assert made.position(FIRST) == 10
        world.latest = 12
        assert polled(made) == [10, 11]
        assert acknowledged(made, *range(12)) == 10
        assert made.commit()[FIRST] == 12

    def test_it_counts_as_no_delivery(self, made: OwnedRanges) -> None:
        for _ in range(20):
            assert polled(made)
            made.seek(FIRST, 0)
            made.seek(SECOND, 0)
        [piece] = made._works[FIRST].pieces()
        assert {each.deliveries for each in piece.pending} <= {0}

    def test_what_is_acknowledged_before_it_has_come_again_does_not_come(
        self, made: OwnedRanges
    ) -> None:
        made.pause([SECOND], pauses=True)
        polled(made)
        made.seek(FIRST, 0)
        assert acknowledged(made, 0, 1, 2) == 3
        assert polled(made) == list(range(3, 10))

    def test_a_round_under_way_is_not_gone_on_with(self, world: World, tmp_path: Path) -> None:
        made = holding(world, tmp_path, maxBatchRows="4")
        made.take(world.view(), {FIRST: [SPACE]})
        first = made.next(KeyRangeListener())
        assert first is not None
        made.seek(FIRST, 2)
        assert first[1].column("offset").to_pylist() == [0, 1, 2, 3]
        assert polled(made) == [2, 3, *range(4, 10)]

    def test_nothing_is_written_for_it(self, made: OwnedRanges, tmp_path: Path) -> None:
        polled(made)
        made.seek(FIRST, 0)
        made.seek(SECOND, 0)
        assert not any(work.changed for work in made._works.values())
        by_partition(made)
        made.seek(FIRST, made.position(FIRST))
        assert not any(work.changed for work in made._works.values())

    def test_committed_records_do_not_come_again(self, made: OwnedRanges) -> None:
        made.pause([SECOND], pauses=True)
        polled(made)
        done(made, 0, 1, 2, 4)
        for offset in (0, 2, -1):
            with pytest.raises(KeyrangeError, match=r"SEEK_REFUSED.*before 3"):
                made.seek(FIRST, offset)
        assert polled(made) == []
        committed = made.committed(FIRST)
        assert committed == 3
        made.seek(FIRST, committed)
        assert polled(made) == [3, 5, 6, 7, 8, 9]

    def test_the_group_s_committed_offset_may_lie_before_what_is_done_here(
        self, world: World, tmp_path: Path
    ) -> None:
        low, high = holding(world, tmp_path, "a"), holding(world, tmp_path, "b")
        low.take(world.view(), {FIRST: [LOW]})
        high.take(world.view(), {FIRST: [HIGH]})
        mine = polled(low)
        done(low, *mine)
        polled(high)
        committed = low.committed(FIRST)
        assert committed is not None
        assert committed < low.commit()[FIRST]
        low.seek(FIRST, committed)
        assert polled(low) == []


class TestSeekForward:
    def test_what_is_passed_over_counts_as_done(
        self, made: OwnedRanges, world: World, tmp_path: Path
    ) -> None:
        made.pause([SECOND], pauses=True)
        made.seek(FIRST, 6)
        assert made.position(FIRST) == 6
        assert made.commit()[FIRST] == 6
        assert polled(made) == [6, 7, 8, 9]
        heir = holding(world, tmp_path, "b")
        heir.take(world.view(), {FIRST: [SPACE]})
        assert polled(heir) == [6, 7, 8, 9]
        assert commits_fit(tmp_path, "a", "b")

    def test_what_was_handed_out_waits_on(
        self, made: OwnedRanges, world: World, tmp_path: Path
    ) -> None:
        """And what is committed then keeps it, whoever goes on."""
        made.pause([SECOND], pauses=True)
        assert polled(made) == list(range(10))
        acknowledged(made, *range(8))
        world.latest = 20
        made.seek(FIRST, 15)
        assert made.commit()[FIRST] == 8
        assert polled(made) == list(range(15, 20))
        heir = holding(world, tmp_path, "b")
        heir.take(world.view(), {FIRST: [SPACE]})
        assert polled(heir) == [8, 9, *range(15, 20)]
        assert commits_fit(tmp_path, "a", "b")

    def test_it_is_committed_also_where_all_that_was_handed_out_waits(
        self, made: OwnedRanges, world: World, tmp_path: Path
    ) -> None:
        made.pause([SECOND], pauses=True)
        polled(made)
        world.latest = 20
        made.seek(FIRST, 15)
        assert made.commit()[FIRST] == 0
        heir = holding(world, tmp_path, "b")
        heir.take(world.view(), {FIRST: [SPACE]})
        assert polled(heir) == [*range(10), *range(15, 20)]

    def test_only_ranges_that_were_not_handed_out_so_far_pass_over(
        self, world: World, tmp_path: Path
    ) -> None:
        """One range of two was taken over from one that is behind."""
        ahead, behind = holding(world, tmp_path, "a"), holding(world, tmp_path, "b")
        ahead.take(world.view(), {FIRST: [LOW]})
        behind.take(world.view(), {FIRST: [HIGH]})
        mine = polled(ahead)
        ahead.move(world.view(), {FIRST: [LOW, HIGH]}, KeyRangeListener())
        ahead.seek(FIRST, 5)
        again = polled(ahead)
        assert sorted(again) == list(range(5, 10))
        assert acknowledged(ahead, *range(10)) == len({*mine, *again})

    def test_nobody_goes_beyond_the_log(self, made: OwnedRanges) -> None:
        made.seek(FIRST, 10)
        with pytest.raises(KeyrangeError, match=r"SEEK_REFUSED.*ends at 10"):
            made.seek(FIRST, 11)
        assert made.position(FIRST) == 10


class TestPause:
    def test_nothing_of_it_comes_until_it_is_resumed(self, made: OwnedRanges) -> None:
        made.pause([FIRST], pauses=True)
        assert made.paused == {FIRST}
        assert by_partition(made) == {1: list(range(10))}
        assert made.next(KeyRangeListener()) is None
        made.pause([FIRST], pauses=False)
        assert made.paused == set()
        assert by_partition(made) == {0: list(range(10))}

    def test_what_was_planned_before_does_not_come(self, world: World, tmp_path: Path) -> None:
        made = holding(world, tmp_path, maxBatchRows="4")
        made.take(world.view(), {FIRST: [SPACE]})
        assert made.next(KeyRangeListener()) is not None
        made.pause([FIRST], pauses=True)
        assert polled(made) == []
        made.pause([FIRST], pauses=False)
        assert polled(made) == list(range(4, 10))

    def test_its_records_are_acknowledged_and_committed(self, made: OwnedRanges) -> None:
        by_partition(made)
        made.pause([FIRST, SECOND], pauses=True)
        assert done(made, *range(10)) == 10
        assert made.commit()[FIRST] == 10

    def test_what_waits_too_long_comes_when_it_is_resumed(
        self, made: OwnedRanges, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        by_partition(made)
        made.pause([FIRST], pauses=True)
        passed_ms = reading_module.passed_ms()
        for module in ("reading_order", "owned_ranges"):
            monkeypatch.setattr(f"keyrange.consumer.{module}.passed_ms", lambda: passed_ms + 10**6)
        assert by_partition(made) == {1: list(range(10))}
        made.pause([FIRST], pauses=False)
        assert by_partition(made) == {0: list(range(10))}

    def test_nothing_of_it_is_given_up(
        self, made: OwnedRanges, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        by_partition(made)
        made.pause([FIRST, SECOND], pauses=True)
        passed_ms = reading_module.passed_ms()
        for module in ("reading_order", "owned_ranges"):
            monkeypatch.setattr(f"keyrange.consumer.{module}.passed_ms", lambda: passed_ms + 10**6)
        for work in made._works.values():
            [stretch] = work._stretches
            stretch.columns[2] = 99
        assert made.next(KeyRangeListener()) is None

    def test_ranges_that_come_to_a_paused_partition_are_paused(
        self, world: World, tmp_path: Path
    ) -> None:
        made = holding(world, tmp_path)
        made.take(world.view(), {FIRST: [LOW]})
        made.pause([FIRST], pauses=True)
        made.move(world.view(), {FIRST: [SPACE]}, KeyRangeListener())
        assert (made.paused, polled(made)) == ({FIRST}, [])

    def test_who_has_lost_a_partition_has_it_back_without_a_pause(
        self, made: OwnedRanges, world: World
    ) -> None:
        made.pause([FIRST, SECOND], pauses=True)
        made.move(world.view(), {SECOND: [SPACE]}, KeyRangeListener())
        assert made.paused == {SECOND}
        made.move(world.view(), {FIRST: [SPACE], SECOND: [SPACE]}, KeyRangeListener())
        assert made.paused == {SECOND}
        made.drop()
        assert made.paused == set()

    def test_who_was_outrun_begins_without_a_pause(self, world: World, tmp_path: Path) -> None:
        first, second = holding(world, tmp_path, "a"), holding(world, tmp_path, "b")
        first.take(world.view(), {FIRST: [SPACE]})
        first.pause([FIRST], pauses=True)
        second.take(world.view(), {FIRST: [SPACE]})
        assert not first.take(world.view(), {FIRST: [SPACE]})
        assert first.paused == set()


class TestWhatIsAsked:
    def test_a_partition_that_is_not_held_is_refused(self, made: OwnedRanges) -> None:
        other = TopicPartition("t", 2)
        calls: Iterator[Any] = iter(
            (
                lambda: made.pause([FIRST, other], pauses=True),
                lambda: made.pause([other], pauses=False),
                lambda: made.seek(other, 0),
                lambda: made.position(other),
            )
        )
        for call in calls:
            with pytest.raises(KeyrangeError, match=r"CONSUMER_STATE.*no key range of t-2"):
                call()
        assert made.paused == set()

    def test_the_position_is_the_least_that_may_come(self, made: OwnedRanges, world: World) -> None:
        assert made.position(FIRST) == 0
        polled(made)
        assert made.position(FIRST) == 10

    def test_what_an_earlier_consumer_has_left_lies_before_the_position(
        self, world: World, tmp_path: Path
    ) -> None:
        first, heir = holding(world, tmp_path, "a"), holding(world, tmp_path, "b")
        first.take(world.view(), {FIRST: [SPACE]})
        polled(first)
        done(first, *(each for each in range(10) if each != 4))
        heir.take(world.view(), {FIRST: [SPACE]})
        assert heir.position(FIRST) == 4

    def test_what_a_group_has_committed_is_told_to_anybody(
        self, made: OwnedRanges, world: World, tmp_path: Path
    ) -> None:
        polled(made)
        done(made, 0, 1)
        other = holding(world, tmp_path, "b")
        assert other.committed(FIRST) == 2
        assert other.committed(TopicPartition("t", 3)) is None
        world.topic_exists = False
        with pytest.raises(KeyrangeError, match="UNKNOWN_TOPIC_OR_PARTITION"):
            holding(world, tmp_path, "c").committed(FIRST)
