#!/usr/bin/env bash
# Makes archives of the classes that JVMs load, which the tests start by the dozen: .venv/spark-classes.jsa of Spark's
# and Delta's (start, a Delta table written and read, stop take 12 s of CPU instead of 16), .venv/broker-classes.jsa of
# a broker's (start and stop take 2.4 s instead of 3.1). Without one, or with one of another Java, the tests are the
# same and slower.
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
"$root/ci/setup.sh"
home="$(mktemp -d)"
trap 'rm -rf "$home"' EXIT

# Runs the Python program of standard input, which leaves an archive at $home/classes.jsa.
archive() {
  local name="$1"
  [[ ! -e "$root/.venv/$name" ]] || return 0
  printf '==> archiving classes: %s\n' "$name" >&2
  # From the root directory with -P, so that the installed wheel is what is imported.
  if (cd / && "$root/.venv/bin/python" -P - "$home" >"$home/log" 2>&1) && [[ -s "$home/classes.jsa" ]]; then
    mv "$home/classes.jsa" "$root/.venv/$name"
  else
    printf 'ci/classes.sh: no %s was made, the tests start more slowly:\n' "$name" >&2
    tail -n 5 "$home/log" >&2
  fi
}

archive broker-classes.jsa <<'PYTHON'
import sys

from keyrange.embedded import process
from keyrange.embedded.broker import EmbeddedBroker

process.JVM_OPTIONS += (
    "-XX:TieredStopAtLevel=1",
    "-Xlog:disable",
    f"-XX:ArchiveClassesAtExit={sys.argv[1]}/classes.jsa",
)
with EmbeddedBroker():
    pass
PYTHON
archive spark-classes.jsa <<'PYTHON'
import sys

from pyspark.sql import SparkSession

from keyrange.embedded import jars

home = sys.argv[1]
# Of this JVM alone: the one that makes its command line would leave an archive of its own there.
options = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xlog:disable"
options += f" -XX:ArchiveClassesAtExit={home}/classes.jsa"
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
builder = builder.config("spark.driver.extraJavaOptions", options)
for name, value in jars.delta_confs().items():
    builder = builder.config(name, value)
spark = builder.config("spark.sql.warehouse.dir", f"{home}/warehouse").getOrCreate()
for _ in range(2):
    rows = spark.range(10).selectExpr("id % 3 AS key").groupBy("key").count()
    rows.write.format("delta").mode("append").save(f"{home}/table")
stream = spark.readStream.format("delta").load(f"{home}/table").writeStream.format("noop")
query = stream.option("checkpointLocation", f"{home}/checkpoint").trigger(availableNow=True).start()
query.awaitTermination()
gateway = spark.sparkContext._gateway
spark.stop()
gateway.shutdown()
# The JVM ends with its standard input, and writes the archive then.
gateway.proc.stdin.close()
gateway.proc.wait()
PYTHON
