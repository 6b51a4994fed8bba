"""State for keys, and jobs that keep it, with all that they have on S3."""

from __future__ import annotations

import io
import os
import secrets
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

import keyrange
from brokers.real_broker import Record, Topics, wait_until
from commands.commanding import document, succeed
from keyrange.errors import UnavailableError
from keyrange.individual_commits.model.verdict_manifest import Manifest, planned
from keyrange.individual_commits.verdict_store import VerdictStore
from keyrange.keyed_state.state_files import FileBlocks, StateFileWriter
from keyrange.keyed_state.variables import KEY_HASH, StateForm, variables_of
from keyrange.model.checkpoint import Checkpoint, CommitMark
from keyrange.model.key_ranges import SPACE
from keyrange.model.offsets import TopicPartition
from keyrange.storage.directory import Directory
from keyrange.work.outcome_rows import member_rows, other_rows
from nemesis.work import Content, written
from platforms.s3_server import S3Server
from platforms.s3a import confs_of
from queries.ingesting import JOBS, TESTS, Ingest, ingest

PLACE = TopicPartition("t", 0)
END = Checkpoint({PLACE: 9}, commits=CommitMark("s", 1))
DONE: Final = {"done": ("topic", "records")}
COUNT: Final = 400
KEYS: Final = 40
FORM = StateForm(variables_of({"total": keyrange.ValueState("n long")}))


@pytest.fixture(params=["failing", "throttled"])
def fault(request: pytest.FixtureRequest) -> str:
    """A range that is shorter than the answer of a failure is read all the same."""
    return request.param


@pytest.mark.parametrize("others", [1, 40_000])
def test_state_of_few_keys_is_read_from_a_store_that_fails(
    s3: S3Server, fault: str, others: int
) -> None:
    """Beside that of other keys, with which the file is read whole or in parts."""
    directory = Directory(f"s3://lake/{fault}-{others}")
    writer = StateFileWriter(directory, "s", FORM)
    assert writer.add(PLACE, SPACE, 0, [states(secrets.token_bytes(32) for _ in range(others))])
    block = states([b"k"])
    assert writer.add(PLACE, SPACE, 0, [block])
    _, (_, made) = writer.finish()
    run = made.committed(0)
    s3.set_faults(**{fault: 1.0, "matching": "^GET "})
    assert FileBlocks(directory, run, FORM).block(0) == block
    assert s3.happened()[fault] >= 2


def test_a_store_that_refuses_is_no_damage(s3: S3Server) -> None:
    directory = Directory("s3://lake/refused")
    writer = StateFileWriter(directory, "s", FORM)
    assert writer.add(PLACE, SPACE, 0, [states([b"k"])])
    [(_, made)] = writer.finish()
    run = made.committed(0)
    store = VerdictStore("s3://lake/refused", "s")
    made = Manifest(3, "a", {"part-0": 9}, {}, *planned(END, END))
    s3.set_faults(denied=1.0, most=1 << 30)
    with pytest.raises(UnavailableError, match=r"STATE_UNREADABLE.*AWS_"):
        FileBlocks(directory, run, FORM)
    with pytest.raises(UnavailableError, match=r"VERDICT_UNREADABLE.*AWS_"):
        store.rows_in(made, DONE)
    with pytest.raises(UnavailableError, match=r"VERDICT_UNREADABLE.*AWS_"):
        store.manifest(3, END, END)


def states(keys: Iterable[bytes]) -> pa.RecordBatch:
    rows = [{KEY_HASH: at, "key": key, "total": {"n": at}} for at, key in enumerate(keys)]
    return pa.RecordBatch.from_pylist(rows, FORM.schema)


def test_a_small_verdict_is_read_from_a_store_that_fails(s3: S3Server, fault: str) -> None:
    home = f"s3://lake/{fault}-verdicts"
    store = VerdictStore(home, "s")
    attempt, path = store.new_attempt(3)
    rows = other_rows(pa.schema([("text", pa.string())]), member_rows("done", [(*PLACE, 5)]))
    data = io.BytesIO()
    pq.write_table(pa.Table.from_batches([rows]), data)
    Directory(path).write("part-0", data.getvalue())
    made = Manifest(3, attempt, store.files_of(3, attempt), {}, *planned(END, END))
    before = store.rows_in(made, DONE)
    s3.set_faults(**{fault: 1.0, "matching": "^GET "})
    # A store keeps what it has read of a batch.
    again = VerdictStore(home, "s")
    assert again.rows_in(made, DONE) == before != {"done": []}
    assert s3.happened()[fault] == 2


