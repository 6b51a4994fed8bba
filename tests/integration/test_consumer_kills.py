"""Consumers that are killed: what they have committed stays so, and the rest comes to others."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from brokers.real_broker import Record, Topics, send
from keyrange import Consumer
from keyrange.model.key_ranges import HASH_MAX
from project.forms import by_form, usually
from queries.consuming import consume, consumer_options, read_journal
from queries.forked import start_forked


def has_committed(journal: Path, run: int, times: int) -> bool:
    lines = journal.read_text().splitlines() if journal.exists() else []
    mine = [line for line in lines if f'"run": "{run}"' in line]
    done = sum('"committed"' in line for line in mine)
    return done >= times or any('"finished"' in line for line in mine)


@pytest.fixture
def processes() -> Iterator[list[BaseProcess]]:
    started: list[BaseProcess] = []
    yield started
    for each in started:
        each.kill()
        each.join()


def keyed(first: int, count: int) -> list[Record]:
    return [Record(b"%d" % i, b"key-%d" % (i % 200)) for i in range(first, first + count)]


def test_kills_lose_nothing_and_nothing_is_committed_twice(
    topics: Topics, tmp_path: Path, processes: list[BaseProcess]
) -> None:
    topic = topics.create_topic("killed")
    placed = topics.produce(topic, keyed(0, 6_000))
    done, _ = killed_and_done(topics, topic, tmp_path, processes)
    assert done == {offset for _, offset in placed}


@pytest.mark.slow
def test_kills_where_consumers_share_by_offset(
    topics: Topics, tmp_path: Path, processes: list[BaseProcess]
) -> None:
    topic = topics.create_topic("killed-by-offset")
    placed = topics.produce(topic, keyed(0, 3_000))
    done, keys = killed_and_done(topics, topic, tmp_path, processes, ["splitBy=offset"])
    assert done == {offset for _, offset in placed}
    assert keys[0] & keys[1], "each key came to one consumer"


@pytest.mark.slow
def test_kills_where_transactions_are_aborted_and_open(
    topics: Topics, tmp_path: Path, processes: list[BaseProcess]
) -> None:
    """One is open while consumers are killed, and ends before their last life."""
    topic = topics.create_topic("killed-in-transactions")
    wanted: set[int] = set()
    with topics.producer(transactional_id=topic, transaction_timeout_ms=600_000) as producer:
        producer.init_transactions()
        for first in range(0, 3_000, 100):
            producer.begin_transaction()
            placed = send(producer, topic, keyed(first, 100))
            if first % 300 == 0:
                producer.abort_transaction()
                continue
            wanted |= {offset for _, offset in placed}
            if first < 2_000:
                producer.commit_transaction()
                continue
            held = {offset for _, offset in topics.produce(topic, keyed(3_000, 1_000))}
            break
        done, _ = killed_and_done(
            topics,
            topic,
            tmp_path,
            processes,
            ["kafka.isolation.level=read_committed"],
            before_the_last=producer.commit_transaction,
        )
    assert done == wanted | held


KILLED_IN_A_COMMIT = """
import os, sys
from queries.consuming import consumer_options
from keyrange import Consumer
from keyrange.individual_commits.table.commit_table import DeltaCommitTable

servers, table, topic, when = sys.argv[1:]
consumer = Consumer(consumer_options(servers, table, member__name="a"))
consumer.assign({(topic, 0): []})
records = []
while len(records) < 60:
    records += consumer.poll_records(100)
consumer.acknowledge(records)
append = DeltaCommitTable.append

def killed(self, *commit, **more):
    if when == "behind":
        append(self, *commit, **more)
    os._exit(9)

DeltaCommitTable.append = killed
consumer.commit()
"""


@pytest.mark.parametrize("when", usually("behind", "before"))
def test_a_kill_inside_commit_has_committed_all_or_nothing(
    topics: Topics, tmp_path: Path, when: str
) -> None:
    """The program is told of neither: behind the table's transaction its records are done, though
    no `commit()` has returned, and do not come again."""
    topic = topics.create_topic("killed-in-a-commit")
    topics.produce(topic, keyed(0, 60))
    table, servers = tmp_path / "commits", topics.cluster.bootstrap_servers
    tests = Path(__file__).parents[1]
    paths = os.pathsep.join([str(tests), str(tests.parent / "connector")])
    command = [sys.executable, "-P", "-c", KILLED_IN_A_COMMIT, servers, str(table), topic, when]
    ended = subprocess.run(command, check=False, env=os.environ | {"PYTHONPATH": paths})
    assert ended.returncode == 9
    done = set(range(60)) if when == "behind" else set()
    with Consumer(consumer_options(servers, table, member__name="a")) as consumer:
        consumer.assign({(topic, 0): []})
        assert consumer.committed((topic, 0)) == len(done)
        again = {each.offset for each in consumer.poll_records(2_000)}
    assert again == set(range(60)) - done


def killed_and_done(
    topics: Topics,
    topic: str,
    tmp_path: Path,
    processes: list[BaseProcess],
    given: Sequence[str] = (),
    before_the_last: Callable[[], object] = lambda: None,
) -> tuple[set[int], list[set[str]]]:
    """Two processes share a partition, and are killed again and again; what is done then, and the
    keys that each was handed."""
    half = HASH_MAX // 2
    dice = random.Random(7)
    journals = [tmp_path / "low", tmp_path / "high"]
    arguments = [
        [topics.cluster.bootstrap_servers, str(tmp_path / "commits"), topic, *span, str(journal)]
        for span, journal in zip(
            ((str(0), str(half)), (str(half + 1), str(HASH_MAX))), journals, strict=True
        )
    ]
    last = by_form(2, 2, 4)
    for run in range(last + 1):
        if run == last:
            before_the_last()
        processes[:] = [start_forked(consume, *each, str(run), *given) for each in arguments]
        if run == last:
            break
        alive = list(zip(processes, journals, strict=True))
        # Some way into a run, and anywhere between two commits.
        times = dice.randint(1, 3)
        while alive:
            far = [each for each in alive if has_committed(each[1], run, times)]
            if not far:
                time.sleep(0.02)
                continue
            process, journal = far[0]
            time.sleep(dice.uniform(0.0, 0.1))
            process.kill()
            process.join()
            alive.remove((process, journal))
    for each in processes:
        each.join(timeout=120)
    assert [process.exitcode for process in processes] == [0, 0]
    done: set[int] = set()
    keys: list[set[str]] = []
    for journal in journals:
        confirmed: dict[int, str] = {}
        order: dict[tuple[str, str], list[int]] = {}
        for line in read_journal(journal):
            if line["what"] == "handed":
                assert line["offset"] not in confirmed
                order.setdefault((line["run"], line["key"]), []).append(line["offset"])
            for offset in line.get("offsets", ()):
                assert offset not in confirmed
                confirmed[offset] = line["run"]
        assert all(each == sorted(each) for each in order.values())
        assert len(set(confirmed.values())) > 1, "no run but one came to a commit"
        handed = {offset for each in order.values() for offset in each}
        assert not handed & done
        done |= handed
        keys.append({key for _, key in order})
    return done, keys
