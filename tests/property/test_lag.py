"""The arithmetic of lag against a naive count, and against the JVM connector's own example."""

from __future__ import annotations

import json
import statistics

from hypothesis import given
from hypothesis import strategies as st

from keyrange.model.checkpoint import RESERVED
from keyrange.model.offsets import TopicPartition
from keyrange.observing.model.lag import (
    Lag,
    offsets_behind,
    offsets_behind_latest,
    total_behind,
)
from keyrange.observing.model.query_progress import read_source

PLACES = st.builds(TopicPartition, st.sampled_from(["a", "b.c"]), st.integers(0, 3))
POSITIONS = st.dictionaries(PLACES, st.integers(0, 2**62))


@given(consumed=POSITIONS, latest=POSITIONS)
def test_against_a_count_by_hand(
    consumed: dict[TopicPartition, int], latest: dict[TopicPartition, int]
) -> None:
    behind = []
    for place in set(consumed) & set(latest):
        behind.append(latest[place] - consumed[place] if latest[place] > consumed[place] else 0)

    lag = offsets_behind_latest(consumed, latest)

    if not behind:
        assert lag is None
        return
    assert lag is not None
    assert (lag.min_offsets, lag.max_offsets) == (min(behind), max(behind))
    assert lag.total_offsets == sum(behind)
    assert lag.avg_offsets == float(statistics.mean(behind))


def nested(positions: dict[TopicPartition, int]) -> dict[str, dict[str, int]]:
    document: dict[str, dict[str, int]] = {}
    for (topic, number), offset in positions.items():
        document.setdefault(topic, {})[str(number)] = offset
    return document


@given(consumed=POSITIONS, latest=POSITIONS, as_text=st.booleans(), marked=st.booleans())
def test_the_same_from_a_progress(
    consumed: dict[TopicPartition, int],
    latest: dict[TopicPartition, int],
    as_text: bool,
    marked: bool,
) -> None:
    """Whether Spark hands the offsets over as JSON text or parsed; a reserved key is no topic."""
    mark = {RESERVED: {"version": 1, "initial": nested(latest)}}
    end, ends = {**mark, **nested(consumed)}, {**(mark if marked else {}), **nested(latest)}
    source = {
        "description": "d",
        "endOffset": json.dumps(end) if as_text else end,
        "latestOffset": json.dumps(ends) if as_text else ends,
    }
    read = read_source(0, source)
    assert read is not None
    assert read.lag == offsets_behind_latest(consumed, latest)
    assert read.ends == latest
    assert read.behind == {
        place: max(latest[place] - consumed[place], 0) for place in consumed.keys() & latest.keys()
    }


@given(consumed=POSITIONS, latest=POSITIONS, held=POSITIONS)
def test_the_commit_lag_counts_from_what_was_pending(
    consumed: dict[TopicPartition, int],
    latest: dict[TopicPartition, int],
    held: dict[TopicPartition, int],
) -> None:
    """The committed offset of a partition without pending records is its read position."""
    uncommitted = {
        place: min(at, consumed[place]) for place, at in held.items() if place in consumed
    }
    metrics = {"commits": {"committed": nested(uncommitted)}}
    source = {
        "endOffset": {RESERVED: {"version": 1}, **nested(consumed)},
        "latestOffset": {RESERVED: {"metrics": metrics}, **nested(latest)},
    }
    read = read_source(0, source)
    assert read is not None
    assert read.commit_lag == offsets_behind_latest({**consumed, **uncommitted}, latest)
    if read.lag is not None and read.commit_lag is not None:
        assert read.lag.total_offsets <= read.commit_lag.total_offsets


def test_what_is_not_known_does_not_count() -> None:
    assert (offsets_behind(3, 10), offsets_behind(10, 3)) == (7, 0)
    assert offsets_behind(None, 10) is offsets_behind(3, None) is None
    assert (total_behind([None, 3, 4]), total_behind([None]), total_behind([])) == (7, None, None)


def test_the_jvm_connectors_example() -> None:
    first, second = TopicPartition("t", 0), TopicPartition("t", 1)
    lag = offsets_behind_latest({first: 1, second: 2}, {first: 3, second: 6})
    assert lag == Lag(min_offsets=2, max_offsets=4, avg_offsets=3.0, total_offsets=6)


def test_without_positions_or_ends_there_is_none() -> None:
    place = {TopicPartition("t", 0): 1}
    assert offsets_behind_latest({}, place) is None
    assert offsets_behind_latest(place, {}) is None
    assert offsets_behind_latest({}, {}) is None
