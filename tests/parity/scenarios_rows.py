"""Batch reads: which topics, what rows hold, what changes between reads, how many tasks."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from brokers.real_broker import Record
from parity.harness import Side
from parity.outcome import Scenario
from parity.scenarios_faults import fault, recreate
from parity.stage import SINCE_MS, numbered, transaction
from parity.tables import COMMITTED, HEADERS, ONE_EACH, UNCOMMITTED, at, batch, own, with_long

three = partial(batch, "three")

PATTERNS = ("three", "ten", "hundred")

TOPICS = (
    three("assign all", {"assign": '{"<three>":[2,0,1]}'}, "26 rows"),
    three(
        "assign one", {"assign": '{"<three>":[0]}', "startingOffsets": at("three", 4)}, "16 rows"
    ),
    three("assign a partition that does not exist", {"assign": '{"<three>":[0,9]}'}, "20 rows"),
    three("assign none of what exists", {"assign": '{"<three>":[9]}'}, "0 rows"),
    three(
        "assign a topic that does not exist",
        {"assign": '{"no-such":[0]}'},
        "action: UNKNOWN_TOPIC_OR_PARTITION",
    ),
    three("assign no partition", {"assign": '{"<three>":[]}'}, "0 rows"),
    three(
        "start names what is not assigned",
        {"assign": '{"<three>":[0]}', "startingOffsets": at("three", 4, 0)},
        "action: OTHER_PARTITIONS_ASSIGNED",
    ),
    three(
        "several topics",
        {"subscribe": "<three>, <ten>,,<three>"},
        "36 rows",
        topics=("three", "ten"),
    ),
    three(
        "several topics by offsets",
        {
            "subscribe": "<ten>,<three>",
            "startingOffsets": '{"<three>":{"0":18,"1":-2,"2":0},"<ten>":{"0":9}}',
        },
        "9 rows",
        topics=("three", "ten"),
    ),
    three(
        "one of several topics is missing",
        {"subscribe": "<three>,no-such-topic"},
        "action: UNKNOWN_TOPIC_OR_PARTITION",
    ),
    batch(
        "ten", "a pattern", {"subscribePattern": "(ten|three)-<shared>"}, "36 rows", topics=PATTERNS
    ),
    batch(
        "ten",
        "a pattern with blanks around it",
        {"subscribePattern": " (ten|three)-<shared>\n"},
        "36 rows",
        topics=PATTERNS,
    ),
    batch(
        "ten",
        "a pattern of dots",
        {"subscribePattern": "^t[eh].*-<shared>$"},
        "36 rows",
        topics=PATTERNS,
    ),
    batch(
        "ten",
        "a pattern inside of names",
        {"subscribePattern": "hre+-<shared>"},
        "26 rows",
        topics=PATTERNS,
    ),
    batch(
        "ten",
        "a pattern inside of names, searched for",
        {"subscribePattern": "hre+e-<shared>"},
        "26 rows",
        topics=PATTERNS,
        keyrange_only={"subscribePatternMatch": "search"},
    ),
    batch("ten", "a pattern of no topic", {"subscribePattern": "nothing-<shared>"}, "0 rows"),
    batch(
        "ten",
        "a pattern with a look-ahead",
        {"subscribePattern": "^(?!three)t[eh][a-z]+-<shared>$"},
        "10 rows",
        topics=PATTERNS,
    ),
    batch(
        "ten", "a pattern with a quotation", {"subscribePattern": r"\Qten\E-<shared>"}, "10 rows"
    ),
    batch(
        "three",
        "a pattern with a set in a set",
        {"subscribePattern": "t[a-z&&[^e]]ree-<shared>"},
        "26 rows",
    ),
)

ROWS = (
    batch("odd", "nulls, empty values, headers", HEADERS, "6 rows"),
    batch("odd", "headers not asked for", {}, "6 rows"),
    batch("append", "LogAppendTime", HEADERS, "3 rows"),
    batch("timeless", "records without a time", {}, "2 rows"),
    batch("early", "records of 1970", {}, "2 rows"),
    batch("micros", "times in microseconds", {}, "1 rows"),
    batch("nanos", "times in nanoseconds", {}, "action: MALFORMED_TIMESTAMP"),
)


TRANSACTIONS = (
    batch("transactions", "transactions, default isolation", {}, "26 rows"),
    batch("transactions", "transactions, read_uncommitted", UNCOMMITTED, "26 rows"),
    batch("transactions", "transactions, read_committed", COMMITTED, "12 rows"),
    batch(
        "transactions",
        "a range of aborted records and a marker",
        {
            **COMMITTED,
            "startingOffsets": at("transactions", 2, 0, 0),
            "endingOffsets": at("transactions", 8, 0, 3),
        },
        "0 rows",
    ),
    batch(
        "transactions",
        "a range of one marker",
        {
            "startingOffsets": at("transactions", 7, 0, 0),
            "endingOffsets": at("transactions", 8, 0, 0),
        },
        "0 rows",
    ),
    batch(
        "transactions",
        "a range that ends inside of transactions",
        {
            **COMMITTED,
            "startingOffsets": at("transactions", 9, 3, 0),
            "endingOffsets": at("transactions", 10, 9, 1),
        },
        "4 rows",
    ),
    batch("open", "an open transaction, read_uncommitted", UNCOMMITTED, "7 rows"),
    batch("open", "an open transaction, read_committed", COMMITTED, "3 rows"),
    batch("compacted", "a compacted topic", {}, "21 rows"),
    batch("compacted", "a start in a gap", {"startingOffsets": at("compacted", 3)}, "21 rows"),
    batch(
        "compacted",
        "a range inside of a gap",
        {"startingOffsets": at("compacted", 3), "endingOffsets": at("compacted", 6)},
        "0 rows",
    ),
    batch("compacted", "an end in a gap", {"endingOffsets": at("compacted", 65)}, "2 rows"),
)


def transaction_ends(side: Side) -> None:
    """Read committed, before and after a transaction's end, with the frame of before."""
    topic = side.names["ten"]
    with transaction(side.topics, topic) as producer:
        producer.send(topic, b"pending", timestamp_ms=SINCE_MS).get(30)
        frame = side.read()
        producer.commit_transaction()
    side.read_again(frame)


