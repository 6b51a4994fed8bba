"""keyrange's files and tables in Azure's blob storage: who puts first, and a job from Kafka to a
table there, with individual commits and state."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

import keyrange
from brokers.real_broker import Record, Topics
from keyrange.individual_commits.table.commit_table import open_commit_table
from keyrange.options.commits import CommitOptions
from platforms.azurite import CONTAINER, azurite
from spark.sources import options
from tables.numbered_logs import SUBJECTS, Subject
from tables.racing_writers import check_one_driver_goes_on, check_put_once

KEYS, EACH = 20, 15


@pytest.fixture(scope="module")
def container(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    logs = tmp_path_factory.mktemp("azurite")
    with azurite(logs) as environment, pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        yield f"az://{CONTAINER}"


@pytest.fixture
def home(container: str, request: pytest.FixtureRequest) -> str:
    """A place of its own in the container."""
    name = "".join(each if each.isalnum() else "-" for each in request.node.name)
    return f"{container}/{name}"


def test_of_those_who_put_at_once_one_does(home: str) -> None:
    check_put_once(home)


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.name)
def test_of_drivers_that_write_at_once_one_goes_on(subject: Subject, home: str) -> None:
    check_one_driver_goes_on(subject, home)


@pytest.mark.broker
@pytest.mark.spark
def test_a_job_with_state_and_commits_there(
    spark: SparkSession, topics: Topics, home: str, tmp_path: Path
) -> None:
    topic = topics.create_topic("azure", 2)
    given = options(topics, topic, startingOffsets="earliest", maxOffsetsPerTrigger="120") | {
        "splitBy": "keyRange",
        "commitMode": "individual",
        "commitTable": f"{home}/commits",
        "maxDeliveries": "1",
    }

    def counted(record: Any, state: Any) -> Any:
        """How often its key came; one record fails whenever it is worked on."""
        if record.value == b"bad":
            raise ValueError("none of these")
        n = state.n.get(default=0) + 1
        state.n.update(n)
        return record.key.decode(), n

    def run() -> None:
        job = keyrange.job(
            given, counted, "key string, n long", state={"n": keyrange.ValueState("n long")}
        )
        writer = job.into(f"{home}/table", tmp_path / "checkpoint", spark=spark)
        assert writer.trigger(availableNow=True).start().awaitTermination(240)

    for part in range(2):
        topics.produce(
            topic, [Record(b"%d" % at, b"key-%d" % (at % KEYS)) for at in range(KEYS * EACH)]
        )
        if part == 0:
            topics.produce(topic, [Record(b"bad", b"key-0")])
        run()
    rows = DeltaTable(f"{home}/table").to_pyarrow_table().to_pylist()
    found = sorted((row["key"], row["n"]) for row in rows)
    wanted = [(f"key-{key}", n) for key in range(KEYS) for n in range(1, 2 * EACH + 1)]
    assert found == sorted(wanted)
    [source] = set(
        DeltaTable(f"{home}/commits").to_pyarrow_table(columns=["source_id"])[0].to_pylist()
    )
    states = open_commit_table(CommitOptions(table=f"{home}/commits"), source).known().states
    assert sum(each.committed for each in states.values()) == 2 * KEYS * EACH + 1
    letters = DeltaTable(f"{home}/commits_dead_letters").to_pyarrow_table(columns=["value"])
    assert letters.column(0).to_pylist() == [b"bad"]
