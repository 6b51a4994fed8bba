"""A stream that reads only some key ranges: its checkpoint is that of no other ranges."""

from __future__ import annotations

import pytest

from keyrange.errors import InvalidError
from keyrange.model.checkpoint import read_checkpoint
from queries.scripted import EARLIEST_START, PATTERN, ScriptedCluster, planned, session
from queries.scripted_query import Query

LOW = f'{{"t": [[0, {2**62 - 1}]]}}'
LOW_IN_TWO = f'{{"t": {{"0": [[0, 5], [6, {2**62 - 1}]]}}}}'
HIGH = f'{{"t": [[{2**62}, {2**63 - 1}]]}}'


def partial(ranges: str) -> dict[str, str]:
    return {
        "splitBy": "keyRange",
        "keyRanges": ranges,
        "keyRangesCoverage": "partial",
        **EARLIEST_START,
    }


def test_the_ranges_stand_in_the_checkpoint() -> None:
    end = planned(session(ScriptedCluster(100), **partial(LOW)))

    assert end["@keyrange"]["keyRanges"] == {"t": [[0, 2**62 - 1]]}


def test_a_query_of_whole_partitions_says_nothing_of_ranges() -> None:
    end = planned(session(ScriptedCluster(100), splitBy="keyRange", **EARLIEST_START))

    assert "keyRanges" not in end["@keyrange"]


@pytest.mark.parametrize("ranges", [LOW, LOW_IN_TWO])
def test_the_same_hashes_go_on(ranges: str) -> None:
    cluster = ScriptedCluster(100)
    end = planned(session(cluster, **partial(LOW)))
    cluster.latest = 150

    assert session(cluster, **partial(ranges)).latest(end, limited=True)["t"] == {"0": 150}


@pytest.mark.parametrize("options", [partial(HIGH), EARLIEST_START])
def test_other_hashes_are_refused(options: dict[str, str]) -> None:
    """Behind the positions lie records of theirs that nobody has read."""
    cluster = ScriptedCluster(100)
    run = session(cluster, **partial(LOW))
    start = read_checkpoint(run.initial().to_json())
    end = planned(run)

    with pytest.raises(InvalidError, match=r"KEY_RANGES_CHANGED.*\[0, 4611686018427387903\].*t-0"):
        session(cluster, **options).latest(end, limited=True)
    with pytest.raises(InvalidError, match="KEY_RANGES_CHANGED"):
        session(cluster, **options).plan(start, read_checkpoint(end))


def test_a_query_of_whole_partitions_takes_no_part_of_them_later() -> None:
    cluster = ScriptedCluster(100)
    end = planned(session(cluster, **EARLIEST_START))

    with pytest.raises(InvalidError, match="KEY_RANGES_CHANGED"):
        session(cluster, **partial(LOW)).latest(end, limited=True)


def test_a_partition_that_is_not_named_is_refused_before_anything_is_planned() -> None:
    """An end in the checkpoint would say that all its keys are read, and be in the way of the
    ranges that mend it."""
    one = f'{{"t": {{"0": [[0, {2**62 - 1}]]}}}}'
    both = f'{{"t": {{"0": [[0, {2**62 - 1}]], "1": [[0, 5]]}}}}'
    end = planned(session(ScriptedCluster(100), **partial(one)))
    grown = ScriptedCluster(100, partitions=2)

    with pytest.raises(InvalidError, match=r"KEY_RANGES_MISSING.*t-1"):
        session(grown, **partial(one)).latest(end, limited=True)
    mended = session(grown, **partial(both))
    end_of_both = mended.latest(end, limited=True)
    assert end_of_both["t"] == {"0": 100, "1": 100}
    [task] = mended.plan(read_checkpoint(end), read_checkpoint(end_of_both))
    assert [split.partition for split in task.splits] == [1]


def test_a_topic_that_must_not_be_split_is_refused_before_anything_is_planned() -> None:
    cluster = ScriptedCluster(100)
    options = {"splitBy": "offset", "accept.range.fetch": '{"tx": false}', **EARLIEST_START}
    end = planned(session(cluster, PATTERN, **options))
    cluster.topics["tx"] = "b" * 32

    with pytest.raises(InvalidError, match=r"RANGE_FETCH_NOT_ACCEPTED.*tx"):
        session(cluster, PATTERN, **options).latest(end, limited=True)
    unsplit = session(cluster, PATTERN, **EARLIEST_START)
    assert unsplit.latest(end, limited=True)["tx"] == {"0": 100}


@pytest.mark.parametrize(("now", "goes_on"), [(LOW_IN_TWO, True), (HIGH, False), ("", False)])
def test_commits_of_other_hashes_are_not_gone_on_from(now: str, goes_on: bool) -> None:
    before = Query(ScriptedCluster(10), **partial(LOW))
    before.batch()
    options = partial(now) if now else EARLIEST_START
    after = Query(before.cluster, **options, **{"commitTable.onFreshStart": "resume"})
    after.committed = before.committed
    after.offset = after.restarted().initial().to_json()
    after.cluster.latest = 15
    if goes_on:
        assert {split.from_offset for split in after.batch()} == {10}
        return
    with pytest.raises(InvalidError, match=r"KEY_RANGES_CHANGED.*commits.*\[0, 46.*of .*t-0"):
        after.next()
