"""Short forms for reading with the source in tests, and what a checkpoint directory holds."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from brokers.real_broker import Topics
from keyrange.embedded.broker import EmbeddedCluster
from keyrange.kafka.cluster import Cluster
from keyrange.kafka.fetching.fetch import SplitReader
from keyrange.kafka.fetching.read_settings import ReadSettings
from keyrange.model.offset_splits import Split
from keyrange.model.offsets import EARLIEST, LATEST
from keyrange.options.kafka_properties import ClientSettings
from keyrange.wire.chunk_decoder import DecodeSettings

Rows = list[tuple[Any, ...]]


def options(topics: Topics, topic: str, **given: str) -> dict[str, str]:
    usual = {"subscribe": topic} if "subscribePattern" not in given else {}
    return {"kafka.bootstrap.servers": topics.cluster.bootstrap_servers, **usual, **given}


def batch(spark: SparkSession, topics: Topics, topic: str, **given: str) -> DataFrame:
    return spark.read.format("keyrange").options(**options(topics, topic, **given)).load()


def stream(spark: SparkSession, topics: Topics, topic: str, **given: str) -> DataFrame:
    return spark.readStream.format("keyrange").options(**options(topics, topic, **given)).load()


class Collected:
    """What a query's batches held: batch id to rows of (topic, partition, offset, value)."""

    def __init__(self) -> None:
        self.batches: dict[int, list[Rows]] = {}

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        rows = frame.select("topic", "partition", "offset", "value").collect()
        self.batches.setdefault(batch_id, []).append(sorted(tuple(row) for row in rows))

    @property
    def rows(self) -> Rows:
        """All rows, each batch once: the last time that it ran."""
        return sorted(row for runs in self.batches.values() for row in runs[-1])

    @property
    def values(self) -> list[bytes]:
        return [bytes(row[3]) for row in self.rows]


def run_available_now(
    frame: DataFrame, checkpoint: Path, sink: Callable[[DataFrame, int], None]
) -> StreamingQuery:
    """Run a query until it has read what is there; raises what it failed with."""
    query = (
        frame.writeStream.foreachBatch(sink)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(240)
    return query


def planned_offsets(checkpoint: Path, batch_id: int) -> dict[str, Any]:
    """The offset of the first source that Spark stored for a batch."""
    text = (checkpoint / "offsets" / str(batch_id)).read_text()
    document: dict[str, Any] = json.loads(text.splitlines()[2])
    return document


def committed(checkpoint: Path) -> list[int]:
    return sorted(int(each.name) for each in (checkpoint / "commits").glob("[0-9]*"))


def client(cluster: EmbeddedCluster, **settings: Any) -> ClientSettings:
    """Client settings for a cluster's PLAINTEXT listeners."""
    servers = []
    for address in cluster.bootstrap_servers.split(","):
        host, _, port = address.rpartition(":")
        servers.append((host, int(port)))
    return ClientSettings(bootstrap_servers=tuple(servers), **settings)


def read_all(
    settings: ClientSettings,
    topic: str,
    decode: DecodeSettings | None = None,
    start: Mapping[int, int] | None = None,
    fail_on_data_loss: bool = True,
) -> dict[int, list[tuple[int, bytes | None]]]:
    """(offset, value) of every record of a topic by partition, read without Spark."""
    cluster = Cluster(settings)
    try:
        view = cluster.describe([topic])
        ends = cluster.list_offsets(view, dict.fromkeys(view.partitions(), LATEST))
        firsts = cluster.list_offsets(view, dict.fromkeys(view.partitions(), EARLIEST))
        splits = [
            Split(place, (start or {}).get(place.partition, firsts[place][0]), ends[place][0], 0)
            for place in view.partitions()
        ]
        how = ReadSettings(decode or DecodeSettings(), fail_on_data_loss, 10_000)
        found: dict[int, list[tuple[int, bytes | None]]] = {p.partition: [] for p in ends}
        for batch in SplitReader(cluster, view, how).read(splits):
            columns = (batch.column(name).to_pylist() for name in ("partition", "offset", "value"))
            for partition, offset, value in zip(*columns, strict=True):
                found[partition].append((offset, value))
        return found
    finally:
        cluster.close()
