"""Tasks of a real executor and the member process that they start."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from brokers.real_broker import wait_until
from keyrange.embedded.broker import EmbeddedBroker
from keyrange.members.launch import member_directory
from keyrange.members.status import read_status
from keyrange.ranges.sharing.shared_directory import is_alive
from queries.executors import described, end_member, setup_at


def test_tasks_have_one_member_which_outlives_them(
    spark: SparkSession, broker: EmbeddedBroker
) -> None:
    setup = setup_at(broker, "orders-0")

    def ask(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from keyrange.members.executor import executor_directory
        from keyrange.members.launch import ensure_member
        from keyrange.members.status import TaskProgress

        directory = executor_directory()
        status = ensure_member(setup, directory)
        with TaskProgress(member_directory(setup, directory)) as task:
            for _ in batches:
                task.yielded()
        row = {"directory": [str(directory)], "pid": [status.pid if status else 0]}
        yield pa.RecordBatch.from_pydict(row)

    def asked() -> tuple[set[str], set[int]]:
        rows = spark.range(0, 8, 1, 4).mapInArrow(ask, "directory string, pid long").collect()
        return {row.directory for row in rows}, {row.pid for row in rows if row.pid}

    [directory], [pid] = asked()
    try:
        place = member_directory(setup, Path(directory))

        def stable() -> bool:
            status = read_status(place)
            assert status is None or not status.ended, status
            return status is not None and status.state == "STABLE"

        wait_until(stable)
        assert asked() == ({directory}, {pid})
        jvm, started = Path(directory).name.split("-")[:2]
        assert Path(f"/proc/{jvm}/comm").read_text() == "java\n"
        assert is_alive(int(jvm), started)
        [member] = described(broker, setup).members
        assert member.instance_id == "orders-0"
        assert list((place / "progress").iterdir()) == []
    finally:
        end_member(setup, Path(directory))
