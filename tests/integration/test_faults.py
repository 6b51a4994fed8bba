"""What must be survived: kill -9 of broker, executor, worker, driver; every record once."""

from __future__ import annotations

import re
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from brokers.real_broker import Record, Topics, wait_until
from keyrange.embedded.broker import EmbeddedBroker
from keyrange.guard.client_quotas import alter_quotas
from keyrange.guard.model.quota_entities import EVERY_CLIENT, Alteration
from keyrange.kafka.cluster import Cluster
from keyrange.kafka.fetching.fetch import SplitReader
from keyrange.kafka.fetching.read_settings import ReadSettings
from keyrange.model.offset_splits import Split
from keyrange.model.offsets import TopicPartition
from keyrange.options.kafka_properties import ClientSettings
from keyrange.wire.chunk_decoder import DecodeSettings
from queries.ingesting import Ingest, assert_exactly_once, ingest, kill_when_busy
from spark.sources import committed, run_available_now, stream


@pytest.fixture(scope="module")
def mortal() -> Iterator[Topics]:
    """A broker of this file's own, that may be killed."""
    with EmbeddedBroker() as broker:
        topics = Topics(broker)
        yield topics
        topics.close()


def fill(topics: Topics, partitions: int, count: int, size: int) -> str:
    topic = topics.create_topic("faults", partitions)
    topics.produce(
        topic,
        (Record(b"%012d" % n + b"x" * size, None, n % partitions) for n in range(count)),
        linger_ms=50,
        batch_size=256 * 1024,
    )
    return topic


def connected(topics: Topics) -> Cluster:
    host, _, port = topics.cluster.bootstrap_servers.partition(":")
    return Cluster(
        ClientSettings(bootstrap_servers=((host, int(port)),), max_partition_fetch_bytes=200_000)
    )


@contextmanager
def slow_to_read(topics: Topics) -> Iterator[None]:
    """The broker gives every client 4 MB a second, so that a kill finds tasks in their middle."""
    cluster = connected(topics)
    for rate in (4e6, None):
        alter_quotas(cluster, [Alteration(EVERY_CLIENT, "consumer_byte_rate", rate)], False, 5_000)
        if rate:
            yield
    cluster.close()


def killed_and_restarted(topics: Topics, down_s: float) -> threading.Thread:
    """Kill the broker now; it comes back later on the same port with the same data."""
    topics.close()
    topics.cluster.kill()

    def come_back() -> None:
        time.sleep(down_s)
        topics.cluster.stop()
        topics.cluster.start()

    thread = threading.Thread(target=come_back)
    thread.start()
    return thread


@pytest.mark.slow  # a batch of a query is read on below
def test_broker_killed_in_mid_fetch(mortal: Topics) -> None:
    """A split goes on behind what was already handed over."""
    topic = fill(mortal, 1, 6_000, 500)
    cluster = connected(mortal)
    view = cluster.describe([topic])
    reader = SplitReader(cluster, view, ReadSettings(DecodeSettings(), True, 60_000))
    batches = reader.read([Split(TopicPartition(topic, 0), 0, 6_000, 0)])
    offsets = next(batches).column("offset").to_pylist()
    back = killed_and_restarted(mortal, 2)
    for batch in batches:
        offsets += batch.column("offset").to_pylist()
    back.join()
    cluster.close()

    assert offsets == list(range(6_000))


def test_broker_killed_in_mid_batch(spark: SparkSession, mortal: Topics, tmp_path: Path) -> None:
    """The query waits, reads on and writes every record once."""
    topic = fill(mortal, 2, 6_000, 200)
    table = str(tmp_path / "table")
    backs: list[threading.Thread] = []

    def sink(frame: DataFrame, batch_id: int) -> None:
        if batch_id == 1:
            backs.append(killed_and_restarted(mortal, 2))
        frame.write.format("delta").mode("append").option("txnAppId", topic).option(
            "txnVersion", batch_id
        ).save(table)

    frame = stream(spark, mortal, topic, startingOffsets="earliest", maxOffsetsPerTrigger="2000")
    run_available_now(frame, tmp_path / "checkpoint", sink)
    for back in backs:
        back.join()

    assert len(backs) == 1
    assert_exactly_once(spark, table, 6_000)


