"""Fetch responses: the same as kafka-python's message, and never another exception."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.consumer import FetchResponse as KafkaFetchResponse

from keyrange.errors import CorruptError
from keyrange.wire.fetch_response import (
    AbortedTransaction,
    FetchedPartition,
    FetchResponse,
    parse_fetch_response,
)

Topic = KafkaFetchResponse.FetchableTopicResponse
Partition = Topic.PartitionData
VERSIONS = (11, 12, 13)

int16 = st.integers(-(2**15), 2**15 - 1)
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
transactions = st.lists(
    st.builds(Partition.AbortedTransaction, producer_id=int64, first_offset=int64), max_size=3
)
partitions = st.fixed_dictionaries(
    {
        "partition_index": int32,
        "error_code": int16,
        "high_watermark": int64,
        "last_stable_offset": int64,
        "log_start_offset": int64,
        "aborted_transactions": st.none() | transactions,
        "preferred_read_replica": int32,
        "records": st.none() | st.binary(max_size=200),
    }
)
# What only versions from 12 on carry, as tagged fields.
tagged = st.fixed_dictionaries(
    {},
    optional={
        "diverging_epoch": st.builds(Partition.EpochEndOffset, epoch=int32, end_offset=int64),
        "current_leader": st.builds(
            Partition.LeaderIdAndEpoch, leader_id=int32, leader_epoch=int32
        ),
        "snapshot_id": st.builds(Partition.SnapshotId, end_offset=int64, epoch=int32),
    },
)


def message(version: int, topics: list[tuple[str, uuid.UUID, list[dict[str, Any]]]]) -> Any:
    responses = [
        Topic(topic=name, topic_id=key, partitions=[Partition(**each) for each in members])
        for name, key, members in topics
    ]
    return KafkaFetchResponse(
        throttle_time_ms=7, error_code=-3, session_id=9, responses=responses, version=version
    )


@st.composite
def messages(draw: Any) -> tuple[int, Any]:
    version = draw(st.sampled_from(VERSIONS))
    extra = tagged if version >= 12 else st.just({})
    member = st.builds(lambda plain, more: plain | more, partitions, extra)
    topic = st.tuples(st.text(min_size=1, max_size=200), st.uuids(), st.lists(member, max_size=3))
    return version, message(version, draw(st.lists(topic, max_size=3)))


def as_parsed(buffer: bytes, version: int, sent: Any) -> FetchResponse:
    """What is to come of kafka-python's message; where its records lie is taken as parsed."""
    parsed = parse_fetch_response(memoryview(buffer), version)
    places = iter(parsed.partitions)
    expected = []
    for topic in sent.responses:
        for each in topic.partitions:
            place = next(places)
            records = bytes(buffer[place.records_at : place.records_end])
            assert records == (each.records or b"")
            expected.append(
                FetchedPartition(
                    topic.topic if version < 13 else topic.topic_id.hex,
                    each.partition_index,
                    each.error_code,
                    each.high_watermark,
                    each.last_stable_offset,
                    each.preferred_read_replica,
                    tuple(
                        AbortedTransaction(entry.producer_id, entry.first_offset)
                        for entry in each.aborted_transactions or ()
                    ),
                    place.records_at,
                    place.records_end,
                )
            )
    return FetchResponse(sent.throttle_time_ms, sent.error_code, tuple(expected))


@given(messages())
def test_a_response_parses_to_what_kafka_python_wrote(sent: tuple[int, Any]) -> None:
    version, response = sent
    buffer = bytes(response.encode(version=version))
    assert parse_fetch_response(memoryview(buffer), version) == as_parsed(buffer, version, response)


def typical(version: int) -> bytes:
    member = {
        "partition_index": 3,
        "error_code": 0,
        "high_watermark": 10,
        "last_stable_offset": 10,
        "log_start_offset": 0,
        "aborted_transactions": [Partition.AbortedTransaction(producer_id=7, first_offset=3)],
        "preferred_read_replica": -1,
        "records": bytes(range(200)),
    }
    if version >= 12:
        member["current_leader"] = Partition.LeaderIdAndEpoch(leader_id=1, leader_epoch=2)
    topics = [(name, uuid.uuid5(uuid.NAMESPACE_DNS, name), [member] * 2) for name in ("a", "b")]
    return bytes(message(version, topics).encode(version=version))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_response_cut_off_at_any_byte_is_a_corrupt_frame(version: int) -> None:
    whole = typical(version)
    for size in range(len(whole)):
        with pytest.raises(CorruptError) as caught:
            parse_fetch_response(memoryview(whole[:size]), version)
        assert caught.value.condition.name == "CORRUPT_FRAME"


def parse_or_none(data: bytes, version: int) -> FetchResponse | None:
    """None for a corrupt frame; anything else that is raised fails the test."""
    condition = "CORRUPT_FRAME"
    try:
        return parse_fetch_response(memoryview(data), version)
    except CorruptError as failure:
        condition = failure.condition.name
    assert condition == "CORRUPT_FRAME"
    return None


@given(st.sampled_from(VERSIONS), st.data())
def test_a_response_with_bytes_changed_is_refused_or_stays_inside(
    version: int, data: st.DataObject
) -> None:
    bad = bytearray(typical(version))
    for _ in range(data.draw(st.integers(1, 4))):
        bad[data.draw(st.integers(0, len(bad) - 1))] = data.draw(st.integers(0, 255))
    parsed = parse_or_none(bytes(bad), version)
    for each in parsed.partitions if parsed else ():
        assert 0 <= each.records_at <= each.records_end <= len(bad)


@given(st.sampled_from(VERSIONS), st.binary(max_size=300))
def test_bytes_of_any_kind_raise_nothing_but_a_corrupt_frame(version: int, data: bytes) -> None:
    parse_or_none(data, version)


@pytest.mark.parametrize(
    ("version", "data"),
    [
        (11, b"\0" * 10 + b"\x7f\xff\xff\xff"),
        (12, b"\0" * 10 + b"\xff\xff\xff\xff\x0f"),
        (12, b"\0" * 10 + b"\xff" * 12),
        (12, b"\0" * 10 + b"\x80" * 5 + b"\0\0"),
        (12, b"\0" * 10 + b"\x01\xff\xff\xff\xff\x0f"),
    ],
)
def test_hostile_counts_are_refused_at_once(version: int, data: bytes) -> None:
    """Two thousand million topics or tags, or a number that does not end."""
    with pytest.raises(CorruptError, match="CORRUPT_FRAME"):
        parse_fetch_response(memoryview(data), version)
