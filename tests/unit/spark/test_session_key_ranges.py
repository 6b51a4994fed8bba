"""A stream that reads only some key ranges: its checkpoint is that of no other ranges."""

from __future__ import annotations

import pytest

from keyrange.core.checkpoint import read_checkpoint
from keyrange.errors import InvalidError
from scripted import EARLIEST_START, ScriptedCluster, planned, session

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


def test_a_partition_that_is_not_named_is_refused() -> None:
    cluster = ScriptedCluster(100, partitions=2)
    one = partial(f'{{"t": {{"0": [[0, {2**62 - 1}]]}}}}')
    run = session(cluster, **one)
    start, end = run.initial(), read_checkpoint(planned(run))

    with pytest.raises(InvalidError, match=r"KEY_RANGES_MISSING.*t-1"):
        run.plan(start, end)
