"""Streams: where they start, restarts, what a checkpoint is good for."""

from __future__ import annotations

from brokers.real_broker import send
from parity.harness import Side, SinkFailure
from parity.stage import SINCE_MS, numbered, transaction
from parity.tables import COMMITTED, EARLIEST, HEADERS, at, own, stream, time_at, with_long

STARTS = (
    stream("ten", "starts at latest", {}, "0 rows"),
    stream("three", "earliest", EARLIEST, "26 rows"),
    stream("three", "by offsets", {"startingOffsets": at("three", 15, -2, -1)}, "10 rows"),
    stream(
        "three",
        "offsets lack a partition",
        {"startingOffsets": at("three", 3, 0)},
        "run: OTHER_PARTITIONS_ASSIGNED",
    ),
    stream(
        "three",
        "offsets name one too many",
        {"startingOffsets": at("three", 3, 0, 0, 0)},
        "run: OTHER_PARTITIONS_ASSIGNED",
    ),
    stream(
        "three",
        "start behind the end",
        {"startingOffsets": at("three", 30, 0, 0)},
        "run: PARTITION_OFFSET_CHANGED",
    ),
    stream(
        "three",
        "start behind the end, without failOnDataLoss",
        {"startingOffsets": at("three", 30, 0, 0), "failOnDataLoss": "false"},
        "6 rows",
    ),
    stream(
        "trimmed",
        "start before the first record",
        {"startingOffsets": at("trimmed", 3)},
        "run: COULD_NOT_READ_OFFSET_RANGE",
    ),
    stream(
        "trimmed",
        "start before the first record, without failOnDataLoss",
        {"startingOffsets": at("trimmed", 3), "failOnDataLoss": "false"},
        "5 rows",
    ),
    stream("stamped", "startingTimestamp", {"startingTimestamp": str(SINCE_MS + 4000)}, "20 rows"),
    stream(
        "stamped",
        "startingTimestamp behind some",
        {"startingTimestamp": str(SINCE_MS + 11_000)},
        "run: NO_OFFSET_FOR_TIMESTAMP",
    ),
    stream(
        "stamped",
        "startingTimestamp behind some, strategy latest",
        {
            "startingTimestamp": str(SINCE_MS + 11_000),
            "startingOffsetsByTimestampStrategy": "latest",
        },
        "5 rows",
    ),
    stream(
        "stamped",
        "startingOffsetsByTimestamp wins",
        {
            "startingOffsetsByTimestamp": time_at("stamped", 9000, 7500, 1000),
            "startingOffsets": "latest",
        },
        "14 rows",
    ),
    stream(
        "stamped",
        "startingOffsetsByTimestamp lacks a partition",
        {"startingOffsetsByTimestamp": time_at("stamped", 9000, 7500)},
        "run: OTHER_PARTITIONS_ASSIGNED",
    ),
    stream("three", "assign", {"assign": '{"<three>":[0,2]}', **EARLIEST}, "21 rows"),
    stream(
        "three",
        "assign a partition that does not exist",
        {"assign": '{"<three>":[0,9]}', **EARLIEST},
        "20 rows",
    ),
    stream(
        "three",
        "a missing topic",
        {"subscribe": "<three>,no-such-topic"},
        "run: UNKNOWN_TOPIC_OR_PARTITION",
    ),
    stream(
        "three", "a pattern", {"subscribePattern": "t(en|hre+)-<shared>", **EARLIEST}, "36 rows"
    ),
    stream("three", "a pattern of no topic", {"subscribePattern": "nothing-<shared>"}, "no batch"),
    stream("odd", "nulls, empty values, headers", {**HEADERS, **EARLIEST}, "6 rows"),
    stream("nanos", "times in nanoseconds", EARLIEST, "run: MALFORMED_TIMESTAMP"),
    stream(
        "compacted", "a compacted topic", {**EARLIEST, "maxOffsetsPerTrigger": "40"}, "0+7+14 rows"
    ),
    stream("transactions", "read_uncommitted", EARLIEST, "26 rows"),
    stream("transactions", "read_committed", {**EARLIEST, **COMMITTED}, "12 rows"),
    stream(
        "transactions",
        "read_committed in small batches",
        {**EARLIEST, **COMMITTED, "maxOffsetsPerTrigger": "8"},
        "4+1+3+4+0 rows",
    ),
)


