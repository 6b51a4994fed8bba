"""Key ranges over real topics: all rows once, each key's in order by one task, over restarts."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import psutil
import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import spark_partition_id

from brokers.real_broker import Record, Topics, wait_until
from keyrange.model.key_ranges import HASH_MAX
from keyrange.ranges.sharing.shared_directory import usual_settings
from project.forms import by_form
from spark.sources import Collected, batch, committed, run_available_now, stream

# A task for each range, and several chunks in each partition.
SPLIT = {
    "splitBy": "keyRange",
    "keyRangesPerPartition": "4",
    "bytesPerTask": "0",
    "kafka.max.partition.fetch.bytes": "4000",
}
ALL = {"includeHeaders": "true", "includeKeyHash": "true"}
HALVES = ([[0, 2**62 - 1]], [[2**62, HASH_MAX]])


@pytest.fixture(scope="module", autouse=True)
def nothing_is_left() -> Iterator[None]:
    """The private directories of the executors of this process are empty in the end."""
    yield
    assert left_behind() == []


def left_behind() -> list[Path]:
    own = {child.pid for child in psutil.Process().children(recursive=True)}
    memory = usual_settings(0, 0).memory_directory
    assert memory is not None
    executors = [
        # Schemas of registries are kept beside them.
        path
        for path in memory.glob("keyrange-*/[0-9]*")
        if int(path.name.partition("-")[0]) in own
    ]
    assert executors
    # An executor that ends meanwhile takes its directory along.
    found = [each for path in executors for each in (*path.glob("*"), *path.glob("spill/*"))]
    # What pinned queries of this process have there stays as long as the executor.
    others = ("budget", "spill", "slot", "member", "told")
    return [each for each in found if each.name.partition("-")[0] not in others]


def keyed(count: int, keys: int = 40, seed: int = 0, partitions: int = 2) -> list[Record]:
    """Records whose values are numbered; some without a key, some with headers."""
    random = Random(seed)
    made = []
    for n in range(count):
        key = random.randrange(keys)
        made.append(
            Record(
                b"%06d" % n + b"x" * random.randrange(60),
                None if key % 10 == 3 else b"key-%d" % key,
                key % partitions,
                headers=[("h", b"%d" % n)] if n % 3 == 0 else (),
            )
        )
    return made


def filled(topics: Topics, records: Iterable[Record]) -> str:
    topic = topics.create_topic("ranges", 2)
    topics.produce(topic, records, batch_size=1_000, linger_ms=20)
    return topic


class Mixed(NamedTuple):
    """A topic with batches of every codec, and its rows as they are read by partition."""

    topic: str
    whole: list[tuple[Any, ...]]


@pytest.fixture(scope="module")
def mixed(spark: SparkSession, topics: Topics) -> Mixed:
    topic, records = topics.create_topic("mixed", 2), keyed(600)
    for number, codec in enumerate((None, "gzip", "snappy", "lz4", "zstd")):
        part = records[120 * number :][:120]
        topics.produce(topic, part, compression_type=codec, batch_size=1_000, linger_ms=20)
    return Mixed(topic, rows(batch(spark, topics, topic, **ALL)))


def rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in frame.collect()), key=lambda row: (row[3], row[4]))


def read_split(
    spark: SparkSession, topics: Topics, topic: str, **given: str
) -> tuple[list[tuple[Any, ...]], set[tuple[int, int]]]:
    """A topic's rows, and the partition and task of those without a key, of more tasks than there
    are partitions."""
    frame = batch(spark, topics, topic, **{**ALL, **SPLIT, **given})
    read = rows(frame.withColumn("task", spark_partition_id()))
    assert len({row[-1] for row in read}) > 2
    return [row[:-1] for row in read], {(row[3], row[-1]) for row in read if row[0] is None}


def assert_equal(spark: SparkSession, topics: Topics, topic: str, count: int, **given: str) -> None:
    """Read by key range, a topic has the rows that it has by partition."""
    whole = rows(batch(spark, topics, topic, **ALL, **given))
    assert read_split(spark, topics, topic, **given)[0] == whole
    assert len(whole) == count


def test_all_ranges_are_the_partition(spark: SparkSession, topics: Topics, mixed: Mixed) -> None:
    """Null keys, headers and hashes included; records without a key are spread over the ranges."""
    read, tasks = read_split(spark, topics, mixed.topic, nullKeys="spread")
    assert read == mixed.whole
    assert len(read) == 600
    assert {row[-1] for row in read if row[0] is None} != {0}
    assert len(tasks) > 1


def test_records_without_a_key_come_first(spark: SparkSession, topics: Topics) -> None:
    topic = filled(topics, keyed(300))
    read, tasks = read_split(spark, topics, topic, nullKeys="first")
    assert read == rows(batch(spark, topics, topic, **ALL, nullKeys="first"))
    assert len(read) == 300
    assert {row[-1] for row in read if row[0] is None} == {0}
    assert len(tasks) == 1


def test_transactions_and_what_is_open(spark: SparkSession, topics: Topics) -> None:
    topic = filled(topics, keyed(100))
    topics.produce_transaction(topic, keyed(100, seed=1), commit=False, batch_size=1_000)
    topics.produce_transaction(topic, keyed(100, seed=2), batch_size=1_000)
    with topics.producer(transactional_id=f"open-{topic}", batch_size=1_000) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        for record in keyed(50, seed=3):
            producer.send(topic, record.value, record.key, partition=record.partition)
        producer.flush()
        topics.produce(topic, keyed(40, seed=4))
        committed_only = {"kafka.isolation.level": "read_committed"}
        assert_equal(spark, topics, topic, 200, **committed_only)
        assert_equal(spark, topics, topic, 390)
        producer.abort_transaction()
    assert_equal(spark, topics, topic, 240, **committed_only)


def test_a_compacted_topic(spark: SparkSession, topics: Topics) -> None:
    """Offsets with pending records, and batches that hold nothing any more."""
    settings = {
        "cleanup.policy": "compact",
        "segment.ms": "100",
        "min.cleanable.dirty.ratio": "0.01",
    }
    topic = topics.create_topic("compacted", 2, settings)
    records = [record for record in keyed(600) if record.key is not None]
    for part in (records[:300], records[300:], records[:20]):
        topics.produce(topic, part, batch_size=1_000, linger_ms=20)
    whole = batch(spark, topics, topic, **ALL)
    wait_until(lambda: whole.count() < len(records))
    before, split, after = None, None, rows(whole)
    # The cleaner may run between two reads.
    while before != after:
        before = after
        split = rows(batch(spark, topics, topic, **ALL, **SPLIT))
        after = rows(whole)
    assert split == before


# Of 40 keys with tasks of several ranges, and of 300; the long form has more ranges than keys too.
@pytest.mark.parametrize("seed", by_form([0, 5], [0, 5], [0, 1, 2, 5]))
def test_each_key_is_read_in_order_by_one_task(
    spark: SparkSession, topics: Topics, seed: int
) -> None:
    random = Random(seed)
    records = keyed(800, keys=random.choice([3, 40, 300]), seed=seed)
    topic = filled(topics, records)
    given = {**SPLIT, "keyRangesPerPartition": str(random.randint(2, 20))}
    if random.random() < 0.5:
        given |= {"parallelism": str(random.randint(2, 9)), "bytesPerTask": "8m"}
    assert_in_order(batch(spark, topics, topic, **given), records)


def assert_in_order(frame: DataFrame, records: Iterable[Record]) -> None:
    """For each key the sequence is the one that was produced, and it is one task's."""
    produced = by_key((record.partition, record.key, record.value) for record in records)
    read = frame.select("partition", "key", "value", spark_partition_id()).collect()
    assert by_key(tuple(row)[:3] for row in read) == produced
    tasks = {(row[0], row[1], row[3]) for row in read if row[1] is not None}
    assert len(tasks) == len(produced)


