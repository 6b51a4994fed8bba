"""The table of a job after somebody else has had it, or the job's checkpoint, in hand."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession

import keyrange
from brokers.real_broker import Topics
from keyrange.storage.sink_table import SinkTable
from project.forms import usually
from queries.individual import failure_of
from queries.table_jobs import TableJob, individual
from spark.sources import options

# Executors cannot import this file: its functions travel whole.
cloudpickle.register_pickle_by_value(sys.modules[__name__])
pytestmark = [pytest.mark.broker, pytest.mark.spark]

SCHEMA = "text string"
MODES = pytest.mark.parametrize("commits", usually("individual", "batch"))


def work(record: Any) -> Any:
    return (record.value.decode(),)


def given_for(commits: str, home: Path) -> dict[str, str]:
    return individual(home) if commits == "individual" else {}


def texts(job: TableJob) -> list[str]:
    return sorted(row["text"] for row in job.rows())


@MODES
def test_an_older_version_that_is_restored_is_told(
    spark: SparkSession,
    topics: Topics,
    tmp_path: Path,
    commits: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Below a query that runs, which stops, and between two runs."""
    job, given = TableJob(spark, topics, tmp_path), given_for(commits, tmp_path)
    job.produce(b"1")
    query = job.start(work, SCHEMA, trigger={"processingTime": "0 seconds"}, **given)
    query.processAllAvailable()
    version = DeltaTable(job.table).version()
    job.produce(b"2")
    query.processAllAvailable()
    DeltaTable(job.table).restore(version)
    job.produce(b"3")
    assert "[TABLE_RESTORED]" in failure_of(query)
    assert texts(job) == ["1"]

    job.run(work, SCHEMA, **given)
    assert texts(job) == ["1", "3"]
    assert [each for each in caplog.messages if "was restored to an older version at" in each]
    caplog.clear()
    job.produce(b"4")
    job.run(work, SCHEMA, **given)
    assert texts(job) == ["1", "3", "4"]
    assert not [each for each in caplog.messages if "restored" in each]


def test_a_restore_among_many_commits_of_others_is_told(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    """More than a table that stays open goes through: it is opened anew."""
    job = TableJob(spark, topics, tmp_path)
    job.produce(b"1")
    query = job.start(work, SCHEMA, trigger={"processingTime": "0 seconds"})
    query.processAllAvailable()
    table = DeltaTable(job.table)
    for number in range(60):
        if number == 5:
            table.restore(1)
        table.alter.set_table_properties({"delta.checkpointInterval": str(100 + number)})
    job.produce(b"2")
    assert "[TABLE_RESTORED]" in failure_of(query)


def test_a_restore_while_a_batch_is_written_stops_the_batch(
    spark: SparkSession,
    topics: Topics,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    job = TableJob(spark, topics, tmp_path)
    for text in (b"1", b"2"):
        job.produce(text)
        job.run(work, SCHEMA)
    append = SinkTable.append

    def late(*given: Any, **named: Any) -> None:
        DeltaTable(job.table).restore(1)
        append(*given, **named)

    job.produce(b"3")
    with monkeypatch.context() as patch:
        patch.setattr(SinkTable, "append", late)
        assert "[TABLE_RESTORED]" in failure_of(job.start(work, SCHEMA))
    job.run(work, SCHEMA)
    assert texts(job) == ["1", "3"]
    assert [each for each in caplog.messages if "was restored to an older version at" in each]


def test_a_checkpoint_that_lost_its_last_batch_alone_is_behind(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    job = TableJob(spark, topics, tmp_path)
    for text in (b"1", b"2"):
        job.produce(text)
        job.run(work, SCHEMA)
    for name in ("offsets/1", "commits/1", "offsets/.1.crc", "commits/.1.crc"):
        (job.checkpoint / name).unlink(missing_ok=True)
    job.produce(b"3")
    with pytest.raises(Exception, match=r"\[CHECKPOINT_BEHIND\] .* batch 1 is one of other"):
        job.run(work, SCHEMA)
    assert texts(job) == ["1", "2"]


def test_who_goes_on_from_commits_goes_on_with_their_table(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    """Its table would begin in the middle of the topic."""
    job, given = TableJob(spark, topics, tmp_path), individual(tmp_path)
    job.produce(b"1", b"2")
    job.run(work, SCHEMA, **given)
    old, job.table, job.checkpoint = job.table, tmp_path / "other", tmp_path / "new"
    resumes = given | {"commitTable.onFreshStart": "resume"}
    job.produce(b"3")
    with pytest.raises(Exception, match=r"\[OTHER_TABLE\] the query has written to .*/table, and"):
        job.run(work, SCHEMA, **resumes)
    assert job.rows() == []
    job.table, job.checkpoint = old, tmp_path / "newer"
    job.run(work, SCHEMA, **resumes)
    assert texts(job) == ["1", "2", "3"]


def test_a_query_that_commits_otherwise_from_now_on_is_still_the_same(
    spark: SparkSession, topics: Topics, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    job = TableJob(spark, topics, tmp_path)
    for text, given in ((b"1", {}), (b"2", individual(tmp_path))):
        job.produce(text)
        job.run(work, SCHEMA, **given)
    assert texts(job) == ["1", "2"]
    assert not [each for each in caplog.messages if "in the table twice" in each]


@MODES
def test_a_process_that_ends_while_it_works_is_said_to_have_crashed(
    spark: SparkSession, topics: Topics, tmp_path: Path, commits: str
) -> None:
    def crashes(record: Any) -> Any:
        if record.offset == 1:
            os._exit(1)
        return work(record)

    job, given = TableJob(spark, topics, tmp_path, partitions=1), given_for(commits, tmp_path)
    job.produce(b"1", b"2")
    assert "[WORKER_CRASHED]" in failure_of(job.start(crashes, SCHEMA, **given))
    assert job.rows() == []
    job.run(work, SCHEMA, **given)
    assert texts(job) == ["1", "2"]


def test_batches_that_ran_without_each_batch_come_again_by_the_remedy(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    topic = topics.create_topic("unwrapped", 1)
    own = options(topics, topic, startingOffsets="earliest", **individual(tmp_path))

    def into(batch: DataFrame, _: int) -> None:
        rows = keyrange.process(batch, work, SCHEMA)
        rows.write.format("parquet").mode("append").save(str(tmp_path / "sink"))

    def run(checkpoint: str, each: Any = None, **given: str) -> None:
        location = str(tmp_path / checkpoint)
        each = each or keyrange.each_batch(into, own | given, location)
        records = spark.readStream.format("keyrange").options(**own | given).load()
        writer = records.writeStream.option("checkpointLocation", location).foreachBatch(each)
        assert writer.trigger(availableNow=True).start().awaitTermination(240)

    topics.produce(topic, [b"1"])
    run("old")
    topics.produce(topic, [b"2"])
    for each in (lambda batch, _: batch.collect(), None):
        with pytest.raises(Exception, match=r"\[COMMITS_BEHIND\]"):
            run("old", each)
    topics.produce(topic, [b"3"])
    run("new", **{"commitTable.onFreshStart": "resume"})
    found = spark.read.parquet(str(tmp_path / "sink")).collect()
    assert sorted(row.text for row in found) == ["1", "2", "3"]
