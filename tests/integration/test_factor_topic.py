"""A throttle factor that somebody says in a topic of a real broker."""

from __future__ import annotations

from brokers.real_broker import Topics
from keyrange.guard.factor_sources import SaidFactor, open_factor_source
from keyrange.options.volume_checks import parse_volume_options


def test_the_last_record_of_a_topic_is_the_factor(topics: Topics) -> None:
    topic = topics.create_topic("decided")
    options = parse_volume_options(
        {
            "kafka.admin.bootstrap.servers": topics.cluster.bootstrap_servers,
            "throttle.factor.source": "topic",
            "throttle.factor.topic": topic,
        }
    )
    source = open_factor_source(options)
    assert isinstance(source, SaidFactor)
    try:
        for said, factor in ((b"0.25", 0.25), (b" 0.0\n", 0.0), (b"1", 1.0)):
            topics.produce(topic, [said])
            source.check()
            found = source.figures(0).factor
            assert (found.value, found.why) == (factor, f"topic {topic} says {factor:g}")
    finally:
        source.close()
