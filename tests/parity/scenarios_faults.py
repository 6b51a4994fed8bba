"""Topics that change under a query: records deleted, topics deleted and recreated, partitions."""

from __future__ import annotations

from dataclasses import replace

from parity.harness import Side
from parity.outcome import Scenario
from parity.stage import numbered
from parity.stress import stress
from parity.tables import Play, with_long

# What is lost in ways of their own: these are always tried without failOnDataLoss too.
ALSO_WITHOUT = {
    "records deleted between runs",
    "a batch's records deleted during it",
    "recreated with fewer records",
    "recreated with more records while running",
    "a matching topic replaced",
    "a new partition that lost records",
}

# Nothing here may wait two minutes for what is gone, or take old metadata for what is there.
BASE = {
    "startingOffsets": "earliest",
    "kafkaConsumer.pollTimeoutMs": "4000",
    "kafka.request.timeout.ms": "4000",
    "kafka.default.api.timeout.ms": "8000",
    "kafka.metadata.max.age.ms": "1",
}


def fault(name: str, expect: str, play: Play, *topics: str, **options: str) -> Scenario:
    strategy = {} if {"assign", "subscribePattern"} & options.keys() else {"subscribe": "<ten>"}
    return Scenario(
        name=f"fault: {name}",
        play=play,
        own=topics or ("ten",),
        options={**BASE, **strategy, **options},
        expect=expect,
    )


def both(
    name: str, strict: str, lenient: str, play: Play, *topics: str, **options: str
) -> tuple[Scenario, ...]:
    """With failOnDataLoss and without, which is a long form where another one is like it."""
    without = fault(
        f"{name}, without failOnDataLoss",
        lenient,
        play,
        *topics,
        failOnDataLoss="false",
        **options,
    )
    is_long = name not in ALSO_WITHOUT
    return fault(name, strict, play, *topics, **options), replace(without, slow=is_long)


def produce(side: Side, count: int, first: int, topic: str = "ten") -> None:
    side.topics.produce(side.names[topic], numbered(count, first=first))


def deleted_between(before: int) -> Play:
    """Records 0 to 9 are read; 10 to 19 come; then all below `before` go. What is lost is lost
    in the next run too."""

    def play(side: Side) -> None:
        side.drain()
        produce(side, 10, 10)
        side.topics.delete_records(side.names["ten"], {0: before})
        side.drain()
        if before > 10:
            produce(side, 1, 20)
            side.drain()

    return play


def deleted_during(side: Side) -> None:
    """Batch 1 is planned for 10 to 19; before it is read, 10 to 14 go."""
    side.drain()
    produce(side, 10, 10)
    side.drain(before={1: lambda: side.topics.delete_records(side.names["ten"], {0: 15})})


def deleted_during_whole(side: Side) -> None:
    """Batch 1 is planned for 10 to 19; before it is read, all go, and more comes."""
    side.drain()
    produce(side, 10, 10)

    def trim() -> None:
        produce(side, 2, 20)
        side.topics.delete_records(side.names["ten"], {0: 20})

    side.drain(before={1: trim})
    side.drain()


def topic_deleted_during(side: Side) -> None:
    """Batch 1 is planned for 10 to 19; before it is read, the whole topic goes."""
    side.drain()
    produce(side, 10, 10)
    side.drain(before={1: lambda: side.topics.delete_topic(side.names["ten"])})


RECORDS = (
    *both(
        "records deleted between runs",
        "10 rows | run: COULD_NOT_READ_OFFSET_RANGE | run: COULD_NOT_READ_OFFSET_RANGE",
        "10 rows | 5 rows | 1 rows",
        deleted_between(15),
    ),
    *both(
        "all new records deleted between runs",
        "10 rows | run: COULD_NOT_READ_OFFSET_RANGE | run: COULD_NOT_READ_OFFSET_RANGE",
        "10 rows | 0 rows | 1 rows",
        deleted_between(20),
    ),
    *both(
        "read records deleted between runs",
        "10 rows | 10 rows",
        "10 rows | 10 rows",
        deleted_between(7),
    ),
    *both(
        "records deleted during a batch",
        "10 rows | run: COULD_NOT_READ_OFFSET_RANGE",
        "10 rows | 5 rows",
        deleted_during,
    ),
    *both(
        "a batch's records deleted during it",
        "10 rows | run: COULD_NOT_READ_OFFSET_RANGE | run: COULD_NOT_READ_OFFSET_RANGE",
        "10 rows | 0 rows | 2 rows",
        deleted_during_whole,
    ),
)


