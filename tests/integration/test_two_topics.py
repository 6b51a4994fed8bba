"""Topics that are partitioned alike share the state of their keys: the recipes of joins.md and a
count, from real topics into a real table, with executors and drivers that are killed."""

from __future__ import annotations

import sys
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark import cloudpickle
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

import keyrange
from brokers.real_broker import Record, Topics, wait_until
from commands.commanding import document, refusal
from faults.key_feeder import KEYS, Feeder
from integration.test_state import count_batches
from keyrange.errors import KeyrangeError
from keyrange.individual_commits.table.commit_table import DeltaCommitTable
from keyrange.individual_commits.verdict_store import VerdictStore
from project.snippets import ROOT, snippets
from queries.pinned_checks import restart_oldest
from queries.pinned_cluster import PinnedRun, pinned_cluster
from queries.table_jobs import TableJob, individual

cloudpickle.register_pickle_by_value(sys.modules[__name__])

BEGAN_MS = int(datetime(2024, 5, 1, 12, tzinfo=UTC).timestamp() * 1000)
COUNTED = "key string, topic string, n long, at long"
TOTAL = {"total": keyrange.ValueState("n long")}
VALUES = {"keyFormat": "string", "valueFormat": "json"}
VALUES["valueSchema"] = "id long, price double, city string"


class TwoTopics(TableJob):
    """A job on two topics, whose keys' state stands under the first one."""

    def __init__(self, spark: SparkSession, topics: Topics, home: Path) -> None:
        super().__init__(spark, topics, home)
        # The names are in the other order: which one is first is not a matter of that.
        self.first, self.other = self.topic, topics.create_topic("beside", 2)

    def go(self, *job: Any, **given: Any) -> Any:
        tables = individual(self.home, splitBy="keyRange")
        options = {"subscribe": f"{self.first},{self.other}", "state.topic": self.first}
        options["slot.directory"] = str(self.home / "slots")
        every = {**tables, **options, **given}
        return self.run(*job, **{name: each for name, each in every.items() if each is not None})


@pytest.fixture
def job(spark: SparkSession, topics: Topics, tmp_path: Path) -> TwoTopics:
    return TwoTopics(spark, topics, tmp_path)


@pytest.fixture(scope="module")
def recipes() -> dict[str, Any]:
    """The functions of the guide, without the queries that it starts."""
    names: dict[str, Any] = {"__name__": "joins"}
    for each in snippets(ROOT / "connector" / "guides" / "joins.md"):
        if "job = " in each.text:
            exec(each.text.partition("options ")[0], names)  # noqa: S102
    return names


def count(record: Any, state: Any) -> Any:
    total = state.total.get(default=0) + 1
    state.total.update(total)
    return record.key.decode(), record.topic, total, record.offset


def some(start: int, stop: int, keys: int = 30) -> list[Record]:
    return [Record(b"%d" % n, b"k%d" % (n % keys), n % keys % 2) for n in range(start, stop)]


def check_counts(rows: list[dict[str, Any]]) -> None:
    """Each key is counted over both topics, and in the order of each of them."""
    by_key: dict[str, list[tuple[int, str, int]]] = defaultdict(list)
    for row in rows:
        by_key[row["key"]].append((row["n"], row["topic"], row["at"]))
    for key, found in by_key.items():
        assert [n for n, _, _ in sorted(found)] == [*range(1, len(found) + 1)], key
        for topic in {topic for _, topic, _ in found}:
            own = [at for _, name, at in sorted(found) if name == topic]
            assert own == sorted(own), key


@pytest.mark.parametrize(
    ("owner", "step", "before"),
    [
        pytest.param(VerdictStore, "publish", False, marks=pytest.mark.slow),
        pytest.param(DeltaCommitTable, "append", True, marks=pytest.mark.slow),
        (DeltaCommitTable, "append", False),
    ],
)
def test_keys_are_counted_over_both_topics_wherever_a_driver_ends(
    job: TwoTopics, monkeypatch: pytest.MonkeyPatch, owner: type, step: str, before: bool
) -> None:
    cut = {"keyRangesPerPartition": "3", "maxOffsetsPerTrigger": "70"}
    job.topics.produce(job.first, some(0, 90))
    job.topics.produce(job.other, some(0, 60))
    job.go(count, COUNTED, state=TOTAL, **cut)
    job.topics.produce(job.other, some(60, 100))
    job.topics.produce(job.first, some(90, 120))
    done = getattr(owner, step)

    def ends(self: Any, *given: Any, **named: Any) -> Any:
        is_batch = step == "publish" or given[0].batch_id >= 0
        if not (before and is_batch):
            done(self, *given, **named)
        if is_batch:
            raise OSError("the driver ends here")

    with monkeypatch.context() as patch:
        patch.setattr(owner, step, ends)
        with pytest.raises(StreamingQueryException, match="the driver ends here"):
            job.go(count, COUNTED, state=TOTAL, **cut)
    job.go(count, COUNTED, state=TOTAL, **{**cut, "keyRangesPerPartition": "5"})
    assert len(job.rows()) == 220
    check_counts(job.rows())


