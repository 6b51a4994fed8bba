"""The topics of the scenarios: what each holds. Reading alters none, so most are shared.

Timestamps are given and not taken from a clock, so that two topics of one plan hold the same rows.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from kafka import KafkaProducer
from pyspark.sql import SparkSession

from brokers.real_broker import Record, Topics, kafka_is_before, send, wait_until
from keyrange.embedded.broker import EmbeddedCluster

SINCE_MS = 1_700_000_000_000
OPEN_TRANSACTION_MS = 3_600_000


def numbered(
    count: int, partition: int = 0, first: int = 0, step_ms: int = 1000, word: str = "v"
) -> list[Record]:
    """Records with values `v0`, `v1`, ..., keys `k0`, ..., each `step_ms` after the one before."""
    return [
        Record(f"{word}{n}".encode(), f"k{n}".encode(), partition, SINCE_MS + n * step_ms)
        for n in range(first, first + count)
    ]


@dataclass(frozen=True)
class Plan:
    """A kind of topic. `fill` writes its records; what it yields to is kept open till the end."""

    partitions: int = 1
    fill: Callable[[Stage, str], Iterator[None] | None] | None = None
    configs: Mapping[str, str] = field(default_factory=dict)


class Stage:
    """Makes topics by the name of their plan. A name may have a suffix of its own: `ten.a`.

    There is one for what all scenarios read, and one for each side of a scenario: the clients of a
    stage are not for two threads.
    """

    def __init__(self, cluster: EmbeddedCluster, spark: SparkSession) -> None:
        self.topics = Topics(cluster)
        self.spark = spark
        self.token = uuid.uuid4().hex[:10]
        self.names: dict[str, str] = {}
        self._open = contextlib.ExitStack()

    def close(self) -> None:
        self._open.close()
        self.topics.close()

    def topic(self, name: str) -> str:
        """The real name of a topic, which is made when it is first asked for."""
        if name not in self.names:
            self.names[name] = f"{name}-{self.token}"
            self.fill(name)
        return self.names[name]

    def fill(self, name: str) -> None:
        """Make a topic by its plan under the name that it has; also again, after its deletion."""
        plan = PLANS[name.partition(".")[0]]
        configs = {"retention.ms": "-1", **plan.configs}  # the records are said to be old
        self.topics.create_named(self.names[name], plan.partitions, configs)
        kept = plan.fill(self, self.names[name]) if plan.fill else None
        if kept is not None:
            self._open.enter_context(contextlib.contextmanager(lambda: kept)())


def filled(*groups: Iterable[Record]) -> Callable[[Stage, str], None]:
    """A filling of plain records."""

    def fill(stage: Stage, topic: str) -> None:
        stage.topics.produce(topic, [record for group in groups for record in group])

    return fill


def _trimmed(stage: Stage, topic: str) -> None:
    stage.topics.produce(topic, numbered(20))
    stage.topics.delete_records(topic, {0: 15})


def _stamped(stage: Stage, topic: str) -> None:
    """Times go up, stand still, go back: the first offset whose time is not below one is asked."""
    stage.topics.produce(topic, numbered(10, 0))
    stage.topics.produce(topic, numbered(10, 1, first=5))
    times = (3000, 3000, 9000, 1000, 1000, 12_000)
    stage.topics.produce(
        topic, [Record(b"w%d" % n, None, 2, SINCE_MS + at) for n, at in enumerate(times)]
    )


def _odd(stage: Stage, topic: str) -> None:
    """Nulls and empty values, header keys twice, null headers; by Spark's own sink, which can."""
    stage.topics.produce(
        topic,
        [
            Record(None, b"tombstone", 0, SINCE_MS),
            Record(b"", b"", 0, SINCE_MS + 1, [("a", b"1"), ("a", b""), ("b", b"2")]),
            Record(b"keyless", None, 1, SINCE_MS + 2),
            Record("€ 𐍈".encode(), b"\x00\xff", 1, SINCE_MS + 3, [("ü", b"\x00"), ("", b"empty")]),
        ],
    )
    header = "struct<key:string,value:binary>"
    rows = [
        f"SELECT CAST(NULL AS binary) AS key, CAST(NULL AS binary) AS value, "
        f"CAST(NULL AS array<{header}>) AS headers",
        f"SELECT X'61', X'62', CAST(array(named_struct('key', 'n', 'value', NULL), "
        f"named_struct('key', 'n', 'value', X'01')) AS array<{header}>)",
    ]
    frame = stage.spark.sql(" UNION ALL ".join(rows)).coalesce(1)
    frame.selectExpr("*", f"'{topic}' AS topic", "2 AS partition").write.format("kafka").options(
        **{
            "kafka.bootstrap.servers": stage.topics.cluster.bootstrap_servers,
            "includeHeaders": "true",
        }
    ).save()