def by_key(rows: Iterable[tuple[Any, ...]]) -> dict[tuple[int, bytes], list[bytes]]:
    found: dict[tuple[int, bytes], list[bytes]] = defaultdict(list)
    for partition, key, value in rows:
        if key is not None:
            found[partition, bytes(key)].append(bytes(value))
    return found


@pytest.mark.parametrize(
    "given",
    [
        {"max.bytes.key.range.results": "0", "max.bytes.key.range.spill": "0"},
        {"max.bytes.key.range.results": "0"},
        {"max.bytes.key.range.results": "10k", "max.bytes.key.range.spill": "0"},
        {"max.bytes.key.range.results": "10k"},
    ],
)
def test_any_budget_has_the_same_rows(
    spark: SparkSession, topics: Topics, mixed: Mixed, given: dict[str, str]
) -> None:
    assert read_split(spark, topics, mixed.topic, **given)[0] == mixed.whole


def test_a_frame_that_is_used_again(spark: SparkSession, topics: Topics, mixed: Mixed) -> None:
    """Its tasks are the same ones, and what the first use left unfinished is not in the way."""
    frame = batch(spark, topics, mixed.topic, **SPLIT | {"keyRangesPerPartition": "2"})
    assert len(frame.limit(3).collect()) == 3
    assert len(frame.take(1)) == 1
    assert [frame.count(), frame.count(), len(rows(frame))] == [600] * 3
    assert frame.union(frame).count() == 1_200


def test_even_pieces_of_offsets(spark: SparkSession, topics: Topics, mixed: Mixed) -> None:
    given = {"splitBy": "offset", "parallelism": "7"}
    assert read_split(spark, topics, mixed.topic, **given)[0] == mixed.whole


def test_only_the_keys_that_are_asked_for(
    spark: SparkSession, topics: Topics, mixed: Mixed
) -> None:
    wanted = '["key-1", "key-2", null, "no such key", {"base64": "a2V5LTQ="}]'
    keys = {b"key-1", b"key-2", b"key-4", None}
    whole = [row for row in mixed.whole if row[0] in keys]
    assert len(whole) > 20
    for given in ({}, SPLIT, {"splitBy": "offset", "parallelism": "4"}):
        assert rows(batch(spark, topics, mixed.topic, **ALL, **given, keys=wanted)) == whole


