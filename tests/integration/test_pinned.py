"""Pinned key ranges over a real broker: tasks read what belongs to their executor, and every record
once, whatever is done with a batch."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

import keyrange
from brokers.real_broker import Topics, wait_until
from keyrange.members.table.assignments import open_assignments
from queries.pinning import Numbers, PinnedQuery, members_metrics, metrics_of, produce_until

if TYPE_CHECKING:
    import pyarrow as pa


@pytest.fixture
def query(spark: SparkSession, topics: Topics, tmp_path: Path) -> PinnedQuery:
    return PinnedQuery(spark, topics, tmp_path)


def values(frame: DataFrame) -> list[int]:
    return [int(bytes(row[0])) for row in frame.select("value").collect()]


def test_whatever_is_done_with_a_bound_batch_sees_it_whole(query: PinnedQuery) -> None:
    """Several actions, a union with itself, coalesced partitions and a limit read the same rows."""
    bound: list[tuple[int, ...]] = []

    def each(frame: DataFrame, _: int) -> None:
        rows = sorted(values(frame))
        again = sorted(values(frame))
        twice = sorted(values(frame.union(frame)))
        one = sorted(values(frame.coalesce(1)))
        some = values(frame.limit(3))
        assert again == one == rows
        assert twice == sorted(rows * 2)
        assert len(some) == min(3, len(rows))
        assert set(some) <= set(rows)
        bound.append(tuple(rows))

    with query.running(each) as running:
        produce_until(query, lambda: members_metrics(running).get("ownPortions", 0) > 0)
        wait_until(lambda: sum(map(len, bound)) >= query.sent, 150)

    assert sorted(row for rows in bound for row in rows) == list(range(query.sent))


COUNTED = ("batch", "start", "stop")


def telling_slots() -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function that says of each task which slot it runs in, with its ranges. It is pickled
    whole: workers do not have this file."""

    def tell(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import json

        import pyarrow as pa

        import keyrange
        from keyrange.errors import KeyrangeError

        count = sum(batch.num_rows for batch in batches)
        text: dict[str, object] = {}
        try:
            slot = keyrange.slot()
        except KeyrangeError as failure:
            text["failure"] = failure.condition.name
        else:
            ranges = {str(p): len(spans) for p, spans in slot.key_ranges.items()}
            text = {"slot": slot.name, "epoch": slot.epoch, "ranges": ranges}
            batches = slot.read_batches
            text |= {"batch": slot.batch_id, "start": batches.start, "stop": batches.stop}
            (slot.directory / "seen").open("a").write("x")
        yield pa.RecordBatch.from_pydict({"text": [json.dumps(text)], "rows": [count]})

    return tell


def test_a_task_knows_its_slot_also_behind_the_source(query: PinnedQuery) -> None:
    """keyrange.slot() in a function of mapInArrow, which Spark runs in a worker of its own."""
    found: list[dict[str, Any]] = []

    def each(frame: DataFrame, _: int) -> None:
        rows = frame.mapInArrow(telling_slots(), "text string, rows long").collect()
        found.extend(json.loads(row.text) for row in rows)

    def has_read_all() -> bool:
        """Three batches in turn, without a gap."""
        return any(
            text["stop"] >= text["batch"] >= text["start"] + 3
            for text in found
            if text.get("stop", -1) > 0
        )

    with query.running(each):
        produce_until(query, has_read_all)

    [slot] = {str(text["slot"]) for text in found if "slot" in text}
    last = {name: text for name, text in found[-1].items() if name not in COUNTED}
    assert last == {
        "slot": slot,
        "epoch": 1,
        "ranges": {f"{query.topic}-0": 1, f"{query.topic}-1": 1},
    }
    assert [text for text in found if "failure" in text] == [{"failure": "NO_SLOT"}] * (
        len(found) - sum("slot" in text for text in found)
    )


def batches_of(running: StreamingQuery) -> list[dict[str, Any]]:
    """The progress of the batches of a run that had records."""
    return [each for each in running.recentProgress if each["numInputRows"]]


def test_tasks_read_their_own_ranges_over_a_restart(query: PinnedQuery) -> None:
    """The first batches run anywhere; once the executor's member is assigned, tasks are bound. The
    next run of the query goes on with the assignment in the table, and with no new epoch: from its
    first batch on."""
    seen = Numbers()

    for run in range(2):
        with query.running(seen) as running:
            produce_until(query, lambda q=running: members_metrics(q).get("ownPortions", 0) > 0)
            if run:
                # How a batch was read is told with the one behind it.
                produce_until(query, lambda q=running: len(batches_of(q)) > 1)
                assert metrics_of(batches_of(running)[1])["ownPortions"] > 0
            wait_until(lambda: len(seen.all) >= query.sent, 150)
            metrics = members_metrics(running)
            assert (metrics["members"], metrics["reached"], metrics["epoch"]) == (1, 1, 1)
            assert metrics["foreignPortions"] == metrics["unownedPortions"] == 0

    # The first run may have ended before Spark noted its last batch: then the second one reads it.
    assert seen.all == list(range(query.sent))
    table = open_assignments(str(query.table), query.topic, {})
    stored, rows = table.last(), list(table.history())
    assert stored is not None
    assert stored.assignment is not None
    [slot] = stored.assignment.slots
    assert {member.slot: member.is_static for member in stored.members} == {slot: True}
    assert {row.epoch for row in rows} <= {0, 1}
    assert len({row.run_id for row in rows if row.epoch == 1}) >= 1


def test_individual_commits_with_pinned_ranges(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    """What failed comes again to its slot, and every record is done once."""
    query = PinnedQuery(
        spark,
        topics,
        tmp_path,
        commitMode="individual",
        commitTable=str(tmp_path / "commits"),
        **{"redelivery.backoff": "0"},
    )
    done: Counter[int] = Counter()
    failed: set[int] = set()

    def each(frame: DataFrame, _: int) -> None:
        rows = set(values(frame))
        bad = {n for n in rows if n % 7 == 0} - failed
        failed.update(bad)
        done.update(rows - bad)
        number = F.col("value").cast("string").cast("long")
        whole = keyrange.materialize(frame)
        keyrange.acknowledge(whole.where(~number.isin(list(bad))))
        keyrange.reject(whole.where(number.isin(list(bad))).withColumn("why", F.lit("bad")), "why")

    judged = keyrange.each_batch(each, query.options(), str(query.checkpoint))
    with query.running(judged) as running:
        produce_until(query, lambda: members_metrics(running).get("ownPortions", 0) > 0)
        wait_until(lambda: done.total() >= query.sent, 150)

    assert done == Counter(range(query.sent))
    assert failed


def most_portions(running: StreamingQuery) -> int:
    """How many portions a batch of a run had at the most."""
    return max(metrics_of(each).get("ownPortions", 0) for each in running.recentProgress)


@pytest.mark.parametrize("budget", [pytest.param("0", marks=pytest.mark.slow), "1s"])
def test_a_task_reads_several_portions_of_one_key_range(
    spark: SparkSession, topics: Topics, tmp_path: Path, budget: str
) -> None:
    """A portion begins inside a key range, behind one of the same range that the task has read:
    each key is in order, and what is handed back is one portion's."""
    query = PinnedQuery(
        spark,
        topics,
        tmp_path,
        commitMode="individual",
        commitTable=str(tmp_path / "commits"),
        keyRangesPerPartition="1",
        splitsPerCore="2",
        **{"redelivery.backoff": "0", "batch.time.budget": budget},
    )
    # As large as is worth two portions.
    query.width = 1_000
    tries = tmp_path / "tries"
    tries.mkdir()
    done: list[tuple[int, str]] = []
    may_go_on = threading.Event()
    may_go_on.set()

    def work(record: Any) -> tuple[int, str]:
        number = int(record.value)
        # Some fail the first time, each of another key; with a budget some wait.
        if number % 997 == 0 and not (tries / str(number)).exists():
            (tries / str(number)).touch()
            raise ValueError("the first time")
        if budget != "0" and number % 100 == 1:
            time.sleep(0.05)
        return number, record.key.decode()

    def each(frame: DataFrame, _: int) -> None:
        assert may_go_on.wait(150)
        rows = keyrange.process(frame, work, "n long, key string").collect()
        done.extend((row.n, row.key) for row in rows)

    judged = keyrange.each_batch(each, query.options(), str(query.checkpoint))
    with query.running(judged) as running:
        produce_until(query, lambda: members_metrics(running).get("ownPortions", 0) > 0)
        # All of it is one batch.
        may_go_on.clear()
        query.produce(8_000)
        may_go_on.set()

        wait_until(lambda: len(done) >= query.sent, 150)
        # How a batch was read is told with the one behind it.
        produce_until(query, lambda: most_portions(running) > 2)
        wait_until(lambda: len(done) >= query.sent, 150)

    assert Counter(n for n, _ in done) == Counter(range(query.sent))
    last: dict[str, int] = {}
    for number, key in done:
        assert last.get(key, -1) < number
        last[key] = number
