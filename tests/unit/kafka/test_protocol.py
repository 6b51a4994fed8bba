"""The edge to kafka-python: its loggers hold no frames, its error codes have names and kinds."""

from __future__ import annotations

import logging

import pytest

from keyrange.kafka import protocol
from keyrange.kafka.protocol import Code


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
    assert protocol.error_name(6) == "NotLeaderForPartitionError"
    assert protocol.error_name(31_999) == "UnrecognizedBrokerError"
