"""What people do to queries that commit individually, while they run and between runs: every record
stays once in the sink."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from brokers import Topics, wait_until
from individual import AT_ONCE, LATER, Job, failure_of, mended, parse, values
from keyrange.cli.main import app
from sources import committed

# Executors cannot import this file: its functions travel whole.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

MakeJob = Callable[..., Job]


@pytest.fixture
def topic(topics: Topics) -> str:
    return topics.create_topic("operated", 2)


@pytest.fixture
def job(spark: SparkSession, topics: Topics, topic: str, tmp_path: Path) -> MakeJob:
    return partial(Job, spark, topics, topic, tmp_path)


@pytest.fixture(autouse=True)
def _nothing_goes_on(spark: SparkSession) -> Iterator[None]:
    yield
    for query in spark.streams.active:
        query.stop()


def command(*arguments: object) -> None:
    result = CliRunner().invoke(app, [str(each) for each in arguments])
    assert result.exit_code == 0, (result.output, result.exception)


def test_who_resumes_from_a_query_that_runs_stops_it(
    job: MakeJob, topics: Topics, topic: str, tmp_path: Path
) -> None:
    def waits(record: Any) -> Any:
        import time

        while int(record.value) >= 20 and not (tmp_path / "go").exists():
            time.sleep(0.05)
        return mended(record)

    topics.produce(topic, values(range(20)))
    old = job(checkpoint="old")
    replaced = old.start(waits)
    old.wait_for(replaced, 0)
    topics.produce(topic, values([20]))
    wait_until((old.checkpoint / "offsets" / "1").exists, 120)
    new = job(checkpoint="new", **{"commitTable.onFreshStart": "resume"})
    query = new.start()
    new.wait_for(query, 0)
    (tmp_path / "go").touch()
    assert "[COMMITS_FENCED]" in failure_of(replaced)
    with pytest.raises(Exception, match="COMMITS_FENCED"):
        old.run()
    topics.produce(topic, values([21]))
    new.wait_for(query, 1)
    assert sorted(set(new.numbers())) == list(range(22))


@pytest.mark.parametrize("isolation", ["immediate", "transactional"])
def test_dead_letters_are_replayed_while_the_query_runs(
    job: MakeJob, topics: Topics, topic: str, isolation: str
) -> None:
    query = job(**AT_ONCE, **{"maxDeliveries": "1", "commit.isolation": isolation})
    topics.produce(topic, values(range(40), failing=[3, 8, 9]))
    running = query.start(parse)
    query.wait_for(running, 0)
    command("deadletters", "replay", query.table, "--all", "--why", "mended", "--confirm")
    topics.produce(topic, values(range(40, 50)))
    assert "[COMMITS_FENCED]" in failure_of(running)
    query.run(mended)
    query.run(mended)
    assert query.numbers() == list(range(50))
    assert all(state.committed == state.position for state in query.known().states.values())


def test_positions_are_reset_while_the_query_runs(job: MakeJob, topics: Topics, topic: str) -> None:
    query = job(**LATER)
    topics.produce(topic, values(range(40)))
    running = query.start(parse)
    query.wait_for(running, 0)
    reset = ("commits", "reset", query.table, "--topic", topic, "--partition", 1, "--to", 15)
    command(*reset, "--why", "wrong prices", "--confirm")
    topics.produce(topic, values([40, 41]))
    assert "[COMMITS_FENCED]" in failure_of(running)
    query.run(mended)
    # Offset 15 of partition 1 is number 31.
    again = list(range(31, 40, 2))
    assert query.numbers() == sorted([*range(42), *again])


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A filesystem of two megabytes, where this may mount one."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(place)]
    if not shutil.which("mount") or subprocess.run(mount, check=False).returncode:
        pytest.skip("this user may not mount a filesystem")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=False)


def full(disk: Path) -> Callable[[], None]:
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        os.posix_fallocate(file.fileno(), 0, os.statvfs(disk).f_bavail * 4096)
    return partial(filler.unlink, missing_ok=False)


def test_a_disk_that_is_full_under_a_query_that_runs(
    job: MakeJob, topics: Topics, topic: str, small_disk: Path
) -> None:
    verdicts = str(small_disk.parent / "verdicts")
    query = job(commitTable=str(small_disk / "commits"), verdictDirectory=verdicts, **LATER)
    query.table = str(small_disk / "commits")
    topics.produce(topic, values(range(20), failing=[3]))
    running = query.start(parse)
    query.wait_for(running, 0)
    before = query.known()
    undo = full(small_disk)
    topics.produce(topic, values(range(20, 30)))
    text = failure_of(running)
    undo()
    assert "[COMMITS_UNWRITABLE]" in text
    assert "To mend it: " in text
    assert committed(query.checkpoint) == [0]
    assert query.known() == before
    query.run(mended)
    assert query.numbers() == sorted(set(range(30)) - {3})