class Query:
    """A job that counts the records of each key, below a place in the bucket."""

    def __init__(self, topics: Topics, home: Path, s3: S3Server) -> None:
        self.topics, self.home, self.s3, self.confs = topics, home, s3, confs_of(s3)
        self.topic = topics.create_topic("counted", 2)
        self.place = f"lake/{self.topic}"
        self.commits = f"s3://{self.place}/commits"

    def produce(self, first: int, until: int) -> None:
        """Each key in one partition."""
        self.topics.produce(
            self.topic,
            (
                Record(written(Content("run", n, ""), 0), b"k%d" % (n % KEYS), n % KEYS % 2)
                for n in range(first, until)
            ),
        )

    def start(self, host: str) -> AbstractContextManager[Ingest]:
        """On a host that has no copies of state but those that it makes."""
        options = {
            "splitBy": "keyRange",
            "keyRangesPerPartition": "3",
            "maxOffsetsPerTrigger": "80",
            "slot.directory": str(self.home / host),
        }
        return ingest(
            self.topics,
            self.topic,
            self.home,
            "local[2]",
            *("--rows", "--keeps-state"),
            *("--table", f"s3a://{self.place}/table", "--commit-table", self.commits),
            *("--checkpoint", f"s3a://{self.place}/checkpoint", "--trigger", "0 seconds"),
            *(part for each in options.items() for part in ("--option", "=".join(each))),
            confs=self.confs,
            job=f"{TESTS}/nemesis/jobs/table_job.py",
        )

    def wait(self, run: Ingest, batches: int) -> None:
        """Until the log of the commits has so many."""
        log = f"{self.topic}/commits/_delta_log/"

        def committed() -> bool:
            assert run.process.poll() is None, run.text()[-3000:]
            return sum(key.endswith(".json") for key in self.s3.objects(log)) >= batches

        wait_until(committed, 240)

    def wait_for_rows(self, run: Ingest, count: int) -> None:
        def has_all() -> bool:
            assert run.process.poll() is None, run.text()[-3000:]
            # The server takes one call at a time, and the job's go before.
            time.sleep(1)
            return len(self.rows()) >= count

        wait_until(has_all, 240)

    def rows(self) -> list[dict[str, Any]]:
        return DeltaTable(f"s3://{self.place}/table").to_pyarrow_table().to_pylist()


@pytest.mark.broker
@pytest.mark.spark
def test_a_job_that_is_killed_counts_on_from_the_state_on_s3(
    topics: Topics, s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kill -9 in the middle, then another host, which has no copy of the state."""
    monkeypatch.setenv("PYTHONPATH", str(JOBS), prepend=os.pathsep)
    query = Query(topics, tmp_path, s3)
    query.produce(0, COUNT)
    s3.set_faults(delay_ms=20, throttled=0.02, failing=0.02, seed=5)
    with query.start("one") as run:
        query.wait(run, 3)
        run.kill_all()
    before = len(query.rows())
    assert 0 < before < COUNT
    query.produce(COUNT, COUNT + 100)
    with query.start("other") as run:
        query.wait_for_rows(run, COUNT + 100)
    faults = s3.happened()
    print(f"killed behind {before} of {COUNT} rows, faults {faults}")
    assert faults["throttled"] > 0
    assert faults["failing"] > 0
    s3.set_faults()
    rows = query.rows()
    assert sorted(row["n"] for row in rows) == list(range(COUNT + 100))
    # What a loop over the records of a key counts.
    seen: Counter[str] = Counter()
    for row in sorted(rows, key=lambda row: row["n"]):
        seen[row["key"]] += 1
        assert row["seen"] == seen[row["key"]], row
    assert [*(tmp_path / "other").rglob("*.arrow")]
    s3.set_faults(throttled=0.05, failing=0.05, seed=6)
    check_commands(query.commits, dict(seen), tmp_path / "state.parquet")


def check_commands(commits: str, wanted: dict[str, int], exported: Path) -> None:
    """What each of `keyrange state` says of the state of the keys."""
    shown = document("state", "show", commits)
    assert sum(each["keys"] for each in shown["partitions"]) == KEYS
    [found] = document("state", "get", commits, "--key", "k7")["states"]
    assert found["state"] == {"seen": wanted["k7"]}
    [last, *_] = document("state", "history", commits, "--key", "k7")["rows"]
    assert last["state"] == found["state"]
    assert document("state", "verify", commits)["failures"] == []
    assert document("state", "diff", commits, "--from", 1, "--limit", 1)["gone"] == 0
    succeed("state", "export", commits, "--to", exported)
    rows = pq.read_table(exported).to_pylist()
    assert {row["key"].decode(): row["seen"]["n"] for row in rows} == wanted
