"""One sender of a query: what it takes over from whoever sent before."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from keyrange.kafka.model.sender_messages import Token
from keyrange.options.kafka_properties import ClientSettings
from keyrange.options.producer_properties import ProducerSettings
from keyrange.sending import shard_sender
from keyrange.sending.model.marks import Mark, read_mark
from keyrange.sending.shard_sender import ShardSender, Share
from keyrange.sending.topic_address import TopicAddress


class Marked:
    """As `MarkedSender`, of a Kafka that has one mark."""

    token: Token
    is_started = False

    def __init__(self, *_: object) -> None:
        pass

    def start(self) -> Token:
        self.is_started = True
        return Marked.token

    def send(self, batches: Iterable[object], token: Token) -> None:
        Marked.token = token


def test_how_many_senders_a_query_has_had_is_known_behind_one_that_has_fewer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever takes over has all of them to stop."""
    monkeypatch.setattr(shard_sender, "MarkedSender", Marked)
    before = Mark(0, driver=1, senders=3, plan="a")
    Marked.token = Token(before.offset, before.text)
    address = TopicAddress("out", "out", ClientSettings(), ProducerSettings())
    sender = ShardSender(address, "keyrange:q:s", "", 0)
    sender.send(Share("keyrange:q:s", "", 0, (), Mark(1, 2, senders=1, plan="b")))
    found = read_mark(Marked.token.number, Marked.token.text)
    assert found == Mark(1, 2, senders=3, plan="b")
