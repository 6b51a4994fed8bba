"""What the numbers of a group rest on: where records belong in the hash space is one for all
consumers of it, and changes only while everything is done."""

from __future__ import annotations

from pathlib import Path

import pytest

from brokers.scripted_broker import World
from keyrange.consumer.leader_epoch_agreement import Turn
from keyrange.errors import KeyrangeError
from keyrange.model.key_ranges import SPACE, split_evenly
from queries.scripted_consumer import FIRST, a_key_each, commits_fit, done, holding, polled

LOW, HIGH = split_evenly(SPACE, 2)
OTHER = {"nullKeys": "first"}
CHANGED = "COMMIT_TERMS_CHANGED.*nullKeys was spread and is first"


@pytest.fixture
def world() -> World:
    """Logs of ten records, that may grow."""
    made = World(lambda _node, _partition, offset: a_key_each(offset, made.latest), latest=10)
    return made


@pytest.mark.parametrize(
    ("other", "changed"),
    [
        (OTHER, CHANGED),
        ({"keys": '["key-1"]'}, "COMMIT_TERMS_CHANGED.*keys was not given and is sha256:"),
    ],
    ids=["nullKeys", "keys"],
)
def test_who_takes_over_what_is_not_done_is_refused(
    world: World, tmp_path: Path, other: dict[str, str], changed: str
) -> None:
    before, after = holding(world, tmp_path, "a"), holding(world, tmp_path, "b", **other)
    before.take(world.view(), {FIRST: [SPACE]})
    polled(before)
    done(before, 0, 5)

    with pytest.raises(KeyrangeError, match=changed):
        after.take(world.view(), {FIRST: [SPACE]})
    # Nobody's ranges were taken away for it.
    assert done(before, 1) == 1


def test_ranges_that_are_not_equally_far_are_something_left(world: World, tmp_path: Path) -> None:
    low, high = holding(world, tmp_path, "a"), holding(world, tmp_path, "b")
    low.take(world.view(), {FIRST: [LOW]})
    high.take(world.view(), {FIRST: [HIGH]})
    done(low, *polled(low))
    after = holding(world, tmp_path, "c", **OTHER)
    with pytest.raises(KeyrangeError, match=CHANGED):
        after.take(world.view(), {FIRST: [SPACE]})
    done(high, *polled(high))
    after.take(world.view(), {FIRST: [SPACE]})
    assert polled(after) == []
    world.latest = 12
    assert polled(after) == [10, 11]


def test_two_that_live_place_records_alike(world: World, tmp_path: Path) -> None:
    """A record would belong to both, or to none."""
    first, second = holding(world, tmp_path, "a"), holding(world, tmp_path, "b", **OTHER)
    first.take(world.view(), {FIRST: [LOW]})
    with pytest.raises(KeyrangeError, match=CHANGED):
        second.take(world.view(), {FIRST: [HIGH]})
    # With all of the partition there is nobody else.
    second.take(world.view(), {FIRST: [SPACE]})
    polled(first)
    with pytest.raises(KeyrangeError, match="COMMITS_FENCED"):
        done(first, 0)


def test_who_is_no_member_any_more_is_nobody_s_hindrance(world: World, tmp_path: Path) -> None:
    """A group that was stopped as a whole starts again with other options, one by one."""
    low, high = holding(world, tmp_path, "a"), holding(world, tmp_path, "b")
    low.take(world.view(), {FIRST: [LOW]})
    high.take(world.view(), {FIRST: [HIGH]})
    for each in (low, high):
        done(each, *polled(each))
    low, high = holding(world, tmp_path, "a", **OTHER), holding(world, tmp_path, "b", **OTHER)
    with pytest.raises(KeyrangeError, match=f"{CHANGED}.*consumer b"):
        low.take(world.view(), {FIRST: [LOW]}, Turn(members={"a", "b"}))
    low.take(world.view(), {FIRST: [LOW]}, Turn(members={"a"}))
    world.latest = 20
    mine = polled(low)
    done(low, *mine[:2])
    high.take(world.view(), {FIRST: [HIGH]}, Turn(members={"a", "b"}))
    theirs = polled(high)
    assert sorted([*mine, *theirs]) == list(range(10, 20))
    done(low, *mine[2:])
    done(high, *theirs)
    assert high.committed(FIRST) == 20
    assert commits_fit(tmp_path, "a", "b")
