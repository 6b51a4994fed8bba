"""Every record that the log of a topic holds, by a client that is not the one under test."""

from __future__ import annotations

from kafka import KafkaConsumer, TopicPartition

from brokers import client_config
from nemesis.facts import Place
from nemesis.work import content
from nemesis.world import World


def read_log(world: World) -> dict[Place, str]:
    """The key of each record by its place."""
    found: dict[Place, str] = {}
    with KafkaConsumer(**client_config(world.cluster)) as consumer:
        numbers = sorted(consumer.partitions_for_topic(world.topic) or ())
        places = [TopicPartition(world.topic, number) for number in numbers]
        consumer.assign(places)
        consumer.seek_to_beginning(*places)
        ends = consumer.end_offsets(places)
        while any(consumer.position(place) < ends[place] for place in places):
            for records in consumer.poll(timeout_ms=1000).values():
                for record in records:
                    n = content(record.value).n
                    found[Place(record.partition, record.offset, n)] = record.key.decode()
    return found
