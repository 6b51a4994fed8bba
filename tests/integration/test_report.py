"""`keyrange report` where it asks a real broker."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from brokers.real_broker import Record, Topics
from keyrange.cli.report.report_inputs import Collector, ReportWhere
from keyrange.report.sections.batches import batches_of
from keyrange.report.sections.lag import standings
from samples.commit_samples import BEGAN_MS, QUERY

pytestmark = pytest.mark.broker


def checkpoint(path: Path, topic: str, *ends: int) -> Path:
    """Batches of the first partition of a topic that end there; the last one is not committed."""
    for name in ("offsets", "commits"):
        (path / name).mkdir(parents=True)
    (path / "metadata").write_text(json.dumps({"id": QUERY}))
    for number, end in enumerate(ends):
        extra = {"version": 1, "initial": {topic: {"0": 0}}} if number == 0 else {"version": 1}
        head = json.dumps({"batchTimestampMs": BEGAN_MS + number * 1000})
        text = json.dumps({"@keyrange": extra, topic: {"0": end}})
        (path / f"offsets/{number}").write_text(f"v1\n{head}\n{text}")
        if number + 1 < len(ends):
            (path / f"commits/{number}").write_text("v1\n{}")
    return path


def test_kafka_says_how_far_the_query_is_behind_and_how_batches_are_read(
    topics: Topics, tmp_path: Path
) -> None:
    topic = topics.create_topic("report", 1)
    topics.produce(topic, [Record(b"v" * 200, b"key-%d" % (at % 37)) for at in range(1_000)])
    named = {
        "kafka.bootstrap.servers": topics.cluster.bootstrap_servers,
        "splitBy": "keyRange",
        "parallelism": "4",
        "bytesPerTask": "0",
        "max.bytes.key.range.results": "0",
        # What a query has, and a look at its cluster does not need.
        "subscribe": topic,
        "maxOffsetsPerTrigger": "100",
    }
    where = ReportWhere(
        checkpoint=str(checkpoint(tmp_path / "query", topic, 300, 700)),
        source=None,
        batches=10,
        progress="",
        commits="",
        members="",
        letters="",
        group="",
        named=named,
    )
    found = Collector(where).collect()
    assert (found.ends.failure, found.ends.remarks) == ("", ())
    [standing] = standings(found)
    assert (standing.committed, standing.planned, standing.log_end) == (300, 700, 1_000)
    assert (standing.commit_lag, standing.known_by) == (700, "Kafka")
    # As `keyrange watch` has it of the same cluster.
    facts = dict(found.state.facts)
    assert facts["read lag"].startswith("700 (now), ")
    assert facts["commit lag"].startswith("700")
    assert found.state.text.startswith("stuck since 2026-05-28")
    first, second = batches_of(found)
    assert first.bytes is not None
    assert second.bytes is not None
    assert 200 * 300 < first.bytes < 300 * 300
    assert second.bytes == pytest.approx(first.bytes * 4 / 3, rel=0.01)
    assert first.amplification is not None
    assert first.amplification >= 1
    # What the topic was given since is to be read as well.
    topics.add_partitions(topic, 2)
    topics.produce(topic, [Record(b"v", partition=1)] * 5)
    facts = dict(Collector(where).collect().state.facts)
    assert facts["read lag"].startswith("705 (now), ")
