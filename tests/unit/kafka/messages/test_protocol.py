"""The edge to kafka-python: its loggers hold no frames, its error codes have names and kinds."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from kafka.protocol.metadata import FindCoordinatorResponse

from keyrange.kafka.messages import protocol
from keyrange.kafka.messages.protocol import Code


@pytest.mark.parametrize("name", ["kafka.net.connection", "kafka.protocol.parser"])
def test_frames_are_not_logged_even_at_debug(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """They hold passwords and records; a user who sets the level to DEBUG gets none either."""
    with caplog.at_level(logging.DEBUG, logger=name):
        logging.getLogger(name).debug("Send: %r", b"hunter2")
        logging.getLogger(name).info("Starting with configuration %s", {"password": "hunter2"})
        logging.getLogger(name).info("Connected")

    assert "hunter2" not in caplog.text
    assert "Connected" in caplog.text


def test_kafka_loggers_do_not_inherit_debug() -> None:
    root = logging.getLogger()
    before = root.level
    root.setLevel(logging.DEBUG)
    try:
        assert not logging.getLogger("kafka.cluster").isEnabledFor(logging.DEBUG)
    finally:
        root.setLevel(before)


@pytest.mark.parametrize("code", [2, 5, 6, 7, 9, 13, 56, 74, 75, 78])
def test_what_passes_by_itself_is_retriable(code: int) -> None:
    assert protocol.is_retriable(code)


@pytest.mark.parametrize("code", [Code.TOPIC_AUTHORIZATION_FAILED, 17, 35, 43])
def test_what_does_not_pass_is_not_retriable(code: int) -> None:
    assert not protocol.is_retriable(code)


def test_codes_have_names() -> None:
    assert protocol.error_name(Code.OFFSET_OUT_OF_RANGE) == "OFFSET_OUT_OF_RANGE"
    assert protocol.error_name(6) == "NOT_LEADER_FOR_PARTITION"
    assert protocol.error_name(Code.UNKNOWN_MEMBER_ID) == "UNKNOWN_MEMBER_ID"
    assert protocol.error_name(Code.STALE_MEMBER_EPOCH) == "STALE_MEMBER_EPOCH"
    assert protocol.error_name(31_999) == "UNKNOWN (31999)"


# What a broker of Kafka 2.3.1, and one of 4.3.1, say that they speak.
OLD = {3: (0, 8), 8: (0, 7), 9: (0, 5), 10: (0, 2), 23: (0, 3)}
NEW = {3: (0, 13), 8: (2, 10), 9: (1, 10), 10: (0, 6), 23: (2, 4)}
MESSAGES = (
    protocol.metadata(()),
    protocol.find_coordinator("g"),
    protocol.offset_fetch("g", {}),
    protocol.offset_commit("g", {}, ""),
    protocol.offset_for_leader_epoch({}),
)


@pytest.mark.parametrize("spoken", [OLD, NEW], ids=["2.3.1", "4.3.1"])
@pytest.mark.parametrize("request_", MESSAGES, ids=lambda request: request.name)
def test_old_and_new_brokers_speak_a_version(
    request_: Any, spoken: dict[int, tuple[int, int]]
) -> None:
    least, most = protocol.SPOKEN[request_.name]
    low, high = spoken[request_.API_KEY]
    assert max(low, least) <= min(high, most)


def versions(made: Any) -> range:
    least, most = protocol.SPOKEN[made.name]
    return range(least, most + 1)


def requests(made: Any) -> Iterator[dict[str, Any]]:
    """What a broker reads out of a request, in every version that is spoken."""
    for version in versions(made):
        sent = protocol.encode(made, version, 7, "me")
        read = type(made).decode(sent, version=version, header=True, framed=True)
        assert (read.header.correlation_id, read.header.client_id) == (7, "me")
        yield read.to_dict(meta=False)


def test_metadata_of_all_topics_is_not_that_of_none() -> None:
    for topics, expected in ((None, None), ([], [])):
        for read in requests(protocol.metadata(topics)):
            assert read["topics"] == expected
            assert read["allow_auto_topic_creation"] is False


def test_a_coordinator_is_asked_for_by_group() -> None:
    for read in requests(protocol.find_coordinator("g")):
        assert (read["key"], read["key_type"]) == ("g", 0)


def test_offset_fetch_names_group_and_partitions() -> None:
    made = protocol.offset_fetch("g", {"t": [0, 2], "u": [1]})
    for read in requests(made):
        assert read["group_id"] == "g"
        assert [(each["name"], each["partition_indexes"]) for each in read["topics"]] == [
            ("t", [0, 2]),
            ("u", [1]),
        ]
        assert read.get("require_stable", True) is True


def test_offset_commit_is_of_no_member() -> None:
    made = protocol.offset_commit("g", {"t": [(0, (2**40, 3)), (1, (0, -1))]}, "who")
    for read in requests(made):
        assert (read["group_id"], read["generation_id_or_member_epoch"]) == ("g", -1)
        assert (read["member_id"], read.get("group_instance_id")) == ("", None)
        [topic] = read["topics"]
        assert [
            (each["partition_index"], each["committed_offset"], each["committed_leader_epoch"])
            for each in topic["partitions"]
        ] == [(0, 2**40, 3), (1, 0, -1)]


def test_offset_for_leader_epoch_comes_from_a_consumer() -> None:
    made = protocol.offset_for_leader_epoch({"t": [(4, (9, 7))]})
    for read in requests(made):
        assert read.get("replica_id", -1) == -1
        [topic] = read["topics"]
        [one] = topic["partitions"]
        assert topic["topic"] == "t"
        assert (one["partition"], one["current_leader_epoch"], one["leader_epoch"]) == (4, 9, 7)


def test_an_answer_is_read_behind_its_header() -> None:
    """In old and flexible versions, which have headers of different lengths."""
    asked = protocol.find_coordinator("g")
    for version in versions(asked):
        protocol.encode(asked, version, 7, "me")
        given = FindCoordinatorResponse(
            error_code=0, error_message=None, node_id=1, host="h", port=9
        )
        given.API_VERSION = version
        given.with_header(correlation_id=7)
        read = protocol.decode(asked.header, memoryview(given.encode(header=True)))
        assert (read.error_code, read.host, read.port) == (0, "h", 9)