def restarts(side: Side) -> None:
    """With records and a partition that come in between; startingOffsets counts only once."""
    side.drain()
    side.topics.produce(side.names["ten"], numbered(3, first=10))
    side.drain(startingOffsets="latest")
    side.topics.add_partitions(side.names["ten"], 2)
    side.topics.produce(side.names["ten"], numbered(4, 1))
    side.drain(startingOffsets="latest")
    side.drain()


def starts_late(side: Side) -> None:
    side.drain()
    side.topics.produce(side.names["ten"], numbered(3, first=10))
    side.drain()


def fails_first(side: Side) -> None:
    """Batch 0 is planned and not committed; then more comes, and the query starts again."""

    def fail() -> None:
        side.topics.produce(side.names["ten"], numbered(3, first=10))
        raise SinkFailure

    side.drain(before={0: fail})
    side.drain()


def starts_empty(side: Side) -> None:
    side.drain()
    side.topics.produce(side.names["blank"], numbered(2))
    side.drain()


def follows(side: Side) -> None:
    """Records, a partition and a matching topic come while the query runs."""
    with side.follow() as run:
        run.until_batches(1)
        side.topics.produce(side.names["ten"], numbered(2, first=10))
        run.until_rows(2)
        side.topics.add_partitions(side.names["ten"], 2)
        side.topics.produce(side.names["ten"], numbered(2, 1))
        run.until_rows(4)
        side.stage.topic("ten.more")
        run.until_rows(14)


def takes_more(side: Side) -> None:
    """Topics and partitions are added to the options on a restart: they are read from earliest."""
    side.drain(assign='{"<half>":[0]}')
    side.drain(assign='{"<half>":[0,1],"<ten>":[0]}')
    side.topics.produce(side.names["half"], numbered(2, 1))
    side.drain(assign='{"<half>":[1,0],"<ten>":[0]}')


def replays(side: Side) -> None:
    """Batch 1 lost its commit: it runs again with the same rows, though more came since."""
    side.drain()
    side.topics.produce(side.names["ten"], numbered(3, first=10))
    side.drain()
    side.topics.produce(side.names["ten"], numbered(4, first=13))
    side.uncommit(1)
    side.drain()


def commits_between(side: Side) -> None:
    """An open transaction holds back what lies behind it; then only markers are new."""
    topic = side.names["ten"]
    with transaction(side.topics, topic) as producer:
        send(producer, topic, numbered(2, word="first"))
        side.topics.produce(topic, numbered(1, word="behind"))
        side.drain()
        producer.commit_transaction()
        side.drain()
        producer.begin_transaction()
        send(producer, topic, numbered(2, word="aborted"))
        producer.abort_transaction()
    side.drain()
    side.topics.produce(topic, numbered(1, word="last"))
    side.drain()


def commits_to_a_group(side: Side) -> None:
    side.drain()
    own = side.real("mine-<own>")
    groups = [each["group_id"] for each in side.topics.admin.list_groups()]
    side.note(f"{sum(each.startswith(own) for each in groups)} groups")


def comes_late(side: Side) -> None:
    """Records that come between planning and reading belong to the next batch."""
    topic = side.names["ten"]
    with side.follow(
        before={0: lambda: side.topics.produce(topic, numbered(5, first=10))}, whole=True
    ) as run:
        run.until_rows(15)


