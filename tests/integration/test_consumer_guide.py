"""The examples of the guide on the plain consumer do what they say."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from brokers.committed_records import committed_records
from brokers.real_broker import Record, Topics
from keyrange import Consumer, TopicPartition

GUIDE = Path(__file__).parents[2] / "connector" / "guides" / "consumer.md"


def examples(topics: Topics, topic: str, table: Path) -> list[str]:
    """The blocks, over a topic of a test."""
    first, *others = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    for old, new in (
        ("broker:9092", topics.cluster.bootstrap_servers),
        ("/lake/consumer_commits", str(table)),
        ('"prices"', f'"prices-{topic}"'),
    ):
        assert old in first
        first = first.replace(old, new)
    for each in (first, *others):
        assert '["orders"]' in each
    return [each.replace('["orders"]', f'["{topic}"]') for each in (first, *others)]


def test_the_example_works_on_records_until_they_are_done(topics: Topics, tmp_path: Path) -> None:
    topic = topics.create_topic("readme", partitions=2)
    topics.produce(topic, [Record(b"%d" % i, b"key-%d" % (i % 9), i % 2) for i in range(200)])
    code, *_ = examples(topics, topic, tmp_path / "commits")
    worked: list[tuple[int, int]] = []

    def work(row: dict[str, Any]) -> bool:
        worked.append((row["partition"], row["offset"]))
        return row["offset"] != 7

    def running() -> bool:
        return len(worked) < 200

    names: dict[str, Callable[..., Any]] = {"work": work, "running": running}
    exec(code, names)  # noqa: S102
    assert sorted(worked) == [(partition, offset) for partition in (0, 1) for offset in range(100)]
    options: Any = names["options"]
    with Consumer(options) as consumer:
        consumer.assign({TopicPartition(topic, 0): [], TopicPartition(topic, 1): []})
        left = [(r.partition, r.offset) for _ in range(5) for r in consumer.poll_records(200)]
        assert sorted(left) == [(0, 7), (1, 7)]


def test_a_record_that_could_not_be_worked_on_comes_again(topics: Topics, tmp_path: Path) -> None:
    topic = topics.create_topic("readme")
    topics.produce(topic, [Record(b"%d" % i, b"key-%d" % (i % 9)) for i in range(100)])
    before, code, _ = examples(topics, topic, tmp_path / "commits")
    worked: list[int] = []
    answers = iter([False] * 30 + [True, True])
    names: dict[str, Any] = {
        "work": lambda record: worked.append(record.offset),
        "running": lambda: len(worked) < 100,
        "database_is_away": lambda: next(answers, False),
    }
    # The options are in the first block.
    exec(before[: before.index("with ")], names)  # noqa: S102
    exec(code, names)  # noqa: S102
    assert worked == list(range(100))
    with Consumer(names["options"]) as consumer:
        consumer.assign({TopicPartition(topic, 0): []})
        assert consumer.committed((topic, 0)) == 100


def test_what_is_sent_is_committed_with_what_was_read(topics: Topics, tmp_path: Path) -> None:
    topic = topics.create_topic("readme")
    output = topics.create_topic("readme-out")
    topics.produce(topic, [Record(b"some %d" % i, b"key-%d" % (i % 9)) for i in range(100)])
    before, _, code = examples(topics, topic, tmp_path / "commits")
    turns = iter(range(30))
    names: dict[str, Any] = {
        "running": lambda: len(found()) < 100 and next(turns, None) is not None
    }

    def found() -> list[Any]:
        [records] = committed_records(topics, output, 1)
        return records

    # The options are in the first block.
    exec(before[: before.index("with ")], names)  # noqa: S102
    exec(code.replace('"prices"', f'"{output}"'), names)  # noqa: S102
    assert [each.value for each in found()] == [b"SOME %d" % i for i in range(100)]
    with Consumer(names["options"]) as consumer:
        consumer.assign({TopicPartition(topic, 0): []})
        assert consumer.committed((topic, 0)) == 100