def recreate(side: Side, count: int, topic: str = "ten", partitions: int = 1) -> None:
    """The same name again with `count` other records in partition 0."""
    real = side.names[topic]
    side.topics.delete_topic(real)
    side.topics.create_named(real, partitions, {"retention.ms": "-1"})
    side.topics.produce(real, numbered(count, word="new"))


def recreated_between(count: int) -> Play:
    def play(side: Side) -> None:
        side.drain()
        recreate(side, count)
        side.drain()
        produce(side, 2, count)
        side.drain()

    return play


def recreated_while_running(count: int) -> Play:
    """After batch 0; the query is to see it by itself."""

    def play(side: Side) -> None:
        with side.follow(after={0: lambda: recreate(side, count)}) as run:
            run.until_batches(2)
            produce(side, 2, 100)
            run.until_seen(b"v101")

    return play


def recreated_in_available_now(count: int) -> Play:
    """Between two batches of one run."""

    def play(side: Side) -> None:
        side.drain(after={0: lambda: recreate(side, count)}, maxOffsetsPerTrigger="4")

    return play


def fewer_partitions(side: Side) -> None:
    side.drain()
    recreate(side, 2, "half", partitions=1)
    side.drain()


def one_deleted(side: Side) -> None:
    side.drain()
    side.topics.delete_topic(side.names["half"])
    produce(side, 2, 10)
    side.drain()
    side.drain()


def one_deleted_while_running(side: Side) -> None:
    def change() -> None:
        side.topics.delete_topic(side.names["half"])
        produce(side, 2, 10)

    with side.follow(after={0: change}) as run:
        run.until_seen(b"v11")


def replaced(side: Side) -> None:
    """One matching topic goes, another one comes."""
    side.drain()
    side.topics.delete_topic(side.names["half"])
    side.stage.topic("ten.more")
    side.drain()


def all_deleted(side: Side) -> None:
    side.drain()
    side.topics.delete_topic(side.names["ten"])
    side.drain()
    side.stage.topic("ten.more")
    side.drain()


def other_topic(side: Side) -> None:
    side.drain()
    side.drain(subscribe="<half>")


def late_partition(side: Side) -> None:
    """A partition comes, and its first records are deleted before the query sees it."""
    side.drain()
    real = side.names["ten"]
    side.topics.add_partitions(real, 2)
    side.topics.produce(real, numbered(6, 1))
    side.topics.delete_records(real, {1: 4})
    side.drain()


def grown_while_running(side: Side) -> None:
    """A partition comes during batch 0."""

    def grow() -> None:
        side.topics.add_partitions(side.names["ten"], 3)
        side.topics.produce(side.names["ten"], numbered(3, 2))

    with side.follow(before={0: grow}, whole=True) as run:
        run.until_rows(13)


def grown_in_available_now(side: Side) -> None:
    def grow() -> None:
        side.topics.add_partitions(side.names["ten"], 2)
        side.topics.produce(side.names["ten"], numbered(3, 1))

    side.drain(after={0: grow}, maxOffsetsPerTrigger="5")
    side.drain()


ANY = "(ten|half).*-<own>"
PAIR = ("ten", "half")

