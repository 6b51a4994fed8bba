"""`keyrange commits` and `keyrange deadletters` where they ask a real broker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mmh3
import pyarrow as pa
import pytest
from deltalake import write_deltalake
from typer.testing import Result

from brokers.real_broker import Record, Topics
from commands import commanding
from commands.documents import read_document
from keyrange.errors import KeyrangeError
from keyrange.individual_commits.model.commit import Commit, CommitCounts, CommitKind
from keyrange.individual_commits.model.partition_progress import (
    KeyRangeState,
    PartitionState,
    PendingRecord,
)
from keyrange.individual_commits.table.commit_table import open_commit_table
from keyrange.individual_commits.table.dead_letters import DeadLetter, open_dead_letters
from keyrange.model.commit_settings import CommitSettings
from keyrange.model.key_ranges import HASH_MAX, KeyRange
from keyrange.model.offsets import TopicPartition
from keyrange.options.commits import CommitOptions

pytestmark = pytest.mark.broker
LOW, HIGH = KeyRange(0, 2**62), KeyRange(2**62, HASH_MAX + 1)
BEGAN_MS = 1_700_000_000_000


def place_of(key: bytes | None, offset: int) -> int:
    """By the words of the documentation: a null key's place is that of its offset's bytes."""
    text = offset.to_bytes(8, "big") if key is None else key
    return mmh3.hash64(text, 0, signed=False)[0] >> 1


class Case:
    """A topic whose offsets are not all records, and a query that has done a part of it."""

    def __init__(self, topics: Topics, path: Path) -> None:
        self.topics, self.path = topics, path
        self.topic = topics.create_topic("commits", 1)
        keys = [None if n % 5 == 0 else b"key-%d" % (n % 17) for n in range(60)]
        rows = [
            Record(b"%d" % n, key, timestamp_ms=BEGAN_MS + n * 1000) for n, key in enumerate(keys)
        ]
        placed = topics.produce(self.topic, rows[:20])
        topics.produce_transaction(self.topic, [b"aborted"] * 3, commit=False)
        placed += topics.produce_transaction(self.topic, rows[20:30])
        placed += topics.produce(self.topic, rows[30:])
        self.key_hashes = {at: place_of(key, at) for (_, at), key in zip(placed, keys, strict=True)}
        [(_, self.end)] = topics.offsets(self.topic).values()
        [high] = [at for at in sorted(self.key_hashes) if self.key_hashes[at] >= 2**62][10:11]
        self.record = PendingRecord(high, self.key_hashes[high], 1, 0, BEGAN_MS)
        self.position, self.lagging = self.end - 5, self.end - 20
        pieces = (
            KeyRangeState(LOW, self.lagging),
            KeyRangeState(HIGH, self.position, (self.record,)),
        )
        topic_id = topics.admin.describe_topics([self.topic])[0]["topic_id"]
        self.state = PartitionState(topic_id.replace("-", ""), self.position, pieces)
        self.partition = TopicPartition(self.topic, 0)
        self.table = str(path / "table")
        commits = open_commit_table(CommitOptions(individual=True, table=self.table), "source")
        common: dict[str, Any] = {
            "group": "g",
            "source_id": "source",
            "query_id": "query",
            "run_id": "run",
            "committed_at_ms": BEGAN_MS,
            "terms": CommitSettings(),
        }
        commits.append(Commit(seq=1, kind=CommitKind.FENCE, batch_id=-1, **common))
        counts = {self.partition: CommitCounts(done=self.position, log_end=self.position)}
        states = {self.partition: self.state}
        commits.append(
            Commit(seq=2, kind=CommitKind.BATCH, batch_id=0, states=states, counts=counts, **common)
        )

    def done(self) -> list[int]:
        ends = {True: self.position, False: self.lagging}
        done = [at for at, key_hash in self.key_hashes.items() if at < ends[key_hash >= 2**62]]
        return sorted(set(done) - {self.record.offset})

    def sink(self, offsets: list[int]) -> str:
        path = str(self.path / f"sink-{len(offsets)}")
        columns = {
            "topic": [self.topic] * len(offsets),
            "partition": pa.array([0] * len(offsets), pa.int32()),
            "offset": pa.array(offsets, pa.int64()),
        }
        write_deltalake(path, pa.table(columns), mode="overwrite")
        return path

    def run(self, *arguments: object) -> Result:
        servers = ["--bootstrap-servers", self.topics.cluster.bootstrap_servers]
        command, noun, *rest = map(str, arguments)
        return commanding.run(command, noun, self.table, *rest, *servers, "--option", ISOLATION)

    def document(self, code: int, *arguments: object) -> Any:
        result = self.run(*arguments, "--output", "json")
        assert result.exit_code == code, (result.output, result.exception)
        return read_document(result.stdout)


ISOLATION = "kafka.isolation.level=read_committed"


@pytest.fixture
def case(topics: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Case:
    return Case(topics, tmp_path)


def test_the_lag_of_now_is_that_of_the_broker(case: Case) -> None:
    [row] = case.document(0, "commits", "show", "--live")["partitions"]
    assert (row["log_end"], row["log_end_known_by"]) == (case.end, "now")
    assert row["commit_lag"] == case.end - case.state.committed
    [row] = case.document(0, "commits", "show")["partitions"]
    assert (row["log_end"], row["log_end_known_by"]) == (case.position, "batch")


def test_the_log_tells_records_from_gaps_and_whose_they_are(case: Case) -> None:
    [row] = case.document(0, "commits", "verify", "--sink", case.sink(case.done()), "--live")[
        "partitions"
    ]
    assert (row["records"], row["in_sink"]) == (len(case.done()), len(case.done()))
    assert row["missing"]["count"] == 0
    assert 0 not in case.key_hashes or row["from_offset"] == 0
    # Without the log the aborted records and the markers seem to be missing.
    [row] = case.document(1, "commits", "verify", "--sink", case.sink(case.done()))["partitions"]
    assert row["missing"]["count"] >= 5
    assert row["unsure"] > 0


def test_the_log_shows_what_a_sink_lacks_and_what_it_should_not_have(case: Case) -> None:
    early = next(
        at for at, key_hash in case.key_hashes.items() if key_hash < 2**62 and case.lagging <= at
    )
    gap = next(at for at in range(case.end) if at not in case.key_hashes)
    lost = case.done()[3]
    offsets = sorted({*case.done(), early, gap, case.record.offset} - {lost})
    [row] = case.document(1, "commits", "verify", "--sink", case.sink(offsets), "--live")[
        "partitions"
    ]
    assert row["missing"] == {"count": 1, "offsets": [lost]}
    assert row["unexpected"] == {
        "pending": {"count": 1, "offsets": [case.record.offset]},
        "not in the log": {"count": 1, "offsets": [gap]},
        "not handed out": {"count": 1, "offsets": [early]},
    }


def test_a_reset_to_a_time_goes_to_the_first_record_of_it(case: Case) -> None:
    wanted = sorted(case.key_hashes)[12]
    at = "2023-11-14T22:13:32Z"
    arguments = ("commits", "reset", "--topic", case.topic, "--to", at, "--redo", "--why", "w")
    [row] = case.document(0, *arguments)["partitions"]
    assert row["to"] == wanted
    later = (*arguments[:5], "2099-01-01", *arguments[6:])
    [row] = case.document(0, *later)["partitions"]
    assert row["to"] == case.position


def test_records_that_kafka_has_no_more_are_not_replayed(case: Case) -> None:
    old, young = [at for at in case.done() if at < case.lagging][2:12:9]
    letters = [
        DeadLetter(
            group="g",
            source_id="source",
            query_id="query",
            batch_id=0,
            topic=case.topic,
            topic_id=case.state.topic_id,
            partition=0,
            offset=at,
            key=None,
            value=None,
        )
        for at in (old, young)
    ]
    options = CommitOptions(dead_letter_table=f"{case.table}_dead_letters")
    open_dead_letters(options).append("source", 0, letters, BEGAN_MS)
    case.topics.delete_records(case.topic, {0: old + 1})
    done = case.document(0, "deadletters", "replay", "--all", "--live", "--confirm")
    assert [each["offset"] for each in done["replayed"]] == [young]
    assert [each["why"] for each in done["left"]] == [f"the log holds [{old + 1}, {case.end})"]
    [state] = open_commit_table(CommitOptions(table=case.table), "source").known().states.values()
    assert young in {record.offset for record in state.pending}
    case.topics.delete_topic(case.topic)
    result = case.run("deadletters", "replay", "--all", "--live")
    assert "Kafka does not have its partition any more" in result.stdout


def test_a_topic_that_is_gone_is_said(case: Case) -> None:
    case.topics.delete_topic(case.topic)
    result = case.run("commits", "show", "--live", "--output", "json")
    assert f"{case.topic}-0 is not in the cluster any more" in result.stderr
    [row] = read_document(result.stdout)["partitions"]
    assert (row["log_end"], row["read_lag"], row["commit_lag"]) == (None, None, None)
    case.topics.create_named(case.topic, 1)
    result = case.run("commits", "show", "--live")
    assert f"{case.topic}-0 is another topic by now" in result.stderr
    assert "lag not known" in result.stdout
    arguments = ("--topic", case.topic, "--to", "2020-01-01", "--why", "w")
    failure = case.run("commits", "reset", *arguments).exception
    assert isinstance(failure, KeyrangeError)
    assert "cannot be asked for" in str(failure)
