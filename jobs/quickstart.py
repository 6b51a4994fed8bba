# Databricks notebook source
# MAGIC %md
# MAGIC # From install to a keyed, individually committed Delta table
# MAGIC
# MAGIC Orders come in through Kafka, those of each customer in order. A function works on them one
# MAGIC by one and fails for a few. Those go to the dead letters while all others go on, and are
# MAGIC handed out again once the function is mended. In the end every order is in the table once.
# MAGIC
# MAGIC This notebook runs on Databricks (fill in the widgets), in Jupyter, over Spark Connect, and
# MAGIC as a script: `python jobs/quickstart.py`. On your own machine it needs Java 17 and
# MAGIC `pip install '.[spark,delta,commits,report]'` in a clone, and starts a Kafka broker where
# MAGIC none is named.
# MAGIC Databricks brings its own pyspark, so extra `spark` is left out here. The next cell installs
# MAGIC the clone that this notebook is in. Elsewhere write a wheel's path in place of the two dots:

# COMMAND ----------

# MAGIC %pip install "..[commits]"

# COMMAND ----------

"""From install to a keyed, individually committed Delta table, as a notebook."""

if "dbutils" in globals():
    # What %pip has installed is seen by a Python that starts after it.
    dbutils.library.restartPython()

# COMMAND ----------

# MAGIC %md
# MAGIC ## Where it runs
# MAGIC On Databricks the settings are widgets, elsewhere variables of the environment such as
# MAGIC `NOTEBOOK_BOOTSTRAP_SERVERS`. `home` is a directory that driver and executors share: a
# MAGIC path, or a URI such as `s3://bucket/quickstart`. Everything that this notebook writes is
# MAGIC below it.

# COMMAND ----------

import json
import os
import sys
import tempfile
import uuid

from kafka import KafkaProducer
from kafka.admin import KafkaAdminClient, NewTopic
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import keyrange


def setting(name: str, default: str) -> str:
    """A widget on Databricks, NOTEBOOK_<NAME> of the environment elsewhere."""
    if "dbutils" in globals():
        dbutils.widgets.text(name, default)
        return dbutils.widgets.get(name)
    return os.environ.get(f"NOTEBOOK_{name.upper()}", default)


def own_session() -> SparkSession:
    """A session of this machine with Delta, or one at the server that SPARK_REMOTE names."""
    builder = SparkSession.builder.appName("keyrange quickstart")
    if "SPARK_REMOTE" not in os.environ:
        from keyrange.embedded import jars

        # Where keyrange is installed, whatever else is called python3 here.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        for name, value in jars.delta_confs(print).items():
            builder = builder.config(name, value)
    return builder.getOrCreate()


home = setting("home", "")
topic = setting("topic", f"quickstart-{uuid.uuid4().hex[:8]}")
bootstrap_servers = setting("bootstrap_servers", "")

broker = None
if "dbutils" in globals():
    if not (home and bootstrap_servers):
        raise ValueError("fill in the widgets home and bootstrap_servers, and run this cell again")
else:
    home = home or tempfile.mkdtemp(prefix="keyrange-quickstart-")
    if not bootstrap_servers:
        from keyrange.embedded.broker import EmbeddedBroker

        # It ends with this process, and its data with it.
        broker = EmbeddedBroker(report=print).start()
        bootstrap_servers = broker.bootstrap_servers

spark = globals().get("spark") or own_session()
# Spark finds the source by itself where keyrange was there when its JVM began.
keyrange.register(spark)
place = f"{home}/{topic}"
table, checkpoint, commit_table = f"{place}/orders", f"{place}/checkpoint", f"{place}/commits"
print(f"topic {topic} at {bootstrap_servers}, tables below {place}")

# COMMAND ----------

# MAGIC %md
# MAGIC ## Orders
# MAGIC 600 orders of 40 customers. The key of a record is the customer. Two of them have an amount
# MAGIC that nobody has expected: `12,50`.

# COMMAND ----------


def order(number: int) -> dict[str, object]:
    amount = "12,50" if number in (100, 301) else f"{10 + number % 90}.50"
    return {"order": number, "customer": f"customer {number % 40}", "amount": amount}


def send(orders: list[dict[str, object]]) -> None:
    with KafkaProducer(bootstrap_servers=bootstrap_servers) as producer:
        for each in orders:
            key = str(each["customer"]).encode()
            producer.send(topic, key=key, value=json.dumps(each).encode())
        producer.flush()


admin = KafkaAdminClient(bootstrap_servers=bootstrap_servers)
if topic not in admin.list_topics():
    admin.create_topics([NewTopic(topic, num_partitions=2, replication_factor=1)])
admin.close()
send([order(number) for number in range(600)])

# COMMAND ----------

# MAGIC %md
# MAGIC ## Read by key range, commit record by record
# MAGIC `splitBy=keyRange` lets several tasks share a partition, with all orders of a customer in
# MAGIC one task and in order. `commitMode=individual` keeps in the commit table what is done of
# MAGIC each key range. An order whose function raises is worked on twice here, and then goes to
# MAGIC the dead letters; later orders of its customer wait for that, all others do not.

# COMMAND ----------

