# Databricks notebook source
# MAGIC %md
# MAGIC # Where is the query, and what holds it up?
# MAGIC
# MAGIC A look at a query's checkpoint and commit table with SQL and plots: batches, lag, records
# MAGIC that are not done, the key ranges and keys that hold back others, and dead letters. It only
# MAGIC reads, so the query may run meanwhile.
# MAGIC
# MAGIC Name the checkpoint and the commit table in the widgets, or elsewhere in
# MAGIC NOTEBOOK_CHECKPOINT and NOTEBOOK_COMMIT_TABLE; with NOTEBOOK_BOOTSTRAP_SERVERS it shows the
# MAGIC keys themselves too. NOTEBOOK_OPTIONS has options of the query as NAME=VALUE, with spaces
# MAGIC between them: `objectStore.*` for the checkpoint's store, and `kafka.*`. As a script
# MAGIC (`python jobs/inspect_query.py`) it writes its plots to NOTEBOOK_PLOTS.
# MAGIC
# MAGIC (It is not called `inspect`, because Python's own module of that name would be hidden from
# MAGIC every job in this directory.)

# COMMAND ----------

# MAGIC %pip install "..[commits,report]"

# COMMAND ----------

"""A look at a query's checkpoint and commit table with SQL and plots, as a notebook."""

if "dbutils" in globals():
    # What %pip has installed is seen by a Python that starts after it.
    dbutils.library.restartPython()

# COMMAND ----------

import json
import os
import shlex
import sys
import tempfile
from pathlib import Path

import plotly.graph_objects as go
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import keyrange
from keyrange.cli.checkpoint.commands import describe
from keyrange.cli.source_options import SERVERS, named_options, names, of_kafka, storage_of
from keyrange.storage.checkpoint_files import load_progress, open_directory


def setting(name: str, default: str) -> str:
    """A widget on Databricks, NOTEBOOK_<NAME> of the environment elsewhere."""
    if "dbutils" in globals():
        dbutils.widgets.text(name, default)
        return dbutils.widgets.get(name)
    return os.environ.get(f"NOTEBOOK_{name.upper()}", default)


def own_session() -> SparkSession:
    """A session of this machine with Delta, or one at the server that SPARK_REMOTE names."""
    builder = SparkSession.builder.appName("keyrange inspect")
    if "SPARK_REMOTE" not in os.environ:
        from keyrange.embedded import jars

        # Where keyrange is installed, whatever else is called python3 here.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        for name, value in jars.delta_confs(print).items():
            builder = builder.config(name, value)
    return builder.getOrCreate()


checkpoint = setting("checkpoint", "")
commit_table = setting("commit_table", "")
options = named_options(setting("bootstrap_servers", ""), "", shlex.split(setting("options", "")))
# How many of the last commits are plotted.
commits_max = int(setting("commits_max", "1000"))
if not (checkpoint and commit_table):
    if "dbutils" in globals() or "get_ipython" in globals():
        raise ValueError("name the checkpoint and the commit table, and run this cell again")
    sys.exit("set NOTEBOOK_CHECKPOINT and NOTEBOOK_COMMIT_TABLE to those of a query")
spark = globals().get("spark") or own_session()
keyrange.register(spark)
plots = Path(setting("plots", "") or tempfile.mkdtemp(prefix="keyrange-inspect-"))


def show(figure: go.Figure, name: str, title: str) -> None:
    """A plot in the notebook, or as a page that needs no network where there is none."""
    figure.update_layout(title=title, template="plotly_white", hovermode="closest")
    if "displayHTML" in globals():
        displayHTML(figure.to_html(full_html=False, include_plotlyjs=True))
    elif "get_ipython" in globals():
        figure.show()
    else:
        path = plots / f"{name}.html"
        figure.write_html(path, include_plotlyjs=True)
        print(f"{title}: {path}")


# COMMAND ----------

# MAGIC %md
# MAGIC ## The checkpoint
# MAGIC What Spark has planned and committed. With individual commits a batch that is committed
# MAGIC here may hold records that are not done: those are below.

# COMMAND ----------

progress = load_progress(open_directory(checkpoint, storage_of(options)))
document = describe(progress, batches=50)
print(f"query {document['query_id']}, last batch committed: {document['last_committed']}")
batches = spark.createDataFrame(
    document["batches"], "batch long, planned_at string, offsets long, state string"
)
batches.orderBy(F.desc("batch")).show(10, truncate=False)

# COMMAND ----------

# MAGIC %md
# MAGIC ## Lag
# MAGIC The commit table has a row for each key range of each partition that a commit touched. The
# MAGIC committed offset of a partition is the least of its key ranges'; the end of the log is as
# MAGIC of the batch. The read lag counts from where the batch ended, the commit lag from the
# MAGIC committed offset.

