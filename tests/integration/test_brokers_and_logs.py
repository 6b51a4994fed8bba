"""Old and new brokers, logs that are damaged or of an old format, and where kernels are kept."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from brokers.old_brokers import OldBroker
from brokers.real_broker import Topics, flip_byte
from commands.commanding import run
from commands.documents import read_document
from keyrange.errors import KeyrangeError
from spark.sources import batch, client, read_all


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


def test_flipped_byte_in_the_log(topics: Topics) -> None:
    """The broker does not look; the CRC does. The error names topic, partition and offset."""
    topic = topics.create_topic("flipped")
    for value in numbered(30, 50):
        topics.produce(topic, [value])
    flip_byte(topics.cluster.nodes[0], topic, b"000017")
    with pytest.raises(KeyrangeError) as failure:
        read_all(client(topics.cluster), topic)
    before = read_all(client(topics.cluster), topic, start={0: 18})

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


# Root may write anywhere: numba is told that it may not.
COMPILE = """
import os
import numba.core.caching as caching
import numpy as np

ensure = caching._CacheLocator.ensure_cache_path
unwritable = tuple(os.environ.get("UNWRITABLE", "").split())

def refuse(self):
    if unwritable and self.get_cache_path().startswith(unwritable):
        raise OSError("read-only")
    return ensure(self)

caching._CacheLocator.ensure_cache_path = refuse
from keyrange.wire import record_kernels
assert record_kernels.crc32c.stats.cache_hits or record_kernels.crc32c.stats.cache_misses
checked = record_kernels.crc32c(np.frombuffer(bytearray(b"123456789"), np.uint8), 0, 9)
print(checked, sum(record_kernels.index_records.stats.cache_misses.values()))
"""


def compile_together(environment: dict[str, str]) -> None:
    """Workers that start together: one compiles, the others wait for it and load."""
    workers = [
        subprocess.Popen(
            [sys.executable, "-P", "-c", COMPILE],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    told = [worker.communicate(timeout=120)[0].split() for worker in workers]
    assert [worker.returncode for worker in workers] == [0] * 3
    assert {int(checked) for checked, _ in told} == {0xE3069283}
    assert sum(int(compiled) for _, compiled in told) == 1


@pytest.mark.slow  # the same kernels and the same lock as below, in the place that is usual
def test_kernels_are_compiled_once_per_host(tmp_path: Path) -> None:
    compile_together({**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "TMPDIR": str(tmp_path)})


def test_kernels_without_a_writable_home_are_compiled_once_per_host(tmp_path: Path) -> None:
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
    compile_together(
        {
            **{name: value for name, value in os.environ.items() if not name.startswith("NUMBA")},
            "PYTHONPATH": str(package.parent),
            "PYTHONDONTWRITEBYTECODE": "1",
            "HOME": "/nonexistent",
            "XDG_CACHE_HOME": "/nonexistent",
            "TMPDIR": str(scratch),
            "UNWRITABLE": f"{package / 'wire'} /nonexistent",
        }
    )
    private = next(scratch.glob("keyrange-kernels-*"))
    assert list(private.rglob("*.nbi"))
    assert private.stat().st_mode & 0o077 == 0