options = {
    "kafka.bootstrap.servers": bootstrap_servers,
    "subscribe": topic,
    "startingOffsets": "earliest",
    "splitBy": "keyRange",
    "keyRangesPerPartition": "4",
    "commitMode": "individual",
    "commitTable": commit_table,
    "maxDeliveries": "2",
    "redelivery.backoff": "500ms",
    # A run with availableNow waits for what comes again.
    "availableNow.redelivery": "drain",
}
SCHEMA = "order int, customer string, amount double, partition int, offset long"


def read_order(record):
    """The row of an order. What raises is tried again, and goes to the dead letters then."""
    found = json.loads(record.value)
    amount = float(found["amount"])
    return found["order"], found["customer"], amount, record.partition, record.offset


def run(work):
    """Hand all that is there to `work`, batch by batch; the progress of the last batch."""
    records = spark.readStream.format("keyrange").options(**options).load()
    query = (
        records.writeStream.foreachBatch(keyrange.each_batch(work, options, checkpoint))
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    keyrange.short_errors(query).awaitTermination()
    return query.lastProgress


def by_record(function):
    """Work on a batch record by record, and append the rows to the table."""

    def work(batch, batch_id):  # noqa: ARG001 the form that Spark calls
        rows = keyrange.process(batch, function, SCHEMA)
        # Written once, also where a batch runs again after a crash.
        rows.write.format("delta").mode("append").options(**keyrange.transaction()).save(table)

    return work


run(by_record(read_order))
print(f"{spark.read.format('delta').load(table).count()} of 600 orders are in the table")

# COMMAND ----------

# MAGIC %md
# MAGIC ## What was given up
# MAGIC The dead letters are a Delta table beside the commit table: with key, value and error.
# MAGIC Orders that were behind them in their customer's line went on as soon as those were given
# MAGIC up.

# COMMAND ----------

letters = spark.read.format("delta").load(f"{commit_table}_dead_letters")
letters.select(
    "partition", "offset", F.col("value").cast("string").alias("value"), "error", "attempts"
).show(truncate=False)

# COMMAND ----------

# MAGIC %md
# MAGIC ## Mend it, and hand them out again
# MAGIC Stop the query first; this one has ended. `keyrange deadletters replay` does the same.

# COMMAND ----------


def read_any_order(record):
    """As before, for amounts with a decimal comma too."""
    found = json.loads(record.value)
    amount = float(found["amount"].replace(",", "."))
    return found["order"], found["customer"], amount, record.partition, record.offset


count = keyrange.replay_dead_letters(
    commit_table, error="could not convert", why="amounts with a comma are read"
)
run(by_record(read_any_order))
print(f"{count} handed out again")

# COMMAND ----------

# MAGIC %md
# MAGIC ## The same by DataFrame
# MAGIC A job that would rather decide by DataFrame computes its rows once (`materialize`) and says
# MAGIC what of them is done (`acknowledge`) and what is not (`reject`).

# COMMAND ----------


def by_frame(batch, batch_id):  # noqa: ARG001
    found = F.from_json(F.col("value").cast("string"), "order int, customer string, amount string")
    rows = batch.withColumn("found", found).select(
        *("topic", "partition", "offset", "keyHash", "found.order", "found.customer"),
        F.expr("try_cast(replace(found.amount, ',', '.') AS double)").alias("amount"),
    )
    kept = keyrange.materialize(rows)
    good = kept.where("amount IS NOT NULL")
    keyrange.acknowledge(good)
    bad = kept.where("amount IS NULL").withColumn("why", F.lit("the amount is no number"))
    keyrange.reject(bad, "why")
    good = good.select("order", "customer", "amount", "partition", "offset")
    good.write.format("delta").mode("append").options(**keyrange.transaction()).save(table)


send([order(number) for number in range(600, 700)])
progress = run(by_frame)

# COMMAND ----------

# MAGIC %md
# MAGIC ## How far it is
# MAGIC Spark's progress says how far behind the query is. The commit table says what each batch
# MAGIC did, in plain columns, and `keyrange.commits` has a row for each record that is handed out
# MAGIC and not done. `keyrange commits show` draws the same in a terminal, and the notebook
# MAGIC `inspect_query` plots it.

# COMMAND ----------

from keyrange.observing.model.query_progress import batch_line, read_query_progress

print(batch_line(read_query_progress(progress)))
commits = spark.read.format("delta").load(commit_table)
commits.createOrReplaceTempView("commits")
spark.sql("""
    SELECT commit_seq, kind, batch_id, sum(done_records) AS done, sum(rejected) AS rejected,
           sum(held_back) AS held_back, sum(redelivered) AS again, sum(dead) AS dead,
           max(why) AS why
    FROM commits GROUP BY commit_seq, kind, batch_id ORDER BY commit_seq
""").show(truncate=False)
last = commits.groupBy("topic", "partition").agg(F.max("commit_seq").alias("commit_seq"))
not_done = keyrange.commits(commits.join(last, ["topic", "partition", "commit_seq"])).count()

# COMMAND ----------

orders = spark.read.format("delta").load(table)
found = (orders.count(), orders.select("order").distinct().count(), not_done)
assert found == (700, 700, 0), f"rows, orders, not done: {found}"
print("700 orders, each in the table once, and nothing is left to do")
orders.orderBy("order").show(5)
if broker is not None:
    broker.close()
print(f"checkpoint {checkpoint}\ncommit table {commit_table}")