TOPICS = (
    *both(
        "a topic deleted during a batch",
        "10 rows | run: TIMED_OUT",
        "10 rows | run: TIMED_OUT",
        topic_deleted_during,
        subscribePattern=ANY,
    ),
    *both(
        "recreated with fewer records",
        "10 rows | run: PARTITION_OFFSET_CHANGED | run: PARTITION_OFFSET_CHANGED",
        "10 rows | 0 rows | 2 rows",
        recreated_between(3),
    ),
    *both(
        "recreated with as many records",
        "10 rows | no batch | 2 rows",
        "10 rows | no batch | 2 rows",
        recreated_between(10),
    ),
    *both(
        "recreated with more records",
        "10 rows | 3 rows | 2 rows",
        "10 rows | 3 rows | 2 rows",
        recreated_between(13),
    ),
    *both(
        "recreated with fewer records while running",
        "10 rows, run: PARTITION_OFFSET_CHANGED",
        "12 rows",
        recreated_while_running(3),
    ),
    *both(
        "recreated with more records while running",
        "15 rows",
        "15 rows",
        recreated_while_running(13),
    ),
    *both(
        "recreated with fewer records in availableNow",
        "4 rows, run: END_ABOVE_LATEST",
        "4 rows, run: END_ABOVE_LATEST",
        recreated_in_available_now(3),
    ),
    *both(
        "recreated with fewer partitions",
        "18 rows | run: PARTITIONS_DELETED",
        "18 rows | 0 rows",
        fewer_partitions,
        *PAIR,
        subscribePattern=ANY,
    ),
    *both(
        "one of two topics deleted",
        "18 rows | run: UNKNOWN_TOPIC_OR_PARTITION | run: UNKNOWN_TOPIC_OR_PARTITION",
        "18 rows | run: UNKNOWN_TOPIC_OR_PARTITION | run: UNKNOWN_TOPIC_OR_PARTITION",
        one_deleted,
        *PAIR,
        subscribe="<ten>,<half>",
    ),
    *both(
        "one of two matching topics deleted",
        "18 rows | run: PARTITIONS_DELETED | run: PARTITIONS_DELETED",
        "18 rows | 2 rows | no batch",
        one_deleted,
        *PAIR,
        subscribePattern=ANY,
    ),
    *both(
        "one of two matching topics deleted while running",
        "18 rows, run: PARTITIONS_DELETED",
        "20 rows",
        one_deleted_while_running,
        *PAIR,
        subscribePattern=ANY,
    ),
    *both(
        "a matching topic replaced",
        "18 rows | run: PARTITIONS_DELETED",
        "18 rows | 10 rows",
        replaced,
        *PAIR,
        subscribePattern=ANY,
    ),
    *both(
        "all matching topics deleted",
        "10 rows | no batch | run: PARTITIONS_DELETED",
        "10 rows | no batch | 10 rows",
        all_deleted,
        subscribePattern=ANY,
    ),
    *both(
        "another topic on the checkpoint",
        "10 rows | run: PARTITIONS_DELETED",
        "10 rows | 8 rows",
        other_topic,
        *PAIR,
    ),
    *both(
        "a new partition that lost records",
        "10 rows | run: ADDED_PARTITION_DOES_NOT_START_FROM_OFFSET_ZERO",
        "10 rows | 2 rows",
        late_partition,
    ),
    fault("partitions added while running", "10+3 rows", grown_while_running),
    fault("partitions added in availableNow", "5+5 rows | 3 rows", grown_in_available_now),
)

STRESSED = {
    **BASE,
    "subscribePattern": "stress.*-<own>",
    "failOnDataLoss": "false",
    "fetchOffset.numRetries": "60",
    "kafkaConsumer.pollTimeoutMs": "1000",
}

# Only keyrange is to survive it: see "a topic deleted during a batch" for the JVM connector.
STRESS = tuple(
    Scenario(
        name=f"stress: {seconds} s",
        play=stress(seconds, seed),
        options=STRESSED,
        expect="no batch | 0 missing, 0 twice, 0 unknown",
        slow=seconds > 10,
    )
    for seconds, seed in ((8, 7), (60, 11))
)

LONG = {
    "fault: all new records deleted between runs",
    "fault: records deleted during a batch",
    "fault: recreated with fewer records",
    "fault: recreated with more records",
    "fault: one of two matching topics deleted",
    "fault: a matching topic replaced",
    "fault: another topic on the checkpoint",
}

SCENARIOS = with_long(LONG, (*RECORDS, *TOPICS))
