"""State beside pinned executors: these are killed, and so is the driver, and nothing of it is read
again."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest
from deltalake import DeltaTable

from brokers import Topics
from pinned_cluster import Feeder, PinnedCluster, PinnedRun, pinned_cluster

PARTITIONS = 3


def folded(run: PinnedRun, sent: int) -> None:
    """Wait for all that was sent: each record once, each key counted from one on in its order."""
    path = run.home / "table"
    run.wait(lambda: DeltaTable(path).to_pyarrow_dataset().count_rows() >= sent)
    rows = DeltaTable(path).to_pyarrow_table().to_pylist()
    assert len(rows) == sent
    by_key: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for row in rows:
        by_key[row["key"]].append((row["offset"], row["n"]))
    for key, found in by_key.items():
        assert [n for _, n in sorted(found)] == [*range(1, len(found) + 1)], key


def kill_each(cluster: PinnedCluster, run: PinnedRun) -> None:
    for _ in range(2):
        victim = cluster.executors()[0]
        before = {each.pid for each in cluster.executors()}
        cluster.kill_executor(victim)
        run.wait(
            lambda before=before: any(  # type: ignore[misc]
                status.state == "STABLE" and pid not in before
                for pid, status in run.members().items()
            )
        )
        run.more_batches()
        cluster.has_executors(2)


@pytest.mark.timeout(1800)
def test_nothing_is_restored_when_executors_and_the_driver_are_killed(
    topics: Topics, tmp_path: Path
) -> None:
    topic = topics.create_topic("kept", PARTITIONS)
    with Feeder(topics, topic, PARTITIONS) as feeder:
        with pinned_cluster(topics, tmp_path) as cluster:
            run = cluster.start_counting("counted", topic, memberNames="static")
            before = run.settle(2)
            run.more_batches()
            kill_each(cluster, run)
            assert run.settle(2) == before
            assert run.status()["restored"] == 0
        # It was killed with all that it had started.
        with pinned_cluster(topics, tmp_path) as cluster:
            run = cluster.start_counting("counted", topic, memberNames="static")
            run.settle(2)
            run.more_batches()
            assert run.status()["restored"] == 0
            feeder.stop()
            folded(run, feeder.sent)
            files = len(list((tmp_path / "counted" / "commits_state").rglob("*.parquet")))
            copies = len(list((tmp_path / "slots").rglob("*.arrow")))
            assert files
            assert copies