RUNS = (
    own("restarts", EARLIEST, "10 rows | 3 rows | 4 rows | no batch", restarts),
    own("starts at latest and starts again", {}, "0 rows | 3 rows", starts_late),
    own("a first batch that failed", {}, "run: SINK_FAILED | 0+3 rows", fails_first),
    own(
        "a first batch that failed, earliest", EARLIEST, "run: SINK_FAILED | 10+3 rows", fails_first
    ),
    own(
        "starts on an empty topic",
        {"subscribe": "<blank>"},
        "0 rows | 2 rows",
        starts_empty,
        "blank",
    ),
    own("follows a topic", {"subscribePattern": "ten.*-<own>"}, "14 rows", follows),
    own(
        "takes more on a restart",
        {"assign": "", **EARLIEST},
        "8 rows | 10 rows | 2 rows",
        takes_more,
        "half",
    ),
    own("a batch runs again", EARLIEST, "10 rows | 3 rows | 3+4 rows", replays),
    own(
        "transactions between runs",
        {**EARLIEST, **COMMITTED},
        "10 rows | 3 rows | 0 rows | 1 rows",
        commits_between,
    ),
    own("records come while a batch runs", EARLIEST, "10+5 rows", comes_late),
    own(
        "a group that is named",
        {**EARLIEST, "groupIdPrefix": "mine-<own>"},
        "10 rows | 0 groups",
        commits_to_a_group,
    ),
)


def changes_format(side: Side) -> None:
    """The JVM connector begins, this side goes on."""
    with side.as_kafka():
        side.drain()
    side.topics.produce(side.names["ten"], numbered(3, first=10))
    side.drain()


def changes_format_in_a_batch(side: Side) -> None:
    """Batch 1 was planned by the JVM connector and not finished."""
    with side.as_kafka():
        side.drain()
        side.topics.produce(side.names["ten"], numbered(3, first=10))
        side.drain()
    side.uncommit(1)
    side.topics.produce(side.names["ten"], numbered(2, first=13))
    side.drain()


def changes_format_in_the_first_batch(side: Side) -> None:
    with side.as_kafka():
        side.drain()
    side.uncommit(0)
    side.drain()


def changes_idle(side: Side) -> None:
    with side.as_kafka():
        side.drain()
    side.drain()


def changes_back(side: Side) -> None:
    """This side begins, the JVM connector goes on."""
    side.drain()
    side.topics.produce(side.names["ten"], numbered(3, first=10))
    with side.as_kafka():
        side.drain()


FORMATS = (
    own("checkpoint of kafka", EARLIEST, "10 rows | 3 rows", changes_format),
    own("checkpoint of kafka, latest", {}, "0 rows | 3 rows", changes_format),
    own(
        "checkpoint of kafka, batch 1 not committed",
        EARLIEST,
        "10 rows | 3 rows | 3+2 rows",
        changes_format_in_a_batch,
    ),
    own(
        "checkpoint of kafka, batch 0 not committed",
        EARLIEST,
        "10 rows | 10 rows",
        changes_format_in_the_first_batch,
    ),
    own(
        "checkpoint of kafka, batch 0 not committed, start given",
        {"startingOffsets": at("ten", 4)},
        "6 rows | 6 rows",
        changes_format_in_the_first_batch,
    ),
    own("checkpoint of kafka, nothing new", EARLIEST, "10 rows | no batch", changes_idle),
    own("checkpoint read by kafka", EARLIEST, "10 rows | 3 rows", changes_back),
)

LONG = {
    "stream: starts at latest",
    "stream: earliest",
    "stream: offsets name one too many",
    "stream: start before the first record",
    "stream: startingTimestamp",
    "stream: startingTimestamp behind some",
    "stream: startingOffsetsByTimestamp lacks a partition",
    "stream: startingOffsetsByTimestamp wins",
    "stream: assign",
    "stream: a missing topic",
    "stream: a pattern",
    "stream: nulls, empty values, headers",
    "stream: times in nanoseconds",
    "stream: read_uncommitted",
    "stream: read_committed",
    "stream: a first batch that failed, earliest",
    "stream: checkpoint of kafka, latest",
}

SCENARIOS = with_long(LONG, (*STARTS, *RUNS, *FORMATS))
