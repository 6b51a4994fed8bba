"""Streams: how they are cut into batches and tasks."""

from __future__ import annotations

import time
from typing import Final

from parity.harness import Side
from parity.stage import numbered
from parity.tables import EARLIEST, ONE_EACH, at, limit, own, stream, with_long


def drain_once(side: Side) -> None:
    side.drain(once=True)


def target_stands(side: Side) -> None:
    """What comes while an availableNow run goes on is left to the next one."""
    topic = side.names["ten"]
    side.drain(after={0: lambda: side.topics.produce(topic, numbered(5, first=10))})
    side.drain()


def union_of_limits(side: Side) -> None:
    """Two sources of one query, each with a limit; the idle one keeps its place over a restart."""
    few = side.frame(subscribe="<ten>", maxOffsetsPerTrigger="5")
    many = side.frame(subscribe="<hundred>", maxOffsetsPerTrigger="40")
    if few is None or many is None:
        return
    side.drain(few.union(many))
    side.topics.produce(side.names["hundred"], numbered(1, first=100))
    side.drain(few.union(many))
    side.topics.produce(side.names["ten"], numbered(1, first=10))
    side.drain(few.union(many))


def union_with_itself(side: Side) -> None:
    frame = side.frame()
    if frame is not None:
        side.drain(frame.union(frame))


# One record batch: a query that looks meanwhile finds all of it or nothing.
AT_ONCE: Final = {"linger_ms": 1000, "batch_size": 1_000_000}


def waits_for_more(side: Side) -> None:
    """Less than the minimum is left alone until there is enough."""
    topic = side.names["ten"]
    with side.follow(whole=True) as run:
        run.until_batches(1)
        side.topics.produce(topic, numbered(3, first=10), **AT_ONCE)
        time.sleep(1.5)
        side.topics.produce(topic, numbered(10, first=13), **AT_ONCE)
        run.until_rows(23)


def waits_for_the_delay(side: Side) -> None:
    """Less than the minimum is read when the delay is over."""
    with side.follow(whole=True) as run:
        run.until_batches(1)
        side.topics.produce(side.names["ten"], numbered(3, first=10), **AT_ONCE)
        run.until_rows(13)


def in_windows(side: Side) -> None:
    frame = side.frame()
    if frame is not None:
        counts = frame.withWatermark("timestamp", "2 seconds").groupBy("timestamp").count()
        side.drain(counts)


LIMITS = (
    stream("three", "limit 10", limit(10), "9+9+8 rows"),
    stream(
        "three",
        "limit 1",
        {
            **limit(1),
            "assign": '{"<three>":[1,2]}',
            "startingOffsets": '{"<three>":{"1":3,"2":0}}',
        },
        "2+1 rows",
    ),
    stream("three", "limit 10 with Trigger.Once", limit(10), "26 rows", drain_once),
    stream(
        "three",
        "the largest limit",
        {"startingOffsets": at("three", 5, 5, 0), "maxOffsetsPerTrigger": str(2**63 - 1)},
        "16 rows",
    ),
    stream("three", "min 10, limit 12", {**limit(12), "minOffsetsPerTrigger": "10"}, "12+11 rows"),
    stream("three", "min 100", {**EARLIEST, "minOffsetsPerTrigger": "100"}, "26 rows"),
    stream(
        "three",
        "min 10 and Trigger.Once",
        {**limit(12), "minOffsetsPerTrigger": "10"},
        "26 rows",
        drain_once,
    ),
    own("records come while availableNow runs", limit(5), "5+5 rows | 5 rows", target_stands),
    own(
        "two limits in one query",
        EARLIEST,
        "45+45+20 rows | 1 rows | 1 rows",
        union_of_limits,
        "hundred",
    ),
    stream("three", "a union with itself", EARLIEST, "52 rows", union_with_itself),
    own(
        "minOffsetsPerTrigger waits for more",
        {**EARLIEST, "minOffsetsPerTrigger": "10", "maxTriggerDelay": "1h"},
        "10+13 rows",
        waits_for_more,
    ),
    *(
        own(
            f"minOffsetsPerTrigger waits {delay}",
            {**EARLIEST, "minOffsetsPerTrigger": "10", "maxTriggerDelay": delay},
            "10+3 rows",
            waits_for_the_delay,
        )
        for delay in ("700", "1s")
    ),
    stream("stamped", "watermark and groups", limit(14), "0+8+5 rows", in_windows),
    stream("three", "tasks", EARLIEST, "26 rows", tasks="3"),
    stream("three", "tasks, one each", EARLIEST, "26 rows", tasks="3", keyrange_only=ONE_EACH),
    stream(
        "three",
        "tasks, minPartitions 6",
        {**EARLIEST, "minPartitions": "6"},
        "26 rows",
        tasks="6",
        keyrange_only=ONE_EACH,
    ),
    stream(
        "three",
        "tasks, maxRecordsPerPartition 4",
        {**limit(13), "maxRecordsPerPartition": "4"},
        "13+13 rows",
        tasks="5 4",
        keyrange_only=ONE_EACH,
    ),
)

LONG = {
    "stream: limit 10 with Trigger.Once",
    "stream: a union with itself",
    "stream: minOffsetsPerTrigger waits 1s",
    "stream: tasks, one each",
}

SCENARIOS = with_long(LONG, LIMITS)