# COMMAND ----------

commits = spark.read.format("delta").load(commit_table)
# A table may hold several groups and sources; this is the one that wrote last.
source_id = commits.orderBy(F.desc("committed_at"), F.desc("commit_seq")).first()["source_id"]
commits = commits.where(F.col("source_id") == source_id)
commits.createOrReplaceTempView("commits")
lag = spark.sql(f"""
    SELECT topic, partition, commit_seq, max(committed_at) AS committed_at,
           min(committed) AS committed, max(position) AS position, max(log_end) AS log_end,
           greatest(max(log_end) - max(position), 0) AS read_lag,
           greatest(max(log_end) - min(committed), 0) AS commit_lag, sum(pending_count) AS pending
    FROM commits
    WHERE topic IS NOT NULL
      AND commit_seq > (SELECT max(commit_seq) FROM commits) - {commits_max}
    GROUP BY topic, partition, commit_seq
    ORDER BY topic, partition, commit_seq
""").toPandas()
print(lag.groupby(["topic", "partition"]).last().to_string())

figure = go.Figure()
for (name, number), rows in lag.groupby(["topic", "partition"]):
    figure.add_scatter(
        x=rows["committed_at"], y=rows["commit_lag"], mode="lines+markers", name=f"{name}-{number}"
    )
figure.update_yaxes(title="offsets from the committed one to the end", rangemode="tozero")
show(figure, "lag", "Commit lag by partition")

# COMMAND ----------

# MAGIC %md
# MAGIC ## What each batch did
# MAGIC In records: done, not done (rejected), waiting behind an earlier record
# MAGIC of their key (held back), given up (dead).

# COMMAND ----------

work = spark.sql(f"""
    SELECT commit_seq, kind, batch_id, sum(done_records) AS done, sum(rejected) AS rejected,
           sum(held_back) AS held_back, sum(dead) AS dead, sum(redelivered) AS again,
           max(who) AS who, max(why) AS why
    FROM commits
    WHERE commit_seq > (SELECT max(commit_seq) FROM commits) - {commits_max}
    GROUP BY commit_seq, kind, batch_id
    ORDER BY commit_seq
""")
work.orderBy(F.desc("commit_seq")).show(20, truncate=False)
work = work.where("kind = 'batch'").toPandas()
# Those that were given up were rejected for the last time.
work["rejected"] -= work["dead"]
figure = go.Figure(layout={"barmode": "stack"})
for name in ("done", "rejected", "held_back", "dead"):
    figure.add_bar(x=work["commit_seq"], y=work[name], name=name.replace("_", " "))
figure.update_xaxes(title="commit")
figure.update_yaxes(title="records")
show(figure, "batches", "What each batch did")

# COMMAND ----------

# MAGIC %md
# MAGIC ## Records that are not done
# MAGIC Each was handed out, and comes again when it is due. Up to the first pending record of a
# MAGIC partition all is committed.

# COMMAND ----------

last = commits.where("topic IS NOT NULL").groupBy("topic", "partition")
last = last.agg(F.max("commit_seq").alias("commit_seq"))
state = commits.join(last, ["topic", "partition", "commit_seq"])
pending = keyrange.commits(state)
pending.groupBy("topic", "partition", "cause").agg(
    F.count("*").alias("records"),
    F.min("offset").alias("first"),
    F.max("deliveries").alias("tries"),
    F.min("since").alias("oldest"),
    # What waits for an earlier record of its key is due with that.
    F.min(F.when(F.col("cause") != "held_back", F.col("due"))).alias("due"),
).orderBy("topic", "partition", "cause").show(50, truncate=False)

SPACE = 2.0**63
ranges = state.where("scanned > committed")
ranges = ranges.select("topic", "partition", "lo", "hi", "committed", "scanned").toPandas()
points = pending.orderBy("topic", "partition", "offset").limit(20_000).toPandas()
figure = go.Figure()
for (name, number), rows in ranges.groupby(["topic", "partition"]):
    # An area for each key range, from its committed offset to where it has been handed out.
    xs: list[float | None] = []
    ys: list[float | None] = []
    for row in rows.itertuples():
        bottom, top = row.lo / SPACE * 100, row.hi / SPACE * 100
        xs += [row.committed, row.scanned, row.scanned, row.committed, None]
        ys += [bottom, bottom, top, top, None]
    label = f"{name}-{number}: handed out above the committed offset"
    figure.add_scatter(x=xs, y=ys, mode="lines", line={"width": 0}, fill="toself", name=label)
