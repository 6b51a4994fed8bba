"""Every record that the log of a topic holds, by a client that is not the one under test."""

from __future__ import annotations

import time

from kafka import KafkaConsumer, TopicPartition

from brokers.real_broker import client_config
from nemesis.facts import Place
from nemesis.world import World

_CALL_MS = 60_000
_READ_S = 150.0


def read_log(world: World) -> dict[Place, str]:
    """The key of each record by its place."""
    found: dict[Place, str] = {}
    with KafkaConsumer(**client_config(world.cluster)) as consumer:
        numbers = sorted(consumer.partitions_for_topic(world.topic) or ())
        places = [TopicPartition(world.topic, number) for number in numbers]
        consumer.assign(places)
        consumer.seek_to_beginning(*places)
        # Without a limit either waits for ever for a partition that nobody leads.
        ends = consumer.end_offsets(places, timeout_ms=_CALL_MS)
        until = time.monotonic() + _READ_S
        while unresolved := [place for place in places if _position(consumer, place) < ends[place]]:
            assert time.monotonic() < until, f"{unresolved} are not read in {_READ_S:.0f} s"
            for records in consumer.poll(timeout_ms=1000).values():
                for record in records:
                    n = world.values.content(record.value).n
                    found[Place(record.partition, record.offset, n)] = record.key.decode()
    return found


def _position(consumer: KafkaConsumer, place: TopicPartition) -> int:
    return int(consumer.position(place, timeout_ms=_CALL_MS) or 0)
