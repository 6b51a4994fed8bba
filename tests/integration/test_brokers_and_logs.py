"""Old and new brokers, replicas in another rack, and logs that are damaged or of an old format."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from brokers import Topics
from commanding import run
from documents import read_document
from keyrange.embedded.broker import EmbeddedBroker, EmbeddedCluster
from keyrange.embedded.settings import BrokerSettings
from keyrange.errors import KeyrangeError
from keyrange.kafka.cluster import Cluster
from keyrange.kafka.fetching import fetch_request
from old_brokers import OldBroker
from sources import batch, client, read_all


def numbered(count: int, size: int = 0) -> list[bytes]:
    return [b"%06d" % n + b"x" * size for n in range(count)]


# tests/platforms reads from such brokers in every release.
@pytest.mark.slow
def test_oldest_broker(spark: SparkSession) -> None:
    """Kafka 2.3, with ZooKeeper: no topic ids, Fetch v11, and message format v1 on request."""
    with OldBroker() as broker:
        topics = Topics(broker)
        topic = topics.create_topic("old", 2)
        topics.produce(topic, numbered(500), compression_type="lz4")
        old = topics.create_topic("v1", configs={"message.format.version": "0.10.2"})
        topics.produce(old, [b"x"], enable_idempotence=False)
        rows = batch(spark, topics, topic).select("value").collect()
        with pytest.raises(KeyrangeError) as failure:
            read_all(client(broker), old)
        topics.close()

    assert sorted(bytes(row["value"]) for row in rows) == numbered(500)
    assert str(failure.value).startswith("[UNSUPPORTED_BATCH_VERSION]")
    assert f"topic={old}, partition=0, offset=0" in str(failure.value)


def test_replica_in_the_clients_rack(monkeypatch: pytest.MonkeyPatch) -> None:
    """With client.rack records come from the follower in that rack (KIP-392)."""
    asked: list[int] = []
    connection = Cluster.connection

    with EmbeddedCluster(BrokerSettings(nodes=2, racks=("a", "b"))) as cluster:
        topics = Topics(cluster)
        topic = topics.create_topic("racks", replicas=2)
        topics.produce(topic, numbered(2_000, 100))
        ports = {node.port(): node.node_id for node in cluster.nodes}
        admin = Cluster(client(cluster))
        leader = admin.describe([topic]).topics[topic].leaders[0].node_id
        admin.close()

        def spy(self: Cluster, host: str, port: int, *more: Any, **named: Any) -> object:
            if sys._getframe(1).f_code.co_filename == fetch_request.__file__:
                asked.append(ports[port])
            return connection(self, host, port, *more, **named)

        monkeypatch.setattr(Cluster, "connection", spy)
        for rack in ("a", "b"):
            settings = client(cluster, client_rack=rack, max_partition_fetch_bytes=50_000)
            values = [value for _, value in read_all(settings, topic)[0]]
            assert values == numbered(2_000, 100)
        topics.close()

    assert set(asked) == set(ports.values())
    assert asked.count(leader) < len(asked)


def test_flipped_byte_in_the_log() -> None:
    """The broker does not look; the CRC does. The error names topic, partition and offset."""
    with EmbeddedBroker() as broker:
        topics = Topics(broker)
        topic = topics.create_topic("flipped")
        for value in numbered(30, 50):
            topics.produce(topic, [value])
        topics.close()
        broker.stop()
        log = next(broker.log_dir.glob(f"{topic}-0/*.log"))
        data = bytearray(log.read_bytes())
        data[data.index(b"000017")] ^= 1
        log.write_bytes(data)
        broker.start()
        with pytest.raises(KeyrangeError) as failure:
            read_all(client(broker), topic)
        before = read_all(client(broker), topic, start={0: 18})

    assert str(failure.value).startswith("[CORRUPT_BATCH]")
    assert f"CRC32C does not match its bytes (topic={topic}, partition=0, offset=17)" in str(
        failure.value
    )
    assert [value for _, value in before[0]] == numbered(30, 50)[18:]


def test_open_transaction_is_not_read_past(topics: Topics) -> None:
    """Under read_committed the last stable offset is the end."""
    topic = topics.create_topic("open")
    topics.produce(topic, [b"before"])
    with topics.producer(transactional_id=topic) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"open")
        producer.flush()
        committed = read_all(client(topics.cluster, isolation_level="read_committed"), topic)[0]
        everything = read_all(client(topics.cluster), topic)[0]
        told = doctor(topics, topic)
        producer.abort_transaction()

    assert [value for _, value in committed] == [b"before"]
    assert [value for _, value in everything] == [b"before", b"open"]
    said = r"1 offsets from 1 on are held back from read_committed by an open transaction "
    assert re.search(said + r"of producer \d+ \(epoch 0\), which wrote last \d+ s ago", told), told
    assert "held back" not in doctor(topics, topic)


def doctor(topics: Topics, topic: str) -> str:
    """What `keyrange doctor` says of partition 0."""
    servers = ("--bootstrap-servers", topics.cluster.bootstrap_servers)
    findings = read_document(run("doctor", *servers, "--topic", topic, "--output", "json").stdout)
    return next(str(each["detail"]) for each in findings if each["check"] == f"{topic}-0")


COMPILE = """
import time
began = time.monotonic()
from keyrange.wire import record_kernels
assert record_kernels.crc32c.stats.cache_hits or record_kernels.crc32c.stats.cache_misses
print(sum(record_kernels.index_records.stats.cache_misses.values()))
"""


def test_kernels_are_compiled_once_per_host(tmp_path: Path) -> None:
    """Workers that start together: one compiles, the others wait for it and load."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "TMPDIR": str(tmp_path)}
    workers = [
        subprocess.Popen(
            [sys.executable, "-P", "-c", COMPILE],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    compiled = [int(worker.communicate(timeout=120)[0]) for worker in workers]

    assert sum(compiled) == 1


def test_kernels_without_a_writable_home(tmp_path: Path) -> None:
    """As in many containers: neither the package nor the home directory can be written to."""
    from keyrange.wire import record_kernels

    package = tmp_path / "site" / "keyrange"
    package.parent.mkdir()
    source = Path(record_kernels.__file__).parents[1]
    subprocess.run(["cp", "-r", str(source), str(package)], check=True)
    for cached in package.rglob("*.nb?"):
        cached.unlink()
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("NUMBA")},
        "PYTHONPATH": str(package.parent),
        "PYTHONDONTWRITEBYTECODE": "1",
        "HOME": "/nonexistent",
        "XDG_CACHE_HOME": "/nonexistent",
        "TMPDIR": str(scratch),
        "UNWRITABLE": str(package / "wire"),
    }
    # Root may write anywhere: numba is told that it may not.
    code = (
        "import os, numba.core.caching as c\n"
        "ensure = c._CacheLocator.ensure_cache_path\n"
        "def refuse(self):\n"
        "    if self.get_cache_path().startswith((os.environ['UNWRITABLE'], '/nonexistent')):\n"
        "        raise OSError('read-only')\n"
        "    return ensure(self)\n"
        "c._CacheLocator.ensure_cache_path = refuse\n"
        "from keyrange.wire import record_kernels\n"
        "import numpy as np\n"
        "print(record_kernels.crc32c(np.frombuffer(bytearray(b'123456789'), np.uint8), 0, 9))\n"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )

    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) == 0xE3069283
    private = next(scratch.glob("keyrange-kernels-*"))
    assert list(private.rglob("*.nbi"))
    assert private.stat().st_mode & 0o077 == 0
