#!/usr/bin/env bash
# Makes .venv/spark-classes.jsa, an archive of the classes that Spark and Delta load: a JVM that has it takes
# 12 s of CPU where another takes 16 (start, a Delta table written and read, stop), and a run of the tests starts
# dozens. Without it, or with one of another Java, the tests are the same and slower.
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
"$root/ci/setup.sh"
archive="$root/.venv/spark-classes.jsa"
[[ ! -e "$archive" ]] || exit 0
home="$(mktemp -d)"
trap 'rm -rf "$home"' EXIT
printf '==> archiving the classes that Spark loads\n' >&2
# From the root directory with -P, so that the installed wheel is what is imported.
if (cd / && "$root/.venv/bin/python" -P - "$home" >"$home/log" 2>&1 <<'PYTHON'
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
) && [[ -s "$home/classes.jsa" ]]; then
  mv "$home/classes.jsa" "$archive"
else
  printf 'ci/classes.sh: no archive was made, the tests start more slowly:\n' >&2
  tail -n 5 "$home/log" >&2
fi