def read_twice(side: Side) -> None:
    """The range of a frame is found anew each time that it is read."""
    frame = side.read()
    side.topics.produce(side.names["ten"], numbered(3, first=10))
    side.read_again(frame)


def read_union(side: Side) -> None:
    reader = side.spark.read.format(side.format).options(**side.options({}))
    frame = reader.load()
    side.read_again(frame.union(frame))


def read_parts(side: Side) -> None:
    """Some columns, a filter, a limit and a count."""
    frame = side.spark.read.format(side.format).options(**side.options({})).load()
    side.read_again(frame.select("offset", "topic").where("offset >= 4 AND partition = 0"))
    side.read_again(frame.selectExpr("count(*) AS n", "max(timestamp) AS t", "min(offset) AS o"))
    side.read_again(frame.where("false"))
    side.read_again(frame.select("value").orderBy("value").limit(3))


def deleted_after_planning(side: Side) -> None:
    """Records go between load and read, where the positions are already named."""
    frame = side.spark.read.format(side.format).options(**side.options({})).load()
    side.topics.delete_records(side.names["ten"], {0: 7})
    side.read_again(frame)


def grown(side: Side) -> None:
    frame = side.read()
    topic = side.names["ten"]
    side.topics.add_partitions(topic, 2)
    side.topics.produce(topic, [Record(b"new", None, 1, SINCE_MS)])
    side.read_again(frame)


def recreated(side: Side) -> None:
    frame = side.read()
    recreate(side, 2)
    side.read_again(frame)


CHANGES = (
    fault("recreated between two reads of a frame", "10 rows | 2 rows", recreated),
    fault(
        "recreated with less than a frame begins at",
        "5 rows | action: RESOLVED_START_ABOVE_END",
        recreated,
        startingOffsets=at("ten", 5),
    ),
    own("a frame sees what came since", {}, "10 rows | 13 rows", read_twice, kind="batch"),
    own(
        "a transaction that ends between reads",
        COMMITTED,
        "10 rows | 11 rows",
        transaction_ends,
        kind="batch",
    ),
    own("a frame sees a new partition", {}, "10 rows | 11 rows", grown, kind="batch"),
    own(
        "records deleted before the read",
        {"startingOffsets": at("ten", 2), "endingOffsets": at("ten", 9)},
        "action: COULD_NOT_READ_OFFSET_RANGE",
        deleted_after_planning,
        kind="batch",
    ),
    own(
        "records deleted before the read, without failOnDataLoss",
        {
            "startingOffsets": at("ten", 2),
            "endingOffsets": at("ten", 9),
            "failOnDataLoss": "false",
        },
        "2 rows",
        deleted_after_planning,
        kind="batch",
    ),
    three("a union with itself", {}, "52 rows", play=read_union),
    three("columns, filters, counts", {}, "16 rows | 1 rows | 0 rows | 3 rows", play=read_parts),
)


def tasks(
    name: str, options: Mapping[str, str], count: int, topic: str = "three", **more: object
) -> Scenario:
    rows = {"three": 26, "half": 8, "empty": 0, "hundred": 100}[topic]
    return batch(topic, f"tasks: {name}", options, f"{rows} rows", tasks=str(count), **more)


TASKS = (
    tasks("default", {}, 3),
    tasks("default, one partition each", {}, 3, keyrange_only=ONE_EACH),
    tasks("an empty partition", {}, 2, "half"),
    tasks("an empty topic", {}, 2, "empty"),
    *(
        tasks(f"minPartitions {least} of 100 rows", {"minPartitions": str(least)}, count, "hundred")
        for least, count in ((1, 1), (4, 4), (7, 7))
    ),
    *(
        tasks(
            f"minPartitions {least}", {"minPartitions": str(least)}, count, keyrange_only=ONE_EACH
        )
        for least, count in ((1, 3), (3, 3), (4, 4), (6, 6))
    ),
    # The JVM connector looks at maxRecordsPerPartition only where minPartitions asks for more.
    *(
        tasks(
            f"maxRecordsPerPartition {most}",
            {"maxRecordsPerPartition": str(most)},
            3,
            keyrange_only=ONE_EACH,
        )
        for most in (4, 20)
    ),
    tasks(
        "minPartitions 6, maxRecordsPerPartition 9",
        {"minPartitions": "6", "maxRecordsPerPartition": "9"},
        5,
        keyrange_only=ONE_EACH,
    ),
)

LONG = {
    "assign all",
    "a pattern",
    "headers not asked for",
    "transactions, read_uncommitted",
    "an open transaction, read_uncommitted",
    "a compacted topic",
    "tasks: an empty topic",
    "tasks: minPartitions 1 of 100 rows",
    "tasks: minPartitions 7 of 100 rows",
    "tasks: minPartitions 1",
    "tasks: minPartitions 3",
    "tasks: minPartitions 6",
    "tasks: maxRecordsPerPartition 20",
}

SCENARIOS = with_long(LONG, (*TOPICS, *ROWS, *TRANSACTIONS, *CHANGES, *TASKS))