def test_records_of_both_topics_see_what_was_imported(job: TwoTopics, spark: SparkSession) -> None:
    rows = [(f"k{n}", n % 2, 100) for n in range(30)]
    given = spark.createDataFrame(rows, "key string, partition int, total long")
    for topic in (job.other, job.first):
        job.topics.produce(topic, some(0, 30))
        job.go(count, COUNTED, state=TOTAL, initial_state=given)
    found = {(row["key"], row["n"]) for row in job.rows()}
    assert found == {(key, total + n) for key, _, total in rows for n in (1, 2)}


def test_many_records_at_once_see_the_state_of_both_topics(job: TwoTopics) -> None:
    for topic in (job.first, job.other, job.first):
        job.topics.produce(topic, some(0, 60))
        job.go(count_batches, "key string, n long, at long", "arrow", state=TOTAL)
    found: dict[str, list[int]] = defaultdict(list)
    for row in job.rows():
        found[row["key"]].append(row["n"])
    assert len(found) == 30
    assert all(sorted(each) == [*range(1, 7)] for each in found.values())


def test_events_get_what_a_compacted_topic_says(job: TwoTopics, recipes: dict[str, Any]) -> None:
    def enrich(record: Any, state: Any, own: str = job.first, work: Any = recipes["enrich"]) -> Any:
        class Named:
            topic = "customers" if record.topic == own else "orders"
            key, value = record.key, record.value

        return work(Named, state)

    given = {"state": {"city": keyrange.ValueState("city string")}, **VALUES}
    schema = "customer string, price double, city string"
    # The order is older, and the customer is read before it.
    job.topics.produce(job.other, [Record(b'{"price": 1}', b"c1"), Record(b'{"price": 2}', b"c2")])
    job.topics.produce(job.first, [Record(b'{"city": "Oslo"}', b"c1")])
    job.go(enrich, schema, **given)
    job.topics.produce(job.first, [Record(b'{"city": "Bergen"}', b"c2"), Record(None, b"c1")])
    job.go(enrich, schema, **given)
    job.topics.produce(job.other, [Record(b'{"price": 3}', b"c1"), Record(b'{"price": 4}', b"c2")])
    job.go(enrich, schema, **given)
    found = sorted((row["price"], row["city"]) for row in job.rows())
    assert found == [(1, "Oslo"), (2, None), (3, None), (4, "Bergen")]


def at(minutes: float, key: bytes, number: int) -> Record:
    return Record(b'{"id": %d}' % number, key, 0, BEGAN_MS + round(minutes * 60_000))


class Pairs:
    """The job of the guide that pairs orders and payments."""

    def __init__(self, job: TwoTopics, recipes: dict[str, Any]) -> None:
        self._job = job
        work, orders = recipes["pair"], job.first
        names = {orders: "orders", job.other: "payments"}

        def pair(record: Any, state: Any) -> Any:
            class Named:
                topic = names[record.topic]
                value, timestamp = record.value, record.timestamp

            return work(Named, state)

        self._pair, self._over = pair, recipes["hour_is_over"]

    def run(self, **time: Any) -> list[tuple[Any, Any]]:
        fields = "topic string, id long, at timestamp, is_paired boolean"
        self._job.go(
            self._pair,
            "order long, payment long",
            state={"open": keyrange.ListState(fields)},
            time=keyrange.EventTime(**time),
            on_timer=self._over,
            **VALUES,
        )
        found = [(row["order"], row["payment"]) for row in self._job.rows()]
        return sorted(found, key=str)


def priced(key: bytes, price: int, minute: int) -> Record:
    """Of an hour."""
    return Record(b'{"price": %d}' % price, key, 0, BEGAN_MS + minute * 60_000)


def test_of_a_key_the_row_stays_that_was_made_last(job: TwoTopics) -> None:
    """The records of the first topic are read first, and are the younger ones here."""
    hours = keyrange.windows.tumbling("1h", emit="update").count(n="*").sum(total="price")
    job.topics.produce(job.first, [priced(b"a", 5, 30), priced(b"b", 2, 50), priced(b"c", 1, 55)])
    job.topics.produce(job.other, [priced(b"a", 7, 10), priced(b"b", 4, 20)])
    job.go(
        hours,
        into={"keys": ["key", "window_start"]},
        time=keyrange.EventTime(late="deliver"),
        **VALUES,
    )
    found = {row["key"]: (row["n"], row["total"]) for row in job.rows()}
    assert found == {"a": (2, 12.0), "b": (2, 6.0), "c": (1, 1.0)}


