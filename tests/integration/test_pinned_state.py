"""State beside pinned executors. They are killed, and so is the driver, and nothing of it is read
again; they become more and fewer, and each reads the state of the keys that it gets."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from brokers.real_broker import Record, Topics, send
from commands.commanding import succeed
from faults.key_feeder import Feeder
from keyrange.kafka.messages.produce import partition_of
from project.forms import by_form
from queries.pinned_checks import restart_oldest
from queries.pinned_cluster import BRIEF, pinned_cluster
from queries.state_moves import PARTITIONS, folded, moved_bytes, restored_by


# The longer form restarts both executors ten times, and the driver ten times.
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("drivers", [2, pytest.param(11, marks=pytest.mark.slow)])
def test_nothing_is_restored_when_executors_and_the_driver_are_killed(
    topics: Topics, tmp_path: Path, drivers: int
) -> None:
    topic = topics.create_topic("kept", PARTITIONS)
    before = None
    with Feeder(topics, topic, PARTITIONS) as feeder:
        for driver in range(1, drivers + 1):
            # The driver is killed at the end, with all that it started.
            with pinned_cluster(topics, tmp_path) as cluster:
                run = cluster.start_counting("counted", topic, memberNames="static")
                settled = run.settle(2)
                assert before in (None, settled)
                before = settled
                run.more_batches()
                if driver < drivers:
                    for _ in range(by_form(1, 1, 2)):
                        restart_oldest(cluster, run)
                    assert run.settle(2) == before
                else:
                    feeder.stop()
                    folded(run, feeder.sent)
                assert run.status()["restored"] == 0
    assert [*(tmp_path / "counted" / "commits_state").rglob("*.parquet")]
    assert [*(tmp_path / "slots").rglob("*.arrow")]


def test_imported_state_goes_to_who_owns_its_keys(topics: Topics, tmp_path: Path) -> None:
    """As soon as there are owners; before, and behind them."""
    keys = [b"k%d" % n for n in range(60)]
    topic = topics.create_topic("imported", PARTITIONS)
    pq.write_table(
        pa.table({"key": [key.decode() for key in keys], "total": [100] * 60}),
        tmp_path / "given.parquet",
    )
    succeed(
        *("state", "import", tmp_path / "counted" / "commits"),
        *("--from", tmp_path / "given.parquet", "--variable", "total: value of n long"),
        *("--topic", topic, "--bootstrap-servers", topics.cluster.bootstrap_servers, "--confirm"),
    )
    path = tmp_path / "counted" / "table"
    with pinned_cluster(topics, tmp_path) as cluster:
        run = cluster.start_counting("counted", topic, memberNames="static")

        def is_counted(times: int) -> bool:
            return DeltaTable.is_deltatable(str(path)) and rows(path) == times * len(keys)

        def are_owners(count: int) -> bool:
            found = run.assignment()
            return found is not None and len(found.slots) == count

        for times in (1, 2):
            topics.produce(topic, [Record(b"", key, partition_of(key, PARTITIONS)) for key in keys])
            run.wait(lambda times=times: is_counted(times))  # type: ignore[misc]
            # The first batch may come before them.
            run.wait(lambda: are_owners(2))
    found = DeltaTable(path).to_pyarrow_table().to_pylist()
    counts = Counter((row["key"], row["n"]) for row in found)
    assert counts == Counter((key.decode(), n) for key in keys for n in (101, 102))


def rows(path: Path) -> int:
    return DeltaTable(path).to_pyarrow_dataset().count_rows()


KEYS = 600_000


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_each_host_restores_the_state_of_the_keys_that_it_gets(
    topics: Topics, tmp_path: Path
) -> None:
    """Two executors become three and two again, each on a host of its own. Nobody prepares."""
    topic = topics.create_topic("scaled", PARTITIONS)
    records = [Record(b"", b"own-%d" % n, n % PARTITIONS) for n in range(KEYS)]
    some = records[::50]
    confs = {"spark.sql.streaming.numRecentProgressUpdates": "10000"}
    given = {**BRIEF, "memberNames": "static", "maxOffsetsPerTrigger": "200000"}
    given["warmup.timeout.ms"] = "0"
    with (
        topics.producer() as producer,
        pinned_cluster(topics, tmp_path, "local-cluster[3,1,640]", confs, hosts=True) as cluster,
        # Members are taken in and missed between two batches.
        Feeder(topics, topic, PARTITIONS, per_second=100),
    ):
        cluster.has_executors(3)
        cluster.to_two(cluster.executors()[2])
        run = cluster.start_counting("scaled", topic, **given)
        two = run.settle(2)
        send(producer, topic, records)
        begun = restored_by(run, KEYS)

        cluster.do("executors", count=3)
        three = run.settle(3)
        bound = moved_bytes(run, two, three)
        send(producer, topic, some)
        more = restored_by(run, KEYS + len(some))

        cluster.to_two(cluster.executors()[0])
        run.wait(lambda: (found := run.assignment()) is not None and found.epoch > three.epoch)
        again = run.settle(2)
        less_bound = moved_bytes(run, three, again)
        send(producer, topic, some)
        less = restored_by(run, KEYS + 2 * len(some))
    assert 0 < more - begun <= bound
    assert 0 < less - more <= less_bound
    assert len([*tmp_path.glob("slots-*")]) == 3
