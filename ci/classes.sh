#!/usr/bin/env bash
# Makes archives of the classes that JVMs load, which the tests start by the dozen: .venv/spark-classes.jsa of Spark's
# and Delta's (start, a Delta table written, a stream and a read take 10 s of CPU instead of 16), and
# .venv/broker-classes.jsa of a broker's (format, start and stop take 2.3 s instead of 3). Without one, or with one of another
# Java, the tests are the same and slower.
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
"$root/ci/setup.sh"
spark="$root/.venv/spark-classes.jsa" broker="$root/.venv/broker-classes.jsa"
[[ ! -e "$spark" || ! -e "$broker" ]] || exit 0
home="$(mktemp -d)"
trap 'rm -rf "$home"' EXIT
printf '==> archiving classes\n' >&2

# From the root directory with -P, so that the installed wheel is what is imported.
made() {
  cd / && "$root/.venv/bin/python" -P - "$home" "$root/tests/spark/worker-python" >"$home/log" 2>&1 <<'PYTHON'
import os
import sys

from kafka import KafkaProducer
from kafka.admin import KafkaAdminClient, NewTopic
from pyspark.sql import SparkSession

import keyrange
from keyrange.embedded import jars, process
from keyrange.embedded.broker import EmbeddedBroker

home = sys.argv[1]
# As in the tests: Spark's Python processes would compile pyspark anew, each of them.
os.environ |= {"PYSPARK_PYTHON": sys.argv[2], "KEYRANGE_TEST_PYTHON": sys.executable}
options = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xlog:disable")


def send(servers):
    admin = KafkaAdminClient(bootstrap_servers=servers)
    admin.create_topics([NewTopic("topic", 2, 1)])
    admin.close()
    producer = KafkaProducer(bootstrap_servers=servers, transactional_id="archive")
    producer.init_transactions()
    producer.begin_transaction()
    for number in range(10):
        producer.send("topic", b"value", key=b"%d" % number)
    producer.commit_transaction()
    producer.close()


def session():
    # Of this JVM alone: the one that makes its command line would leave an archive of its own there.
    archive = f"-XX:ArchiveClassesAtExit={home}/spark-classes.jsa"
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.extraJavaOptions", " ".join([*options, archive]))
    for name, value in jars.delta_confs().items():
        builder = builder.config(name, value)
    return builder.config("spark.sql.warehouse.dir", f"{home}/warehouse").getOrCreate()


def work(spark, servers):
    keyrange.register(spark)
    for _ in range(2):
        rows = spark.range(10).selectExpr("id % 3 AS key").groupBy("key").count()
        rows.write.format("delta").mode("append").save(f"{home}/table")
    source = spark.readStream.format("keyrange").option("kafka.bootstrap.servers", servers)
    rows = source.option("subscribe", "topic").option("startingOffsets", "earliest").load()
    for name, write in (
        ("rows", rows.writeStream.format("delta").option("path", f"{home}/rows")),
        ("batches", rows.writeStream.foreachBatch(lambda batch, _: batch.collect())),
        ("table", spark.readStream.format("delta").load(f"{home}/table").writeStream.format("noop")),
    ):
        query = write.option("checkpointLocation", f"{home}/checkpoints/{name}")
        query.trigger(availableNow=True).start().awaitTermination()
    print(spark.read.format("delta").load(f"{home}/rows").toArrow().num_rows, "rows")
    rows = spark.read.format("delta").load(f"{home}/rows")
    rows.mapInArrow(lambda batches: batches, rows.schema).count()


process.JVM_OPTIONS += (*options, f"-XX:ArchiveClassesAtExit={home}/broker-classes.jsa")
with EmbeddedBroker() as broker:
    send(broker.bootstrap_servers)
    spark = session()
    work(spark, broker.bootstrap_servers)
    gateway = spark.sparkContext._gateway
    spark.stop()
    gateway.shutdown()
    # The JVM ends with its standard input, and writes the archive then.
    gateway.proc.stdin.close()
    gateway.proc.wait()
    # A broker that is killed, as the end of this block does, leaves none.
    broker.stop()
PYTHON
}
if (made); then
  mv "$home/spark-classes.jsa" "$spark"
  mv "$home/broker-classes.jsa" "$broker"
else
  printf 'ci/classes.sh: no archives were made, the tests start more slowly:\n' >&2
  tail -n 5 "$home/log" >&2
fi
