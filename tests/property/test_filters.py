"""Pushed filters against filtering by hand: no row that satisfies them is left out of what is read.

Records have timestamps in any order, as producers may write them, and filters hold what Spark may
pass: nulls, times between two milliseconds, columns and operators that say nothing.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, NamedTuple

from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringStartsWith,
)

from keyrange.model.offsets import OffsetRange, TopicPartition
from keyrange.source.batch import narrow
from keyrange.source.model.filters import constrain
from keyrange.source.pushdown import conditions
from samples import strategies  # noqa: F401  the profiles of hypothesis

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ZONES = [UTC, timezone(timedelta(hours=5, minutes=45)), timezone(timedelta(hours=-11))]


class Row(NamedTuple):
    topic: str
    partition: int
    offset: int
    timestamp: datetime


Log = dict[TopicPartition, dict[int, int]]  # offset to timestamp in ms, with gaps

PLACES = [TopicPartition(topic, number) for topic in ("a", "ab", "b") for number in range(3)]
MILLISECONDS = st.integers(-2, 12)
logs = st.dictionaries(
    st.sampled_from(PLACES),
    st.dictionaries(st.integers(0, 12), MILLISECONDS, min_size=1, max_size=8),
    max_size=5,
)


@st.composite
def instants(draw: Any) -> datetime:
    microseconds = draw(MILLISECONDS) * 1000 + draw(st.sampled_from([0, 0, 1, 500, 999]))
    instant = EPOCH + timedelta(microseconds=microseconds)
    return instant.astimezone(draw(st.sampled_from(ZONES)))


VALUES: dict[str, st.SearchStrategy[Any]] = {
    "topic": st.sampled_from(["a", "ab", "b", "c", "", "ä"]),
    "partition": st.integers(-1, 3),
    "offset": st.integers(-1, 13),
    "timestamp": instants(),
}
COMPARE = {
    EqualTo: operator.eq,
    EqualNullSafe: operator.eq,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
}


@st.composite
def filters(draw: Any) -> Filter:
    column = draw(st.sampled_from(sorted(VALUES)))
    values = VALUES[column]
    kinds = [*COMPARE, In, IsNull, IsNotNull, *([StringStartsWith, StringContains] * 2)]
    kind = draw(st.sampled_from(kinds))
    if kind in (IsNull, IsNotNull):
        made = kind((column,))
    elif kind in (StringStartsWith, StringContains):
        made = kind(("topic",), draw(VALUES["topic"]))
    elif kind is In:
        made = In((column,), tuple(draw(st.lists(st.none() | values, max_size=3))))
    else:
        made = kind((column,), draw(st.one_of(values, values, values, st.none())))
    return Not(made) if draw(st.booleans()) else made


def truth(given: Filter, row: Row) -> bool | None:
    """SQL's answer; None is its null."""
    if isinstance(given, Not):
        answer = truth(given.child, row)
        return None if answer is None else not answer
    actual = getattr(row, given.attribute[0])
    if isinstance(given, IsNull | IsNotNull):
        return isinstance(given, IsNotNull)
    if isinstance(given, In):
        if actual in given.value:
            return True
        return None if None in given.value else False
    if given.value is None:
        return False if isinstance(given, EqualNullSafe) else None
    if isinstance(given, StringStartsWith):
        return actual.startswith(given.value)
    if isinstance(given, StringContains):
        return given.value in actual
    return COMPARE[type(given)](actual, given.value)


class KafkaCluster:
    """Answers a question by time as Kafka does: the first offset that is not older, or -1."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.asked: list[TopicPartition] = []

    def list_offsets(
        self, view: object, wanted: Mapping[TopicPartition, int], isolation_level: int
    ) -> dict[TopicPartition, tuple[int, int]]:
        assert isolation_level == 0
        assert all(timestamp_ms > 0 for timestamp_ms in wanted.values())
        self.asked += wanted
        return {
            partition: (
                min((at for at, ms in self.log[partition].items() if ms >= from_ms), default=-1),
                0,
            )
            for partition, from_ms in wanted.items()
        }


@given(log=logs, given_filters=st.lists(filters(), max_size=4), data=st.data())
def test_no_row_that_satisfies_the_filters_is_left_out(
    log: Log, given_filters: list[Filter], data: st.DataObject
) -> None:
    ranges = {}
    for partition in log:
        low, high = sorted((data.draw(st.integers(0, 13)), data.draw(st.integers(0, 13))))
        if low < high:
            ranges[partition] = OffsetRange(low, high)
    cluster = KafkaCluster(log)

    read = narrow(cluster, None, ranges, constrain(conditions(given_filters)))

    for partition, span in read.items():
        whole = ranges[partition]
        assert whole.from_offset <= span.from_offset < span.until_offset <= whole.until_offset
    assert len(cluster.asked) == len(set(cluster.asked))
    for partition, records in log.items():
        for offset, ms in records.items():
            row = Row(*partition, offset, EPOCH + timedelta(milliseconds=ms))
            span = ranges.get(partition)
            if span is None or not span.from_offset <= offset < span.until_offset:
                continue
            if all(truth(each, row) for each in given_filters):
                assert partition in read
                assert read[partition].from_offset <= offset < read[partition].until_offset


@given(log=logs, given_filters=st.lists(filters(), max_size=4))
def test_only_offsets_that_the_filters_allow_are_read(
    log: Log, given_filters: list[Filter]
) -> None:
    """A range is as narrow as comparisons of topic, partition and offset say."""
    known = [each for each in given_filters if type(each) in COMPARE and each.value is not None]
    places = [each for each in known if each.attribute[0] in ("topic", "partition")]
    offsets = [each for each in known if each.attribute[0] == "offset"]
    whole = dict.fromkeys(log, OffsetRange(0, 13))

    read = narrow(KafkaCluster(log), None, whole, constrain(conditions([*places, *offsets])))

    for partition in log:
        allowed = [
            offset
            for offset in range(13)
            if all(truth(each, Row(*partition, offset, EPOCH)) for each in [*places, *offsets])
        ]
        expected = OffsetRange(allowed[0], allowed[-1] + 1) if allowed else None
        assert read.get(partition) == expected