def wait_for_version(run: Ingest, version: int, every_s: float) -> None:
    written = run.table / "_delta_log" / f"{version:020}.json"
    deadline = time.monotonic() + 300
    while not written.exists():
        assert run.process.poll() is None, run.text()[-3000:]
        assert time.monotonic() < deadline
        time.sleep(every_s)


@pytest.mark.timeout(1200)
def test_driver_killed_between_data_and_commit_then_stopped_by_sigterm(
    spark: SparkSession, mortal: Topics, tmp_path: Path
) -> None:
    """Batch 1 is in the table and not in Spark's commit log: it is not written twice. The driver
    that goes on ends cleanly on SIGTERM, and a third goes on where it ended: in the session at
    hand, because another driver would spend its time on starting."""
    topic = fill(mortal, 2, 4_000, 100)
    often = ("--trigger", "0 seconds")
    limit = ("--option", "maxOffsetsPerTrigger=1000", *often)
    with ingest(mortal, topic, tmp_path, "local[2]", *limit) as run:
        # Version 0 makes the table, and each batch is a version. Of batch 1 every moment counts.
        wait_for_version(run, 1, 0.05)
        wait_for_version(run, 2, 0.001)
        run.kill_all()
    planned = max(int(each.name) for each in (run.checkpoint / "offsets").glob("[0-9]*"))
    if 1 in committed(run.checkpoint) and planned == 1:
        # The kill came too late by milliseconds: take away what it should have prevented. Behind a
        # batch that is planned already it is no state that a driver leaves.
        # So goes its checksum, which Spark would find in its way.
        for name in ("1", ".1.crc"):
            (run.checkpoint / "commits" / name).unlink(missing_ok=True)
    with ingest(mortal, topic, tmp_path, "local[2]", *often) as again:

        def is_written() -> bool:
            assert again.process.poll() is None, again.text()[-3000:]
            if not re.search(r"batch [2-9]: [\d,]+ records", again.text()):
                return False
            return DeltaTable(str(run.table)).to_pyarrow_dataset().count_rows() == 4_000

        wait_until(is_written, 300)
        again.process.send_signal(signal.SIGTERM)
        code = again.wait(240)
    mortal.produce(topic, [b"%012d" % n for n in range(4_000, 4_100)])
    third = (
        stream(spark, mortal, topic)
        .writeStream.format("delta")
        .option("checkpointLocation", str(run.checkpoint))
        .trigger(availableNow=True)
        .start(str(run.table))
    )
    assert third.awaitTermination(240)

    assert code in (0, 143)
    assert "Traceback" not in again.text()
    assert_exactly_once(spark, str(run.table), 4_100)


# A killed worker, of a query with key ranges, is in test_key_ranges_faults.py; a killed executor in
# test_nemesis.py.
@pytest.mark.slow
@pytest.mark.parametrize("victim", ["executor", "worker"])
def test_executor_killed_in_mid_batch(
    spark: SparkSession, mortal: Topics, tmp_path: Path, victim: str
) -> None:
    """Real executor processes; the batch's tasks run again elsewhere, with the same rows."""
    count = 60_000
    topic = fill(mortal, 4, count, 1_000)
    tasks = ("--option", "bytesPerTask=0", "--available-now")
    with ingest(mortal, topic, tmp_path, "local-cluster[2,1,1024]", *tasks) as run:
        with slow_to_read(mortal):
            killed = kill_when_busy(run, victim)
        code = run.wait()

    assert killed
    assert code == 0, run.text()[-3000:]
    assert_exactly_once(spark, str(run.table), count)