for (name, number, cause), rows in points.groupby(["topic", "partition", "cause"]):
    figure.add_scatter(
        x=rows["offset"],
        y=rows["key_hash"] / SPACE * 100,
        mode="markers",
        marker={"symbol": "circle-open", "size": 9},
        name=f"{name}-{number}: {cause.replace('_', ' ')}",
    )
figure.update_xaxes(title="offset")
figure.update_yaxes(title="hash of the key, % of the hash space", range=[0, 100])
show(figure, "pending", "Records that are not done, by offset and key")

# COMMAND ----------

# MAGIC %md
# MAGIC ## Key ranges that are behind
# MAGIC The key ranges with the lowest committed offset first: they hold back the committed offset
# MAGIC of their partition. `behind` is what the range has not been handed of what its partition
# MAGIC has, as with slow keys under `batch.time.budget`.

# COMMAND ----------

state.select(
    "topic",
    "partition",
    F.round(F.col("lo") / SPACE * 100, 2).alias("from_percent"),
    F.round(F.col("hi") / SPACE * 100, 2).alias("to_percent"),
    "committed",
    (F.col("position") - F.col("scanned")).alias("behind"),
    F.col("pending_count").alias("pending"),
    F.col("deliveries_max").alias("tries"),
    "oldest_pending",
    "oldest_pending_at",
).orderBy("topic", "partition", "committed").show(20, truncate=False)

# COMMAND ----------

# MAGIC %md
# MAGIC ## The keys that hold up their range
# MAGIC With a broker to ask: the keys of the records that are not done. What lies between the
# MAGIC first and the last of them is read again, and nothing is written.

# COMMAND ----------

bounds = pending.groupBy("topic", "partition").agg(
    F.min("offset").alias("first"), F.max("offset").alias("last")
)
bounds = bounds.collect()
if names(options, SERVERS) and bounds:
    spans: dict[str, dict[str, tuple[int, int]]] = {}
    for row in bounds:
        spans.setdefault(row["topic"], {})[str(row["partition"])] = (row["first"], row["last"] + 1)

    def positions(end: int) -> str:
        return json.dumps(
            {name: {at: span[end] for at, span in each.items()} for name, each in spans.items()}
        )

    assigned = json.dumps({name: sorted(map(int, each)) for name, each in spans.items()})
    records = (
        spark.read.format("keyrange")
        .options(**of_kafka(options))
        .option("assign", assigned)
        .option("startingOffsets", positions(0))
        .option("endingOffsets", positions(1))
        .option("failOnDataLoss", "false")
        .option("columns", "key,topic,partition,offset")
        .load()
    )
    places = pending.select("topic", "partition", "offset", "deliveries", "cause")
    records.join(places, ["topic", "partition", "offset"]).groupBy(
        "topic", "partition", F.col("key").cast("string").alias("key")
    ).agg(
        F.count("*").alias("records"),
        F.min("offset").alias("first"),
        F.max("deliveries").alias("tries"),
    ).orderBy(F.desc("records")).show(20, truncate=False)
else:
    print("every record that was handed out is done" if not bounds else "no broker is named")

# COMMAND ----------

# MAGIC %md
# MAGIC ## Dead letters
# MAGIC Records that were given up, by error. `keyrange deadletters replay` and
# MAGIC `keyrange.replay_dead_letters` hand them out again.

# COMMAND ----------

try:
    letters = spark.read.format("delta").load(f"{commit_table}_dead_letters")
    letters = letters.where(F.col("source_id") == source_id)
    letters.createOrReplaceTempView("letters")
except AnalysisException:
    letters = None
    print("nothing was given up")

# COMMAND ----------

if letters is not None:
    given_up = spark.sql("""
        SELECT dead.topic, dead.partition, substring_index(dead.error, '\n', 1) AS error,
               count(*) AS given_up, count(again.offset) AS replayed,
               min(dead.first_at) AS first_at, max(dead.last_at) AS last_at
        FROM letters AS dead
        LEFT JOIN (
            SELECT DISTINCT batch_id, topic, partition, offset FROM letters WHERE kind = 'replayed'
        ) AS again USING (batch_id, topic, partition, offset)
        WHERE dead.kind = 'dead'
        GROUP BY 1, 2, 3
        ORDER BY given_up DESC
        LIMIT 100
    """)
    given_up.show(20, truncate=100)
    counted = given_up.groupBy("error").sum("given_up", "replayed").toPandas()
    figure = go.Figure(layout={"barmode": "overlay"})
    for name in ("given_up", "replayed"):
        figure.add_bar(
            x=counted[f"sum({name})"],
            y=counted["error"].str.slice(0, 60),
            orientation="h",
            name=name.replace("_", " "),
        )
    figure.update_xaxes(title="records")
    show(figure, "dead_letters", "Dead letters by error")
