"""What others count: the broker the bytes that it sends, Spark the bytes that it shuffles.

The broker's counters are JMX beans. The JVM of the Spark session asks for them, because Python
speaks no RMI.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from keyrange.embedded.process import HOST

_SENT = "kafka.server:type=BrokerTopicMetrics,name=BytesOutPerSec,topic={}"


def jmx_options(port: int) -> tuple[str, ...]:
    """What a broker's JVM needs to tell its counters on a loopback port."""
    prefix = "-Dcom.sun.management.jmxremote"
    return (
        f"{prefix}.port={port}",
        f"{prefix}.rmi.port={port}",
        f"{prefix}.host={HOST}",
        f"-Djava.rmi.server.hostname={HOST}",
        f"{prefix}.authenticate=false",
        f"{prefix}.ssl=false",
    )


class BrokerCounters:
    """The counters of a broker that was started with `jmx_options(port)`."""

    def __init__(self, spark: SparkSession, port: int) -> None:
        self._management: Any = spark._jvm.javax.management
        url = f"service:jmx:rmi:///jndi/rmi://{HOST}:{port}/jmxrmi"
        address = self._management.remote.JMXServiceURL(url)
        connector = self._management.remote.JMXConnectorFactory.connect(address)
        self._connection = connector.getMBeanServerConnection()

    def bytes_sent(self, topic: str) -> int:
        """The bytes of record batches of a topic that consumers were sent, since it exists."""
        name = self._management.ObjectName(_SENT.format(topic))
        # The bean comes with the first byte.
        if not self._connection.isRegistered(name):
            return 0
        return int(self._connection.getAttribute(name, "Count"))


def log_bytes(log_dir: Path, topic: str) -> int:
    """The bytes of a topic's segments on disk, without their indexes."""
    return sum(each.stat().st_size for each in log_dir.glob(f"{topic}-*/*.log"))


class ShuffleBytes:
    """Bytes that stages wrote for a shuffle, as Spark's status store has them."""

    def __init__(self) -> None:
        self.written = 0


@contextmanager
def counted_shuffle(spark: SparkSession, group: str) -> Iterator[ShuffleBytes]:
    """Count what the jobs inside write for shuffles. `group` names them, once."""
    context = spark.sparkContext
    java: Any = context._jsc.sc()
    counted = ShuffleBytes()
    context.setJobGroup(group, group)
    try:
        yield counted
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)
    # Metrics come to the store by events.
    java.listenerBus().waitUntilEmpty()
    tracker = context.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
    if not jobs:
        raise RuntimeError(f"Spark knows no job of group {group}")
    for stage in {stage for job in jobs if job is not None for stage in job.stageIds}:
        attempt = java.statusStore().lastStageAttempt(stage)
        counted.written += int(attempt.shuffleWriteBytes())
