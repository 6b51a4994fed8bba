"""State that executors copy before it is theirs: when they become more, and when one is lost. Each
has a host of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from brokers.real_broker import Record, Topics, send
from faults.key_feeder import Feeder
from keyrange.members.table.assignment_admin import open_members, write_command
from project.forms import by_form
from queries.pinned_cluster import BRIEF, PinnedCluster, PinnedRun, pinned_cluster
from queries.state_moves import PARTITIONS, folded, moved_bytes, restored_by

KEYS = by_form(60_000, 60_000, 600_000)
MASTER = "local-cluster[3,1,640]"
CONFS = {"spark.sql.streaming.numRecentProgressUpdates": "10000"}
GIVEN = {**BRIEF, "memberNames": "static", "maxOffsetsPerTrigger": "200000"}


class Lake:
    """A query on one topic whose keys are sent again and again, beside a feeder."""

    def __init__(self, topics: Topics, cluster: PinnedCluster, name: str) -> None:
        self.topics, self.cluster = topics, cluster
        self.topic = topics.create_topic(name, PARTITIONS)
        self.records = [Record(b"", b"own-%d" % n, n % PARTITIONS) for n in range(KEYS)]
        self.sent = 0

    def send(self, records: list[Record]) -> None:
        with self.topics.producer() as producer:
            send(producer, self.topic, records)
        self.sent += len(records)

    def restored(self, run: PinnedRun) -> int:
        return restored_by(run, self.sent)


@contextmanager
def lake(topics: Topics, home: Path, name: str) -> Iterator[tuple[Lake, Feeder]]:
    with pinned_cluster(topics, home, MASTER, CONFS, hosts=True) as cluster:
        made = Lake(topics, cluster, name)
        # Members are taken in and missed between two batches.
        with Feeder(topics, made.topic, PARTITIONS, per_second=100) as feeder:
            cluster.has_executors(3)
            yield made, feeder


def test_who_comes_has_copied_its_state_and_a_lost_host_is_stood_for_and_inherited(
    topics: Topics, tmp_path: Path
) -> None:
    """Hosts read what batches have changed since, and no more: without heirs and standbys all of
    what moves."""
    with lake(topics, tmp_path, "inherited") as (at, feeder):
        at.cluster.to_two(at.cluster.executors()[2])
        given = GIVEN | {"state.standby.replicas": "1", "slot.directory": str(at.cluster.slots)}
        run = at.cluster.start_counting("inherited", at.topic, **given)
        two = run.settle(2)
        at.send(at.records)
        begun = at.restored(run)
        at.cluster.do("executors", count=3)
        three = run.settle(3)
        came = moved_bytes(run, two, three)
        at.send(at.records[::50])
        more = at.restored(run)

        at.cluster.to_two(at.cluster.executors()[0])
        # While the group waits for it, its standbys work on its keys; then they have them.
        run.wait(lambda: run.status()["members"].get("standbyPortions", 0) > 0)
        at.send(at.records[::50])
        while_away = at.restored(run)
        run.wait(lambda: (found := run.assignment()) is not None and found.epoch > three.epoch)
        again = run.settle(2)
        at.send(at.records[::50])
        after = at.restored(run)
        left = moved_bytes(run, three, again)
        feeder.stop()
        folded(run, feeder.sent + at.sent)
    assert more - begun <= came * 0.1
    assert while_away - more <= left * 0.1
    assert after - while_away <= left * 0.1
    assert len([*tmp_path.glob("slots-*")]) == 3


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_an_heir_that_dies_and_a_driver_that_does_are_no_reason_to_move(
    topics: Topics, tmp_path: Path
) -> None:
    """Key ranges stay where they are until somebody has copied what their keys have."""
    waits = {"warmup.timeout.ms": "600000", "registration.timeout.ms": "600000"}
    given = GIVEN | waits | {"members.expected": "2"}
    with lake(topics, tmp_path, "dying") as (at, feeder):
        at.cluster.to_two(at.cluster.executors()[2])
        slowly = given | {"warmup.bytes.per.second": "1k"}
        run = at.cluster.start_counting("dying", at.topic, **slowly)
        two = run.settle(2)
        at.send(at.records)
        at.restored(run)
        members = open_members(str(run.place / "members"), {})
        write_command(members, "scale", "", "a third one", "test", now_ms=1, count=3)
        at.cluster.do("executors", count=3)
        for _ in range(2):
            run.wait(lambda: is_announced(run, 3))
            heir = at.cluster.executors()[-1]
            run.more_batches()
            at.cluster.kill_executor(heir)
            at.cluster.has_executors(3)
        run.wait(lambda: is_announced(run, 3))
        assert run.assignment() == two
        at.cluster.close()
        with pinned_cluster(topics, tmp_path, MASTER, CONFS, hosts=True) as cluster:
            again = cluster.start_counting("dying", at.topic, **given)
            three = again.settle(3)
            moved = moved_bytes(again, two, three)
            begun = at.restored(again)
            at.send(at.records[::50])
            more = at.restored(again)
            feeder.stop()
            folded(again, feeder.sent + at.sent)
    assert three.epoch == two.epoch + 1
    assert more - begun <= moved * 0.1


def is_announced(run: PinnedRun, count: int) -> bool:
    """Whether so many are there, and one of them has nothing yet."""
    stored = run.table().last()
    states = [each.state for each in stored.members] if stored is not None else []
    return len(states) == count and states.count("JOINING") == 1
