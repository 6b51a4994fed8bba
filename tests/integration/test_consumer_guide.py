"""The example of the guide on the plain consumer does what it says."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from brokers import Record, Topics
from keyrange import Consumer, TopicPartition

GUIDE = Path(__file__).parents[2] / "connector" / "guides" / "consumer.md"


def example() -> str:
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    [found] = [block for block in blocks if "keyrange.Consumer(" in block]
    return str(found)


def test_the_example_works_on_records_until_they_are_done(topics: Topics, tmp_path: Path) -> None:
    topic = topics.create_topic("readme", partitions=2)
    topics.produce(topic, [Record(b"%d" % i, b"key-%d" % (i % 9), i % 2) for i in range(200)])
    code = example()
    for old, new in (
        ("broker:9092", topics.cluster.bootstrap_servers),
        ("/lake/consumer_commits", str(tmp_path / "commits")),
        ('["orders"]', f'["{topic}"]'),
        ('"prices"', f'"prices-{topic}"'),
    ):
        assert old in code
        code = code.replace(old, new)
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