@pytest.mark.parametrize("split_by", ["keyRange", "offset"])
def test_a_topic_that_keeps_its_order_is_not_split(
    spark: SparkSession, topics: Topics, split_by: str
) -> None:
    topic = filled(topics, keyed(10))
    given = {"splitBy": split_by, "accept.range.fetch": json.dumps({topic: False})}
    with pytest.raises(
        PySparkException,
        match=rf"RANGE_FETCH_NOT_ACCEPTED.*{topic}.*splitBy={split_by}.*splitBy=partition",
    ):
        batch(spark, topics, topic, **given).collect()
    given["accept.range.fetch"] = '{"another": false}'
    assert batch(spark, topics, topic, **given).count() == 10


def test_two_queries_read_a_half_each(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    topic = filled(topics, keyed(400))
    sinks = []
    for number, half in enumerate(HALVES):
        given = {**SPLIT, "keyRangesCoverage": "partial", "keyRanges": json.dumps({topic: half})}
        del given["keyRangesPerPartition"]
        frame = stream(spark, topics, topic, startingOffsets="earliest", **given)
        sinks.append(Collected())
        run_available_now(frame, tmp_path / str(number), sinks[-1])
    assert min(len(sink.rows) for sink in sinks) > 100
    assert len({row[1:3] for sink in sinks for row in sink.rows}) == 400
    assert sum(len(sink.rows) for sink in sinks) == 400


class DeltaSink:
    """Appends batches to a table, each once; fails before it writes those in `fails`."""

    def __init__(self, table: Path, query: str) -> None:
        self.table, self._query, self.fails = table, query, set[int]()
        self.ran: list[int] = []

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        self.ran.append(batch_id)
        found = frame.toArrow()
        if batch_id in self.fails:
            self.fails.remove(batch_id)
            raise RuntimeError("on purpose")
        if DeltaTable.is_deltatable(str(self.table)):
            last = DeltaTable(self.table).transaction_version(self._query)
            if last is not None and last >= batch_id:
                return
        once = CommitProperties(app_transactions=[Transaction(self._query, batch_id)])
        write_deltalake(self.table, found, mode="append", commit_properties=once)

    def rows(self) -> list[dict[str, Any]]:
        return in_log_order(DeltaTable(self.table).to_pyarrow_table())


def in_log_order(table: pa.Table) -> list[dict[str, Any]]:
    return sorted(table.to_pylist(), key=lambda row: (row["partition"], row["offset"]))


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(9))])
def test_a_stream_whose_number_of_ranges_changes(
    spark: SparkSession, topics: Topics, tmp_path: Path, seed: int
) -> None:
    """Over restarts, with planned batches that another number of ranges has to finish."""
    random = Random(seed)
    records = keyed(900, seed=seed)
    topic = filled(topics, records[:300])
    sink = DeltaSink(tmp_path / "table", topic)
    checkpoint = tmp_path / "checkpoint"
    for run in range(1, 5):
        given = {**SPLIT, "keyRangesPerPartition": str(random.randint(1, 7))}
        if run == 4:
            given = {"splitBy": "partition"}
        frame = stream(
            spark, topics, topic, startingOffsets="earliest", maxOffsetsPerTrigger="150", **given
        )
        if run in (1, 3):
            sink.fails.add(len(committed(checkpoint)) + 1)
            with pytest.raises(StreamingQueryException, match="on purpose"):
                run_available_now(frame, checkpoint, sink)
        else:
            run_available_now(frame, checkpoint, sink)
            if run == 2:
                # In the table, and not known to be.
                last = committed(checkpoint)[-1]
                for name in (f"{last}", f".{last}.crc"):
                    (checkpoint / "commits" / name).unlink()
        if run < 3:
            topics.produce(topic, records[300 * run :][:300], batch_size=1_000)

    found = sink.rows()
    assert found == in_log_order(batch(spark, topics, topic).toArrow())
    assert len(found) == 900
    assert len(sink.ran) > len(set(sink.ran)) + 2


def test_a_stream_keeps_the_order_of_keys(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    records = keyed(300)
    topic = filled(topics, records)
    position = {(record.partition, record.value): n for n, record in enumerate(records)}
    seen: dict[tuple[int, bytes], int] = {}

    def check(frame: DataFrame, batch_id: int) -> None:
        read = frame.select("partition", "key", "value", spark_partition_id()).collect()
        tasks: dict[tuple[int, bytes], int] = {}
        for partition, key, value, task in read:
            if key is not None:
                place = (partition, bytes(key))
                at = position[partition, bytes(value)]
                assert seen.get(place, -1) < at
                assert tasks.setdefault(place, task) == task
                seen[place] = at

    frame = stream(
        spark, topics, topic, startingOffsets="earliest", maxOffsetsPerTrigger="150", **SPLIT
    )
    run_available_now(frame, tmp_path, check)
    assert len(seen) == len(by_key((r.partition, r.key, r.value) for r in records))
