"""A query that is started again with something else than it had: another table or checkpoint."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession

import keyrange
from brokers.real_broker import Topics
from project.forms import usually
from queries.table_jobs import TableJob, individual
from spark.sources import options

# Executors cannot import this file: its function travels whole.
cloudpickle.register_pickle_by_value(sys.modules[__name__])
pytestmark = [pytest.mark.broker, pytest.mark.spark]

SCHEMA = "text string"


def work(record: Any) -> Any:
    return None if record.value == b"none" else (record.value.decode(),)


@pytest.mark.parametrize("commits", usually("individual", "batch"))
def test_a_query_goes_on_with_its_own_table_alone(
    spark: SparkSession, topics: Topics, tmp_path: Path, commits: str
) -> None:
    """Another table, one that was made again, and one that was moved."""
    given = individual(tmp_path) if commits == "individual" else {}
    job = TableJob(spark, topics, tmp_path)

    def texts() -> list[str]:
        return sorted(row["text"] for row in job.rows())

    job.produce(b"1")
    job.run(work, SCHEMA, **given)
    own, other = job.table, tmp_path / "other"
    job.produce(b"2")
    job.table = other
    with pytest.raises(Exception, match=r"\[OTHER_TABLE\] the query has written to .*table, and"):
        job.run(work, SCHEMA, **given)
    assert not other.exists()

    own.rename(other)
    job.run(work, SCHEMA, into={"moved_from": str(own)}, **given)
    assert texts() == ["1", "2"]

    # A batch without output tells it as well.
    job.produce(b"none")
    job.run(work, SCHEMA, **given)
    copy = tmp_path / "copy"
    other.rename(copy)
    for _ in range(2):
        with pytest.raises(Exception, match=r"\[OTHER_TABLE\] the table lacks a batch"):
            job.run(work, SCHEMA, **given)
        assert not other.exists()
    TableJob(spark, topics, tmp_path / "another").run(work, SCHEMA, into=None)
    job.table = other
    shutil.copytree(tmp_path / "another" / "table", other)
    with pytest.raises(Exception, match=r"\[OTHER_TABLE\] the table lacks a batch"):
        job.run(work, SCHEMA, **given)
    shutil.rmtree(other)
    copy.rename(other)
    job.run(work, SCHEMA, **given)
    assert texts() == ["1", "2"]


@pytest.mark.parametrize("commits", usually("individual", "batch"))
def test_who_writes_to_a_table_beside_others_is_told(
    spark: SparkSession,
    topics: Topics,
    tmp_path: Path,
    commits: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    job = TableJob(spark, topics, tmp_path)

    def run(checkpoint: str, job: TableJob = job) -> list[str]:
        """The warnings of a run with one record more."""
        caplog.clear()
        given = individual(tmp_path / checkpoint) if commits == "individual" else {}
        job.checkpoint = tmp_path / checkpoint / "checkpoint"
        job.produce(b"1")
        job.run(work, SCHEMA, **given)
        return [each for each in caplog.messages if "in the table twice" in each]

    assert run("first") == []
    assert run("first") == []
    [told] = run("second")
    assert f"table {job.table} has 2 rows, and query " in told
    assert f" has written records of {job.topic} to it, last batch 1 at 20" in told
    assert run("second") == []
    [told] = run("first")
    assert f" writes records of {job.topic} to table {job.table} too, last batch 1 at " in told
    other = TableJob(spark, topics, tmp_path)
    assert run("third", other) == []
    if commits == "individual":
        # Another checkpoint that goes on from the same commits doubles nothing.
        caplog.clear()
        job.checkpoint = tmp_path / "fourth"
        resumes = individual(tmp_path / "first", **{"commitTable.onFreshStart": "resume"})
        job.produce(b"1")
        job.run(work, SCHEMA, **resumes)
        assert [each for each in caplog.messages if "in the table twice" in each] == []


def test_a_batch_that_was_passed_over_is_noticed_by_the_next_one(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    """However Spark came to call it finished: here its own writer has sent it elsewhere."""
    job = TableJob(spark, topics, tmp_path, partitions=1)
    job.produce(b"1")
    own = options(topics, job.topic, startingOffsets="earliest")
    writer = keyrange.job(own).into(str(job.table), str(job.checkpoint), spark=spark)._writer
    query = writer.foreachBatch(lambda batch, _: batch.collect()).trigger(availableNow=True).start()
    assert query.awaitTermination(240)
    job.produce(b"2")
    with pytest.raises(Exception, match=r"\[OUTPUT_PASSED_OVER\].*batch=0, until=.*\"0\": 1"):
        job.run()
    assert not job.rows()


def test_each_batch_is_for_the_query_of_its_checkpoint(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    topic = topics.create_topic("checkpoints", 1)
    topics.produce(topic, [b"1", b"2"])

    taken: list[str] = []

    def body(batch: DataFrame, _: int) -> None:
        taken.extend(row.text for row in keyrange.process(batch, work, SCHEMA).collect())

    def run(name: str, named: str) -> None:
        """A query of its own commit table, whose each_batch is given a checkpoint."""
        own = individual(tmp_path / name)
        given = options(topics, topic, startingOffsets="earliest", **own)
        records = spark.readStream.format("keyrange").options(**given).load()
        each = keyrange.each_batch(body, given, str(tmp_path / named))
        writer = records.writeStream.option("checkpointLocation", str(tmp_path / name))
        query = writer.foreachBatch(each).trigger(availableNow=True).start()
        assert query.awaitTermination(240)

    run("first", "first")
    with pytest.raises(Exception, match=r"\[OTHER_CHECKPOINT\] the query that runs is"):
        run("second", "first")
    run("second", "second")
    assert sorted(taken) == ["1", "1", "2", "2"]


@pytest.mark.parametrize("commits", usually("individual", "batch"))
def test_an_older_copy_of_the_checkpoint_passes_no_record_over(
    spark: SparkSession, topics: Topics, tmp_path: Path, commits: str
) -> None:
    """The table has batches 1 and 2, and would take the next ones for these."""
    home = tmp_path / "home"
    given = individual(home) if commits == "individual" else {}
    job = TableJob(spark, topics, home)
    kept = [
        home / "checkpoint",
        *(home / name for name in ("commits", "commits_verdicts") if given),
    ]
    copies = tmp_path / "copies"
    for n in range(3):
        job.produce(b"%d" % n)
        job.run(work, SCHEMA, **given)
        if n == 0:
            for each in kept:
                shutil.copytree(each, copies / each.name)
    job.produce(b"3")
    for each in kept:
        shutil.rmtree(each)
        shutil.copytree(copies / each.name, each)
    for _ in range(2):
        with pytest.raises(Exception, match=r"\[CHECKPOINT_BEHIND\] the table has batch 2 of this"):
            job.run(work, SCHEMA, **given)
    assert sorted(row["text"] for row in job.rows()) == ["0", "1", "2"]