def _transactions(stage: Stage, topic: str) -> None:
    """Plain, aborted, committed, aborted; and in partition 1 two that lie over each other; and in
    partition 2 nothing but an aborted one."""
    topics = stage.topics
    topics.produce(topic, numbered(2, word="plain"))
    topics.produce_transaction(topic, numbered(5, word="aborted"), commit=False)
    topics.produce_transaction(topic, numbered(3, word="committed"))
    topics.produce_transaction(topic, numbered(1, word="late"), commit=False)
    with transaction(topics, topic + "-a") as one, transaction(topics, topic + "-b") as other:
        for n in range(6):
            send(one, topic, numbered(1, 1, n, word="kept"))
            send(other, topic, numbered(1, 1, n, word="dropped"))
        other.abort_transaction()
        send(one, topic, numbered(1, 1, 6, word="kept"))
        one.commit_transaction()
    topics.produce_transaction(topic, numbered(2, 2, word="never"), commit=False)


def _open(stage: Stage, topic: str) -> Iterator[None]:
    """Two plain records, a committed one, three of an open transaction, and one plain behind."""
    topics = stage.topics
    topics.produce(topic, numbered(2, word="plain"))
    topics.produce_transaction(topic, numbered(1, word="committed"))
    with transaction(topics, topic) as producer:
        send(producer, topic, numbered(3, word="open"))
        topics.produce(topic, numbered(1, word="behind"))
        yield
        producer.abort_transaction()


@contextlib.contextmanager
def transaction(topics: Topics, identity: str) -> Iterator[KafkaProducer]:
    """A producer that has begun a transaction, which stays open as long as the tests may take."""
    with topics.producer(
        transactional_id=identity, transaction_timeout_ms=OPEN_TRANSACTION_MS
    ) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        yield producer


def _compacted(stage: Stage, topic: str) -> None:
    """Cleaned to the last record of each key, which leaves gaps before, between and behind.

    A segment is closed when a record's time says so, and the last one is never cleaned.
    """
    topics = stage.topics
    for turn in range(6):
        keys = [n for n in range(20) if turn < 4 or n % 3 == turn % 3]
        records = [Record(b"t%d" % turn, b"k%d" % n, 0, SINCE_MS + turn * 1000) for n in keys]
        topics.produce(topic, records, linger_ms=20)
    topics.produce(topic, [Record(b"open", b"open", 0, SINCE_MS + 60_000)])
    wait_until(lambda: len(topics.values(topic)) == 21)


_COMPACT = {
    "cleanup.policy": "compact",
    "segment.ms": "100",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "0",
}
# Older brokers take any time, and know no such setting.
_ANY_TIME = {} if kafka_is_before(3, 6) else {"message.timestamp.after.max.ms": str(2**63 - 1)}

PLANS: Mapping[str, Plan] = {
    "three": Plan(3, filled(numbered(20, 0), numbered(5, 1), numbered(1, 2))),
    "ten": Plan(1, filled(numbered(10))),
    "hundred": Plan(1, filled(numbered(100))),
    "half": Plan(2, filled(numbered(8, 0))),
    "empty": Plan(2),
    "blank": Plan(1),
    "trimmed": Plan(1, _trimmed),
    "stamped": Plan(3, _stamped),
    "odd": Plan(3, _odd),
    "append": Plan(1, filled(numbered(3)), {"message.timestamp.type": "LogAppendTime"}),
    "timeless": Plan(1, filled([Record(b"x", b"k", 0, -1), Record(b"y", b"k", 0, -1)])),
    "early": Plan(1, filled([Record(b"x", None, 0, 0), Record(b"y", None, 0, 1)])),
    "micros": Plan(1, filled([Record(b"x", None, 0, SINCE_MS * 1000)]), _ANY_TIME),
    "nanos": Plan(
        1,
        filled([Record(b"x", None, 0, SINCE_MS), Record(b"y", None, 0, SINCE_MS * 1_000_000)]),
        _ANY_TIME,
    ),
    "transactions": Plan(3, _transactions),
    "open": Plan(1, _open),
    "compacted": Plan(1, _compacted, _COMPACT),
}