def test_streams_are_joined_within_a_time(
    job: TwoTopics, recipes: dict[str, Any], tmp_path: Path
) -> None:
    pairs = Pairs(job, recipes)
    job.topics.produce(job.first, [at(0, b"a", 1), at(0, b"b", 2)])
    assert pairs.run(delay="10m") == []
    job.topics.produce(job.other, [at(59, b"a", 7), at(60, b"b", 8)])
    assert pairs.run(delay="10m") == [(1, 7)]
    # Payments are behind: what is late by the orders alone is not.
    job.topics.produce(job.first, [at(200, b"z", 3)])
    assert pairs.run(delay="10m") == [(1, 7)]
    job.topics.produce(job.other, [at(100, b"z", 9), at(50, b"b", 10)])
    found = pairs.run(delay="10m")
    assert found == [(1, 7), (2, 10)]
    job.topics.produce(job.other, [at(300, b"z", 11)])
    expected = [(1, 7), (2, 10), (None, 8), (None, 9)]
    assert pairs.run(delay="10m") == expected
    shown = document("state", "show", tmp_path / "commits")
    assert {each["topic"] for each in shown["partitions"]} == {job.first}


def test_a_topic_that_is_idle_does_not_hold_up_for_ever(
    job: TwoTopics, recipes: dict[str, Any]
) -> None:
    pairs = Pairs(job, recipes)
    job.topics.produce(job.first, [at(0, b"a", 1), at(200, b"z", 2)])
    assert pairs.run() == []
    wait_until(lambda: pairs.run(idle_after="1s") == [(1, None)])


def test_a_key_waits_in_all_topics_for_its_record_that_failed(
    job: TwoTopics, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"

    def work(record: Any, state: Any) -> Any:
        if record.value == b"!" and not gate.exists():
            raise ValueError("not yet")
        return count(record, state)

    given = {"redelivery.backoff": "1s", "redelivery.backoff.max": "1s", "maxDeliveries": "100"}
    job.topics.produce(job.other, [Record(b"!", b"a", 0), Record(b".", b"b", 0)])
    job.go(work, COUNTED, state=TOTAL, **given)
    job.topics.produce(job.first, [Record(b".", b"a", 0), Record(b".", b"b", 0)])
    job.go(work, COUNTED, state=TOTAL, **given)
    assert sorted((row["key"], row["n"]) for row in job.rows()) == [("b", 1), ("b", 2)]
    gate.touch()

    def is_done() -> bool:
        job.go(work, COUNTED, state=TOTAL, **given)
        return len(job.rows()) == 4

    wait_until(is_done)
    turns = [(row["n"], row["topic"]) for row in job.rows() if row["key"] == "a"]
    assert sorted(turns) == [(1, job.other), (2, job.first)]


def refused(job: TwoTopics, **given: Any) -> str:
    with pytest.raises(KeyrangeError) as raised:
        job.go(count, COUNTED, state=TOTAL, **given)
    return str(raised.value)


def test_what_cannot_share_a_state_is_refused_by_name(
    job: TwoTopics, topics: Topics, tmp_path: Path
) -> None:
    wider = topics.create_topic("wider", 3)
    said = refused(job, subscribe=f"{job.first},{wider}")
    assert "STATE_TOPICS_DIFFER" in said
    assert "has 3 partitions" in said
    assert "none of the topics" in refused(job, **{"state.topic": "elsewhere"})
    topics.produce(job.first, some(0, 20))
    topics.produce(job.other, some(0, 20))
    job.go(count, COUNTED, state=TOTAL)
    for name in (job.other, None):
        assert "was written with state.topic" in refused(job, **{"state.topic": name})
    commits = tmp_path / "commits"
    why = ("--why", "test", "--redo")
    said = refusal("commits", "reset", commits, "--topic", job.other, "--to", "0", *why)
    assert "cannot go back for the records of one of them" in said
    topics.add_partitions(job.first, 3)
    topics.produce(job.other, some(20, 30))
    assert "STATE_TOPICS_DIFFER" in refused(job)
    topics.add_partitions(job.other, 3)
    job.go(count, COUNTED, state=TOTAL)
    assert len(job.rows()) == 50
    check_counts(job.rows())


def check_pinned(run: PinnedRun, sent: int) -> None:
    """Wait for all that was sent: each key is counted over both topics."""
    path = run.home / "table"
    run.wait(lambda: DeltaTable(path).to_pyarrow_dataset().count_rows() >= sent)
    rows = DeltaTable(path).to_pyarrow_table().to_pylist()
    assert len(rows) == sent
    found: dict[str, list[int]] = defaultdict(list)
    for row in rows:
        found[row["key"]].append(row["n"])
    assert len(found) == KEYS
    assert all(sorted(each) == [*range(1, len(each) + 1)] for each in found.values())


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_pinned_executors_and_drivers_are_killed(topics: Topics, tmp_path: Path) -> None:
    first, other = (topics.create_topic(name, 3) for name in ("kept", "beside"))
    given = {"subscribe": f"{first},{other}", "state.topic": first, "memberNames": "static"}
    with Feeder(topics, first, 3, 100) as one, Feeder(topics, other, 3, 100) as two:
        for is_last in (False, True):
            # The driver is killed at the end, with all that it started.
            with pinned_cluster(topics, tmp_path) as cluster:
                run = cluster.start_counting("counted", first, **given)
                assignment = run.settle(2)
                assert {each.topic for each in assignment.owners} == {first}
                run.more_batches()
                if not is_last:
                    restart_oldest(cluster, run)
                    continue
                one.stop()
                two.stop()
                check_pinned(run, one.sent + two.sent)
                assert run.status()["restored"] == 0
