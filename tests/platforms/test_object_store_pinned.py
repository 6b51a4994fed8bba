"""A pinned job with state, with individual commits, whose tables, checkpoint and states are on S3:
its executors are killed, and Spark starts others in their place."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable
from typer.testing import CliRunner

from brokers.real_broker import Topics
from faults.key_feeder import Feeder
from keyrange.cli.main import app
from keyrange.members.table.assignments import AssignmentTable, open_assignments
from platforms.s3_server import BUCKET, S3Server
from platforms.s3a import confs_of
from queries.pinned_checks import check_counts, restart_oldest
from queries.pinned_cluster import PinnedCluster, PinnedRun

PARTITIONS = 3


class RunOnS3(PinnedRun):
    def table(self) -> AssignmentTable:
        return open_assignments(f"s3://{BUCKET}/{self.name}/members", self.topic, {})

    def rows(self) -> DeltaTable:
        return DeltaTable(f"s3://{BUCKET}/{self.name}/table")


class ClusterOnS3(PinnedCluster):
    run_of = RunOnS3
    lake = f"s3a://{BUCKET}"


@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.timeout(1800)
def test_a_pinned_job_with_state_goes_on_when_executors_are_killed(
    topics: Topics, s3: S3Server, tmp_path: Path
) -> None:
    topic = topics.create_topic("pinned", PARTITIONS)
    commits = f"s3://{BUCKET}/counted/commits"
    cluster = ClusterOnS3(topics, tmp_path, "local-cluster[2,1,700]", confs_of(s3))
    try:
        cluster.answered(0)
        with Feeder(topics, topic, PARTITIONS, per_second=100) as feeder:
            run = cluster.start_counting(
                "counted",
                topic,
                memberNames="static",
                memberTable=f"s3://{BUCKET}/counted/members",
                commitTable=commits,
            )
            assert isinstance(run, RunOnS3)
            before = run.settle(2)
            run.more_batches()
            for _ in range(2):
                restart_oldest(cluster, run)
                assert run.settle(2) == before
            feeder.stop()
            run.wait(lambda: run.rows().to_pyarrow_dataset().count_rows() >= feeder.sent)
        rows = run.rows().to_pyarrow_table().to_pylist()
        assert len(rows) == feeder.sent
        check_counts(rows)
        # Each slot goes on with the copies that its host has.
        assert run.status()["restored"] == 0
        assert s3.objects("counted/commits_state/")
    finally:
        cluster.close()
    assert CliRunner().invoke(app, ["commits", "verify", commits]).exit_code == 0
