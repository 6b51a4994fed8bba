"""Tasks that run again once some of their records are gone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from brokers.real_broker import Record, Topics
from keyrange.errors import KeyrangeError
from keyrange.options import parse_options
from keyrange.source.stream import KeyRangeStreamReader
from spark.sources import options

Rows = list[tuple[int, int]]


def read(reader: KeyRangeStreamReader, tasks: Iterable[Any]) -> Rows:
    """What executors read: task after task, each in offset order."""
    batches = [batch for task in tasks for batch in reader.read(task)]
    columns = [
        (batch.column("partition").to_pylist(), batch.column("offset").to_pylist())
        for batch in batches
    ]
    return sorted(place for p, o in columns for place in zip(p, o, strict=True))


@pytest.mark.parametrize("split", [{}, {"splitBy": "keyRange", "keyRangesPerPartition": "3"}])
@pytest.mark.parametrize("fails", ["true", "false"])
def test_a_stage_that_is_run_again_after_retention_has_moved_on(
    topics: Topics, fails: str, split: dict[str, str]
) -> None:
    """The same rows, or a loss that is named; with failOnDataLoss=false those that are left, of
    which a batch across the log's start, or a chunk on the host, may hold some more."""
    topic = topics.create_topic("again", 2)
    topics.produce(topic, [Record(b"x", b"%d" % n, n % 2) for n in range(40)])
    given = options(
        topics, topic, startingOffsets="earliest", failOnDataLoss=fails, bytesPerTask="0", **split
    )
    reader = KeyRangeStreamReader(parse_options(given, "stream"))
    try:
        start = reader.initialOffset()
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        tasks = list(reader.partitions(start, end))
        before = read(reader, tasks)
        assert before == [(p, at) for p in range(2) for at in range(20)]
        assert read(reader, tasks) == before
        topics.delete_records(topic, {0: 15})
        if fails == "true":
            with pytest.raises(KeyrangeError, match=rf"\[0, 20\).*{topic}-0.*holds \[15, 20\)"):
                read(reader, tasks)
        else:
            left = read(reader, tasks)
            assert len(left) == len(set(left))
            assert {(p, at) for p, at in before if p == 1 or at >= 15} <= set(left) <= set(before)
    finally:
        reader.stop()
