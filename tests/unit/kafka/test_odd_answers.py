"""Answers of a broker that leave out what was asked for, tell of something else, or name offsets
that are none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from brokers.loopback_broker import LIST_OFFSETS, METADATA, loopback_cluster
from keyrange.errors import KeyrangeError
from keyrange.kafka.cluster import Cluster
from keyrange.model.offsets import EARLIEST, LATEST
from keyrange.options.kafka_properties import ClientSettings


def without_first(answer: Any) -> None:
    del answer.topics[0].partitions[0]


def of_another(answer: Any) -> None:
    answer.topics[0].name = "other"


def without_topics(answer: Any) -> None:
    answer.topics = []


def at(offset: int) -> Callable[[Any], None]:
    def change(answer: Any) -> None:
        answer.topics[0].partitions[0].offset = offset

    return change


def asked(key: int, change: Callable[[Any], None], times: int, which: int) -> dict[str, int]:
    """The offsets of a topic of two partitions, where so many answers are changed."""
    left = [None] * times

    def changed(of: int, answer: Any) -> None:
        if of == key and left:
            left.pop()
            change(answer)

    with loopback_cluster(partitions=2, latest=20, change=changed) as brokers:
        settings = ClientSettings(bootstrap_servers=brokers.servers, default_api_timeout_ms=1_500)
        cluster = Cluster(settings)
        try:
            view = cluster.describe(["t"])
            assert view.topics.keys() == {"t"}
            found = cluster.list_offsets(view, dict.fromkeys(view.partitions(), which))
        finally:
            cluster.close()
    return {str(partition): offset for partition, (offset, _) in found.items()}


CHANGES = pytest.mark.parametrize(
    ("key", "change"),
    [
        (LIST_OFFSETS, without_first),
        (LIST_OFFSETS, of_another),
        (LIST_OFFSETS, without_topics),
        (METADATA, of_another),
        (METADATA, without_topics),
    ],
)


@CHANGES
def test_what_an_answer_leaves_out_is_asked_for_again(
    key: int, change: Callable[[Any], None]
) -> None:
    assert asked(key, change, 1, LATEST) == {"t-0": 20, "t-1": 20}


@pytest.mark.ordinary
@CHANGES
def test_what_every_answer_leaves_out_is_named(key: int, change: Callable[[Any], None]) -> None:
    with pytest.raises(KeyrangeError, match=r"\[BROKER_ERROR\].* t") as failure:
        asked(key, change, 1_000, LATEST)
    assert "the answer says nothing of it" in str(failure.value)


@pytest.mark.parametrize(
    ("which", "offset"), [(EARLIEST, -1), (EARLIEST, -5), (LATEST, -1), (LATEST, -5), (7, -2)]
)
def test_an_offset_that_is_none_is_no_answer(which: int, offset: int) -> None:
    with pytest.raises(KeyrangeError, match=rf"\[BROKER_ERROR\] .* t-0 is at {offset}"):
        asked(LIST_OFFSETS, at(offset), 1_000, which)


def test_no_record_may_be_behind_a_timestamp() -> None:
    assert asked(LIST_OFFSETS, at(-1), 1, 7)["t-0"] == -1
