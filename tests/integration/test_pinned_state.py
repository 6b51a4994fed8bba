"""State beside pinned executors. They are killed, and so is the driver, and nothing of it is read
again; they become more and fewer, and each reads the state of the keys that it gets."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from brokers.real_broker import Record, Topics, send
from commands.commanding import succeed
from faults.key_feeder import Feeder
from keyrange.individual_commits.model.commit import Snapshot
from keyrange.kafka.messages.produce import partition_of
from keyrange.members.model.assignment import Assignment
from project.forms import by_form
from queries.pinned_checks import check_counts, restart_oldest
from queries.pinned_cluster import BRIEF, PinnedRun, pinned_cluster, share_moved
from tables.delta_commits import table_at

PARTITIONS = 3


def folded(run: PinnedRun, sent: int) -> None:
    """Wait for all that was sent: each record once, each key counted from one on in its order."""
    path = run.home / "table"
    run.wait(lambda: DeltaTable(path).to_pyarrow_dataset().count_rows() >= sent)
    rows = DeltaTable(path).to_pyarrow_table().to_pylist()
    assert len(rows) == sent
    check_counts(rows)


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
        *("--topic", topic, "--bootstrap-servers", topics.cluster.bootstrap_servers),
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


def commits_of(run: PinnedRun) -> Snapshot:
    path = run.home / "commits"
    [source] = set(DeltaTable(path).to_pyarrow_table(columns=["source_id"]).column(0).to_pylist())
    return table_at(path, source).known()


def restored_by(run: PinnedRun, records: int) -> int:
    """Bytes of state that hosts had read when so many records of its own were counted."""
    path = run.home / "table"

    def counted() -> int:
        keys = DeltaTable(path).to_pyarrow_table(columns=["key"]).column("key")
        found: int = pc.sum(pc.starts_with(keys, "own-")).as_py() or 0
        return found

    run.wait(lambda: counted() >= records)
    last = commits_of(run).batch_id
    run.wait(lambda: run.status()["batch"] >= last)
    found: int = run.status()["restored"]
    return found


def moved_bytes(run: PinnedRun, before: Assignment, after: Assignment) -> float:
    """What the state of the keys weighs that have another owner. A host reads whole row groups, of
    which two lie across the ends of a key range that it gets."""
    runs = [each for found in commits_of(run).runs.values() for each in found]
    size = sum(each.size_bytes for each in runs)
    group = max(each.size_bytes / (each.groups[1] - each.groups[0]) for each in runs)
    ends = sum(
        2
        for partition, owned in after.owners.items()
        for each in owned
        if before.owner_of(partition, each.span.from_hash) != each.slot
    )
    return 1.1 * share_moved(before, after) * size + ends * group


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_each_host_restores_the_state_of_the_keys_that_it_gets(
    topics: Topics, tmp_path: Path
) -> None:
    """Two executors become three and two again, each on a host of its own."""
    topic = topics.create_topic("scaled", PARTITIONS)
    records = [Record(b"", b"own-%d" % n, n % PARTITIONS) for n in range(KEYS)]
    some = records[::50]
    confs = {"spark.sql.streaming.numRecentProgressUpdates": "10000"}
    given = {**BRIEF, "memberNames": "static", "maxOffsetsPerTrigger": "200000"}
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
