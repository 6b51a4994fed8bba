"""jobs/ with table, checkpoint and commit table on S3: Spark by s3a, commands by s3.

How many calls a batch makes is printed: `commits.s3.calls_per_batch`, by kind and by whose they
are.
"""

from __future__ import annotations

import json
from collections import Counter
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

import pytest
from deltalake import DeltaTable

from brokers.real_broker import Record, Topics, wait_until
from commands.commanding import document, succeed
from commands.commanding import run as run_command
from platforms.s3_server import Call, S3Server
from platforms.s3a import confs_of, told_by_options
from queries.ingesting import Ingest, ingest

COUNT: Final = 600
BROKEN: Final = ("7", "150", "151")
SCHEMA: Final = "partition int, offset bigint, key string, text string"


@pytest.fixture(scope="module")
def confs(s3_server: S3Server) -> dict[str, str]:
    return confs_of(s3_server)


class Query:
    """jobs/process.py below a place in the bucket, with a topic of its own."""

    def __init__(self, topics: Topics, tmp_path: Path, confs: dict[str, str], mode: str) -> None:
        self.topics, self.home, self.confs = topics, tmp_path, confs
        self.topic = topics.create_topic("orders", 2)
        self.place = f"lake/{self.topic}"
        self.commits = f"s3://{self.place}/commits"
        self.progress = tmp_path / "progress.jsonl"
        self.more = [
            *("--function", "processing:work", "--schema", SCHEMA, "--available-now"),
            *("--table", f"s3a://{self.place}/table"),
            *("--checkpoint", f"s3a://{self.place}/checkpoint"),
            *("--progress", str(self.progress)),
            *("--written-by", "keyrange"),
            *("--option", "maxOffsetsPerTrigger=100"),
        ]
        if mode == "individual":
            options = ("maxDeliveries=2", "redelivery.backoff=10ms")
            options += ("availableNow.redelivery=drain",)
            self.more += ["--commit-table", self.commits]
            self.more += [part for each in options for part in ("--option", each)]

    def produce(self, first: int, until: int, broken: tuple[str, ...] = ()) -> None:
        records = (
            Record((f"!{n}" if str(n) in broken else str(n)).encode(), b"%d" % (n % 50), n % 2)
            for n in range(first, until)
        )
        self.topics.produce(self.topic, records)

    def start(self, *more: str) -> AbstractContextManager[Ingest]:
        """`more` are arguments of the job, before which others of the same name give way."""
        return ingest(
            self.topics,
            self.topic,
            self.home,
            "local[2]",
            *self.more,
            *more,
            confs=self.confs,
            job="process.py",
        )

    def run(self, *more: str) -> None:
        with self.start(*more) as run:
            assert run.wait() == 0, run.text()[-3000:]

    def numbers(self) -> list[int]:
        rows = DeltaTable(f"s3://{self.place}/table").to_pyarrow_table()
        return sorted(int(text) for text in rows.column("text").to_pylist())

    def tables(self, server: S3Server) -> dict[str, str]:
        """The files of table and commit table, each with its tag."""
        found = server.objects(self.topic)
        return {key: tag for key, tag in found.items() if key.split("/")[1] in ("table", "commits")}

    def batches(self) -> int:
        lines = self.progress.read_text().splitlines()
        return len({json.loads(line).get("batchId") for line in lines})


def told(calls: list[Call], batches: int) -> None:
    for client in sorted({each.client for each in calls}):
        kinds = Counter(each.kind for each in calls if each.client == client)
        each = {kind: round(count / batches, 1) for kind, count in sorted(kinds.items())}
        print(f"commits.s3.calls_per_batch {client}: {each}")


@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.parametrize("mode", ["batch", "individual"])
def test_a_query_on_s3_and_what_the_commands_say_of_it(
    topics: Topics, s3_server: S3Server, tmp_path: Path, confs: dict[str, str], mode: str
) -> None:
    query = Query(topics, tmp_path, confs, mode)
    broken = BROKEN if mode == "individual" else ()
    query.produce(0, COUNT, broken)
    s3_server.calls()
    query.run()
    calls, batches = s3_server.calls(), query.batches()
    print(f"{mode}: {batches} batches")
    told(calls, batches)
    query.produce(COUNT, COUNT + 50)
    query.run()
    wanted = [n for n in range(COUNT + 50) if str(n) not in broken]
    assert query.numbers() == wanted
    checkpoint = f"s3://{query.place}/checkpoint"
    shown = document("checkpoint", "show", checkpoint)
    assert shown["sources"][0]["written_by"] == "keyrange"
    copy = f"s3://{query.place}/copy"
    if mode == "batch":
        succeed("checkpoint", "export", checkpoint, "--to", copy)
        assert document("checkpoint", "show", copy)["query_id"]
    bootstrap = ("--bootstrap-servers", topics.cluster.bootstrap_servers)
    commits = ("--commits", query.commits) if mode == "individual" else ()
    succeed("watch", checkpoint, "--once", *bootstrap, *commits)
    page = ("--out", f"s3://{query.place}/report.html")
    succeed("report", checkpoint, *page, *bootstrap, *commits)
    if mode == "individual":
        letters = document("deadletters", "list", query.commits)
        assert sorted(letter["attempts"] for letter in letters) == [2] * len(broken)
        for command in ("show", "gaps", "verify"):
            succeed("commits", command, query.commits)


