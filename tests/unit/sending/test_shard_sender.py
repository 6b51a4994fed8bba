"""One sender of a query: what it takes over from whoever sent before."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from keyrange.errors import KeyrangeError
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


def sender_behind(known: Mark, monkeypatch: pytest.MonkeyPatch) -> ShardSender:
    monkeypatch.setattr(shard_sender, "MarkedSender", Marked)
    Marked.token = Token(known.offset, known.text)
    address = TopicAddress("out", "out", ClientSettings(), ProducerSettings())
    return ShardSender(address, "keyrange:q:s", "", 0)


def share(mark: Mark, is_made: bool = False) -> Share:
    return Share("keyrange:q:s", "", 0, (), mark, is_made=is_made)


def known_now() -> Mark | None:
    return read_mark(Marked.token.number, Marked.token.text)


def test_how_many_senders_a_query_has_had_is_known_behind_one_that_has_fewer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever takes over has all of them to stop."""
    sender = sender_behind(Mark(0, driver=1, senders=3, plan="a"), monkeypatch)
    sender.send(share(Mark(1, 2, senders=1, plan="b")))
    assert known_now() == Mark(1, 2, senders=3, plan="b")


def test_of_a_later_batch_only_one_that_was_found_is_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is made behind it is of a checkpoint that somebody has set back."""
    later = Mark(5, 1, 1, "a")
    sender = sender_behind(later, monkeypatch)
    sender.send(share(Mark(4, 1, 1, "b")))
    with pytest.raises(KeyrangeError, match="CHECKPOINT_BEHIND"):
        sender.send(share(Mark(4, 1, 1, "b"), is_made=True))
    assert known_now() == later
