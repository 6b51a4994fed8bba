"""What a consumer tells the Kafka group of partitions that it shares with others."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from keyrange.consumer import committed_mirror as module
from keyrange.consumer.committed_mirror import CommittedMirror
from keyrange.consumer.settings import parse_consumer_options
from keyrange.model.key_ranges import SPACE, split_evenly
from keyrange.model.offsets import TopicPartition

WHOLE, SHARED = TopicPartition("t", 0), TopicPartition("t", 1)


def test_the_group_hears_of_a_partition_whose_first_keys_nobody_reads(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The consumer that has them is away, and they are done: the lag that Kafka's tools showed
    stayed until it was back, or others had its ranges."""
    told: list[dict[TopicPartition, int]] = []
    says = SimpleNamespace(mirror=lambda positions, *_: told.append(dict(positions)))
    monkeypatch.setattr(module, "GroupMirror", lambda *_: says)
    times = range(0, 61_000, 1_000)
    passed = iter(times)
    monkeypatch.setattr(module, "passed_ms", lambda: next(passed))
    options = {
        "kafka.bootstrap.servers": "h:1",
        "kafka.group.id": "g",
        "commitTable": str(tmp_path / "commits"),
    }
    cluster: Any = None
    mirror = CommittedMirror(parse_consumer_options(options), cluster)
    works: Any = {
        WHOLE: SimpleNamespace(spans=[SPACE]),
        SHARED: SimpleNamespace(spans=split_evenly(SPACE, 2)[1:]),
    }
    view: Any = SimpleNamespace(epoch=lambda _: 0, topic_ids=dict)
    for at in times:
        log: Any = SimpleNamespace(committed=lambda asked, _, at=at: dict.fromkeys(asked, at))
        mirror.tell(works, log, view, at_once=False)
    assert [each[WHOLE] for each in told] == list(times)
    # In between it is for whoever has the first keys.
    assert [each[SHARED] for each in told if SHARED in each] == [0, 30_000, 60_000]