@pytest.mark.broker
@pytest.mark.spark
def test_a_query_goes_on_in_a_store_that_its_options_alone_name(
    topics: Topics, s3_server: S3Server, tmp_path: Path, confs: dict[str, str]
) -> None:
    topic = topics.create_topic("orders", 2)
    place = f"lake/{topic}"
    more = ("--table", f"s3a://{place}/table", "--checkpoint", f"s3a://{place}/checkpoint")
    with pytest.MonkeyPatch.context() as patch:
        told = told_by_options(s3_server, patch)
        for first in (0, 40):
            topics.produce(
                topic, (Record(b"%d" % n, b"k", n % 2) for n in range(first, first + 40))
            )
            more_of_run = (*more, "--available-now", *told)
            with ingest(topics, topic, tmp_path, "local[2]", *more_of_run, confs=confs) as run:
                assert run.wait() == 0, run.text()[-3000:]
                assert "written by the tasks that read" in run.text()
        shown = document("checkpoint", "show", f"s3://{place}/checkpoint", *told)
        assert shown["sources"][0]["written_by"] == "keyrange"
        said = run_command("checkpoint", "show", f"s3://{place}/table", *told)
        assert "a Delta table is in the place of the checkpoint" in str(said.exception)
    rows = DeltaTable(f"s3://{place}/table").to_pyarrow_table()
    assert sorted(map(int, rows.column("value").to_pylist())) == list(range(80))


@pytest.mark.broker
@pytest.mark.spark
def test_a_driver_that_was_replaced_inside_a_batch_writes_nothing_more(
    topics: Topics,
    s3_server: S3Server,
    tmp_path: Path,
    confs: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A function of its fourth batch waits while another driver resumes from its commits."""
    query, gate = Query(topics, tmp_path, confs, "individual"), tmp_path / "gate"
    query.produce(0, COUNT)
    monkeypatch.setenv("GATE", str(gate))
    resumed = ("--checkpoint", f"s3a://{query.place}/resumed")
    resumed += ("--option", "commitTable.onFreshStart=resume")
    with query.start("--function", "processing:waiting") as replaced:
        wait_until(
            lambda: (tmp_path / "reached").exists() or replaced.process.poll() is not None, 300
        )
        assert replaced.process.poll() is None, replaced.text()[-3000:]
        assert query.numbers() == list(range(300))
        query.run(*resumed)
        assert query.numbers() == list(range(COUNT))
        before = query.tables(s3_server)
        gate.touch()
        assert replaced.wait() == 1
    assert "[COMMITS_FENCED]" in replaced.text()
    after = query.tables(s3_server)
    assert {path: after.get(path) for path in before} == before
    assert not [path for path in after.keys() - before.keys() if "_delta_log" in path]
    query.produce(COUNT, COUNT + 50)
    query.run(*resumed)
    assert query.numbers() == list(range(COUNT + 50))
    succeed("commits", "verify", query.commits)


@pytest.mark.broker
@pytest.mark.spark
def test_what_two_drivers_of_one_query_write_is_there_once(
    topics: Topics, s3_server: S3Server, tmp_path: Path, confs: dict[str, str]
) -> None:
    """At once, on a store that is slow and fails now and then."""
    query = Query(topics, tmp_path, confs, "individual")
    query.produce(0, COUNT)
    s3_server.set_faults(delay_ms=20, throttled=0.02, failing=0.01, seed=3)
    with query.start() as first, query.start() as second:
        codes = [run.wait() for run in (first, second)]
    print("two drivers ended with", codes, s3_server.happened())
    s3_server.set_faults()
    query.run()
    assert query.numbers() == list(range(COUNT))
    succeed("commits", "verify", query.commits)
