"""The topic in which somebody says the throttle factor, over a scripted broker."""

from __future__ import annotations

import pytest

from brokers.scripted_broker import Fetched, ScriptedCluster, World
from keyrange.errors import KeyrangeError
from keyrange.guard import factor_topic as module
from keyrange.guard.factor_topic import FactorTopic
from keyrange.options.kafka_properties import ClientSettings
from samples.strategies import Batch, Record, encode_batch

CLIENT = ClientSettings(bootstrap_servers=(("h", 1),))


def topic(monkeypatch: pytest.MonkeyPatch, world: World) -> FactorTopic:
    monkeypatch.setattr(module, "Cluster", lambda _: ScriptedCluster(world))
    return FactorTopic(CLIENT, "t", 5_000)


def said(*values: bytes | None, begin: int = 0) -> World:
    """A log with these values from `begin` on, and 100 offsets at most are asked for."""

    def script(_node: int, partition: int, offset: int) -> Fetched:
        assert (partition, offset) == (0, max(begin, end - 100))
        records = tuple(
            Record(at, value=value) for at, value in enumerate(values[offset - begin :])
        )
        return Fetched(encode_batch(Batch(offset, records)), end)

    end = begin + len(values)
    return World(script, latest=end, earliest=begin)


@pytest.mark.parametrize(
    ("values", "last"),
    [
        ([b"1", b"0.5"], (1, b"0.5")),
        ([b"1", None], (0, b"1")),
        ([b"%d" % number for number in range(300)], (299, b"299")),
    ],
)
def test_the_last_value_counts(
    monkeypatch: pytest.MonkeyPatch, values: list[bytes | None], last: tuple[int, bytes]
) -> None:
    assert topic(monkeypatch, said(*values)).last() == (*last, 1_700_000_000_000)


def test_what_retention_has_left_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    assert topic(monkeypatch, said(b"0.5", begin=41)).last()[:2] == (41, b"0.5")


@pytest.mark.parametrize("values", [[], [None]])
def test_a_topic_without_a_value_says_nothing(
    monkeypatch: pytest.MonkeyPatch, values: list[bytes | None]
) -> None:
    with pytest.raises(ValueError, match="t-0 has no value at its end"):
        topic(monkeypatch, said(*values)).last()


def test_a_topic_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    world = said(b"1")
    world.topic_exists = False
    with pytest.raises(KeyrangeError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        topic(monkeypatch, world).last()
