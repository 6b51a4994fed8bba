"""A share of a batch that takes longer to send than a transaction may, and one that its topic takes
no more: each row comes once, in the end."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from kafka.admin import ConfigResource

from brokers.committed_records import (
    client_settings,
    committed_records,
    wait_until_all_are_over,
)
from brokers.real_broker import NEEDS_TRANSACTIONS, Topics
from faults.killed_sender import batches, rows_of
from keyrange.errors import KeyrangeError
from keyrange.kafka.cluster import Cluster
from keyrange.kafka.model.sender_messages import Batch
from keyrange.options.producer_properties import ProducerSettings
from keyrange.sending.model.marks import Mark
from keyrange.sending.open_senders import OpenSenders
from keyrange.sending.shard_sender import Share
from keyrange.sending.topic_address import TopicAddress

pytestmark = [
    pytest.mark.broker,
    NEEDS_TRANSACTIONS,
]
ROWS = 3_000
# Brokers look every 10 s for transactions that are over time.
OVER_TIME_S = 12.0


class Shard:
    """The one of a query; its rows take their time as often as `pauses` says."""

    def __init__(self, topics: Topics, name: str, pauses: int = 0) -> None:
        self.topics, self.topic, self.pauses = topics, topics.create_topic(name, 1), pauses
        self.tries = 0
        # The first half is on its way before the pause.
        own = ProducerSettings(transaction_timeout_ms=1_000, request_bytes=1_000)
        self.senders = OpenSenders(
            TopicAddress(self.topic, self.topic, client_settings(topics), own)
        )
        sender = self.senders.opened("q", self.topic, 0)
        sender.start()
        sender.leave(Mark(-1))

    def __iter__(self) -> Iterator[Batch]:
        self.tries += 1
        made = batches(self.topic, rows_of(0, ROWS), 1)
        half = len(made) // 2
        yield from made[:half]
        if self.pauses:
            self.pauses -= 1
            time.sleep(OVER_TIME_S)
        yield from made[half:]

    def send(self, is_made: bool = True) -> None:
        share = Share("q", self.topic, 0, self, Mark(0, plan="p"), is_made=is_made)
        self.senders.send(share)

    def sent(self) -> list[bytes]:
        wait_until_all_are_over(self.topics, self.topic)
        [found] = committed_records(self.topics, self.topic, 1)
        return [each.value for each in found]


EXPECTED = [b"0:%d" % row for row in range(ROWS)]


@pytest.mark.slow
@pytest.mark.parametrize("bumps_epochs", [False, True], ids=["v1", "v2"])
def test_what_the_broker_has_aborted_is_sent_anew(
    topics: Topics, monkeypatch: pytest.MonkeyPatch, bumps_epochs: bool
) -> None:
    features: Any = Cluster.features if bumps_epochs else lambda _: {}
    monkeypatch.setattr(Cluster, "features", features)
    shard = Shard(topics, "once-late", pauses=1)
    shard.send()
    assert shard.tries == 2
    assert shard.sent() == EXPECTED
    late = Shard(topics, "ever-late", pauses=2)
    with pytest.raises(KeyrangeError, match=r"PRODUCER_FENCED.*raise it"):
        late.send()
    assert late.sent() == []
    late.send(is_made=False)
    assert late.sent() == EXPECTED


def test_what_the_topic_takes_no_more_waits_until_it_takes_it_again(topics: Topics) -> None:
    shard = Shard(topics, "lowered")
    largest = max(each.size_bytes for each in shard)
    _limit(shard, largest - 1)
    with pytest.raises(KeyrangeError, match=rf"MESSAGE_TOO_LARGE\] a batch of {largest} bytes"):
        shard.send()
    assert shard.sent() == []
    _limit(shard, largest)
    shard.send(is_made=False)
    assert shard.sent() == EXPECTED


def _limit(shard: Shard, most: int) -> None:
    limit = ConfigResource("TOPIC", shard.topic, {"max.message.bytes": str(most)})
    shard.topics.admin.alter_configs([limit])
    # The broker takes it up on its own time.
    time.sleep(1)
