"""Key ranges with speculation: a task that stands still is run a second time, on another host.

Spark starts no second attempt on the host of the first, so this has two workers of a standalone
cluster on two addresses of the loopback interface.
"""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from brokers.real_broker import Topics
from queries.ingesting import (
    SPLIT,
    Ingest,
    assert_exactly_once,
    ingest,
    produce_by_key,
    wait_for_sharing,
)
from spark.standalone import SPECULATION, standalone_cluster


@pytest.mark.slow
def test_a_second_attempt_reads_the_same(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    count = 40_000
    topic = topics.create_topic("speculated", 2)
    produce_by_key(topics, topic, count)
    with (
        standalone_cluster(tmp_path) as cluster,
        ingest(
            topics, topic, tmp_path, cluster.master, *SPLIT, "--available-now", confs=SPECULATION
        ) as run,
    ):
        stopped = stop_a_reader(run, cluster.worker_pids)
        code = run.wait(250)
        logs = "".join(path.read_text(errors="replace") for path in tmp_path.rglob("stderr"))

    assert stopped
    assert code == 0, run.text()[-3000:]
    # TID, attempt: the second attempt of a task is number 1.
    assert "Marking task" in run.text() or ".1 in stage" in logs
    assert_exactly_once(spark, str(run.table), count)


def stop_a_reader(run: Ingest, workers: list[int]) -> bool:
    """SIGSTOP a Python worker that shares chunks."""
    sharing = wait_for_sharing(run, set(workers))
    if sharing is None:
        return False
    sharing[1].send_signal(signal.SIGSTOP)
    return True
