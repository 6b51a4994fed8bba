"""Java beside Kafka's own jars: what a test writes, compiled, and Kafka's own tools."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from keyrange.embedded import jars
from keyrange.embedded.process import java_command
from keyrange.errors import KeyrangeError

# A quota plug-in that limits nobody, whatever quotas say.
IGNORING_PLUGIN = """
import java.util.Map;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.server.quota.ClientQuotaCallback;
import org.apache.kafka.server.quota.ClientQuotaEntity;
import org.apache.kafka.server.quota.ClientQuotaType;

public class IgnoringQuotas implements ClientQuotaCallback {
    public void configure(Map<String, ?> settings) {}
    public Map<String, String> quotaMetricTags(
            ClientQuotaType type, KafkaPrincipal user, String client) {
        return Map.of("all", "all");
    }
    public Double quotaLimit(ClientQuotaType type, Map<String, String> tags) {
        return (double) Long.MAX_VALUE;
    }
    public void updateQuota(ClientQuotaType type, ClientQuotaEntity entity, double value) {}
    public void removeQuota(ClientQuotaType type, ClientQuotaEntity entity) {}
    public boolean quotaResetRequired(ClientQuotaType type) { return false; }
    public boolean updateClusterMetadata(Cluster cluster) { return false; }
    public void close() {}
}
"""

# Sends records of 40,000 bytes at a rate until something comes in; a line for each acknowledgement,
# in ms since 1970. Arguments: bootstrap servers, topic, client id, bytes a second.
PRODUCER = """
import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;

public class Steady {
    public static void main(String[] given) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", given[0]);
        settings.put("client.id", given[2]);
        settings.put("acks", "all");
        settings.put("delivery.timeout.ms", "300000");
        String bytes = "org.apache.kafka.common.serialization.ByteArraySerializer";
        settings.put("key.serializer", bytes);
        settings.put("value.serializer", bytes);
        byte[] record = new byte[40_000];
        long pause = record.length * 1000L / Long.parseLong(given[3]);
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings)) {
            while (System.in.available() == 0) {
                long before = System.currentTimeMillis();
                producer.send(new ProducerRecord<>(given[1], record)).get();
                long after = System.currentTimeMillis();
                System.out.println(after);
                System.out.flush();
                Thread.sleep(Math.max(pause - (after - before), 0));
            }
        }
    }
}
"""


def compiled(name: str, source: str, directory: Path) -> Path:
    """A directory with the class of this name; skips where there is no compiler."""
    if shutil.which("javac") is None:
        pytest.skip("there is no javac")
    file = directory / f"{name}.java"
    file.write_text(source)
    classes = directory / "classes"
    path = os.pathsep.join(map(str, jars.resolve(jars.kafka())))
    command = ["javac", "-proc:none", "-cp", path, "-d", str(classes), str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return classes


def kafka_tool(main_class: str, *arguments: str, timeout_s: float = 120) -> str:
    """What one of Kafka's own tools prints; skips where its jar cannot be had."""
    module = jars.JarModule("org.apache.kafka", "kafka-tools", jars.KAFKA_VERSION, transitive=False)
    try:
        tools = jars.resolve(jars.JarSet("kafka-tools", jars.KAFKA_VERSION, (module,)))
    except KeyrangeError as failure:
        pytest.skip(f"Kafka's tools cannot be had: {failure}")
    path = [*jars.resolve(jars.kafka()), *tools]
    command = java_command(path, f"org.apache.kafka.tools.{main_class}", arguments, heap_mb=256)
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=timeout_s)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def transactions(servers: str, what: str, *more: str) -> list[list[str]]:
    """The rows that kafka-transactions.sh prints, without its heading."""
    printed = kafka_tool("TransactionsCommand", "--bootstrap-server", servers, what, *more)
    return [line.split() for line in printed.splitlines()[1:]]


def hanging(servers: str, broker_id: int) -> list[list[str]]:
    """The transactions that are open on a broker and that nobody will end, of any topic."""
    every = ("--broker-id", str(broker_id), "--max-transaction-timeout", "0")
    return transactions(servers, "find-hanging", *every)
