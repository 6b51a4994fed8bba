"""Batch reads: where they start and where they end."""

from __future__ import annotations

from functools import partial

from parity.stage import SINCE_MS
from parity.tables import at, batch, time_at, with_long

INT64_MAX = 2**63 - 1

three = partial(batch, "three")
stamped = partial(batch, "stamped")

POSITIONS = (
    three("batch defaults", {}, "26 rows"),
    three(
        "earliest to latest", {"startingOffsets": "earliest", "endingOffsets": "latest"}, "26 rows"
    ),
    three(
        "words in any case", {"startingOffsets": "earLiEst", "endingOffsets": "laTest"}, "26 rows"
    ),
    three("start by offsets", {"startingOffsets": at("three", 15, -2, 1)}, "10 rows"),
    three("end by offsets", {"endingOffsets": at("three", 15, -1, 0)}, "20 rows"),
    three(
        "start and end by offsets",
        {"startingOffsets": at("three", 3, 0, 1), "endingOffsets": at("three", 15, 0, -1)},
        "12 rows",
    ),
    three(
        "start lacks a partition",
        {"startingOffsets": at("three", 3, 0)},
        "action: OTHER_PARTITIONS_ASSIGNED",
    ),
    three(
        "start names a partition too many",
        {"startingOffsets": at("three", 3, 0, 0, 0)},
        "action: OTHER_PARTITIONS_ASSIGNED",
    ),
    three(
        "start names another topic",
        {"startingOffsets": at("ten", 3)},
        "action: OTHER_PARTITIONS_ASSIGNED",
        topics=("three", "ten"),
    ),
    three(
        "end lacks a partition",
        {"endingOffsets": at("three", 3, 0)},
        "action: OTHER_PARTITIONS_ASSIGNED",
    ),
    three(
        "end names a partition too many",
        {"endingOffsets": at("three", 3, 0, 0, 0)},
        "action: OTHER_PARTITIONS_ASSIGNED",
    ),
    three(
        "start and end name different partitions",
        {"startingOffsets": at("three", 0, 0, 0), "endingOffsets": at("three", 9, 0)},
        "load: OTHER_PARTITIONS_AT_END",
    ),
    three(
        "start above end",
        {"startingOffsets": at("three", 5, 0, 0), "endingOffsets": at("three", 4, 1, 1)},
        "load: START_ABOVE_END",
    ),
    three(
        "start above the resolved end",
        {"startingOffsets": at("three", 30, 0, 0)},
        "action: RESOLVED_START_ABOVE_END",
    ),
    three(
        "start at an offset, end at an earlier time",
        {
            "startingOffsets": at("three", 5, 0, 0),
            "endingOffsetsByTimestamp": time_at("three", 2000, 4000, 0),
        },
        "action: RESOLVED_START_ABOVE_END",
    ),
    three(
        "end behind the last record",
        {"endingOffsets": at("three", 25, 5, 1), "kafkaConsumer.pollTimeoutMs": "1500"},
        "action: COULD_NOT_READ_OFFSET_RANGE",
    ),
    three(
        "end behind the last record, without failOnDataLoss",
        {
            "endingOffsets": at("three", 25, 5, 1),
            "kafkaConsumer.pollTimeoutMs": "1500",
            "failOnDataLoss": "false",
        },
        "26 rows",
    ),
    batch("trimmed", "earliest is not 0", {}, "5 rows"),
    batch(
        "trimmed",
        "start before the first record",
        {"startingOffsets": at("trimmed", 3)},
        "action: COULD_NOT_READ_OFFSET_RANGE",
    ),
    batch(
        "trimmed",
        "start before the first record, without failOnDataLoss",
        {"startingOffsets": at("trimmed", 3), "failOnDataLoss": "false"},
        "5 rows",
    ),
    batch(
        "trimmed",
        "a range that is gone, without failOnDataLoss",
        {
            "startingOffsets": at("trimmed", 3),
            "endingOffsets": at("trimmed", 9),
            "failOnDataLoss": "false",
        },
        "0 rows",
    ),
    batch("empty", "a topic without records", {}, "0 rows"),
)

TIMES = (
    stamped("startingTimestamp", {"startingTimestamp": str(SINCE_MS + 4000)}, "20 rows"),
    stamped(
        "startingTimestamp between records", {"startingTimestamp": str(SINCE_MS + 8500)}, "11 rows"
    ),
    stamped("startingTimestamp before all", {"startingTimestamp": "0"}, "26 rows"),
    stamped(
        "startingTimestamp behind all",
        {"startingTimestamp": str(SINCE_MS + 99_000)},
        "action: NO_OFFSET_FOR_TIMESTAMP",
    ),
    stamped(
        "startingTimestamp behind some, strategy error",
        {
            "startingTimestamp": str(SINCE_MS + 11_000),
            "startingOffsetsByTimestampStrategy": "ERROR",
        },
        "action: NO_OFFSET_FOR_TIMESTAMP",
    ),
    stamped(
        "startingTimestamp behind some, strategy latest",
        {
            "startingTimestamp": str(SINCE_MS + 11_000),
            "startingOffsetsByTimestampStrategy": "latest",
        },
        "5 rows",
    ),
    stamped(
        "startingOffsetsByTimestamp",
        {"startingOffsetsByTimestamp": time_at("stamped", 9000, 7500, 1000)},
        "14 rows",
    ),
    stamped(
        "startingOffsetsByTimestamp lacks a partition",
        {"startingOffsetsByTimestamp": time_at("stamped", 9000, 7500)},
        "action: OTHER_PARTITIONS_ASSIGNED",
    ),
    stamped(
        "startingOffsetsByTimestamp names a partition too many",
        {"startingOffsetsByTimestamp": time_at("stamped", 9000, 7500, 0, 0)},
        "action: OTHER_PARTITIONS_ASSIGNED",
    ),
    stamped(
        "startingOffsetsByTimestamp at the end of time",
        {"startingOffsetsByTimestamp": at("stamped", 0, 0, INT64_MAX)},
        "action: NO_OFFSET_FOR_TIMESTAMP",
    ),
    stamped(
        "startingOffsetsByTimestamp at the end of time, strategy latest",
        {
            "startingOffsetsByTimestamp": at("stamped", 0, 0, INT64_MAX),
            "startingOffsetsByTimestampStrategy": "latest",
        },
        "20 rows",
    ),
    stamped("endingTimestamp", {"endingTimestamp": str(SINCE_MS + 6000)}, "9 rows"),
    stamped("endingTimestamp behind all", {"endingTimestamp": str(SINCE_MS + 99_000)}, "26 rows"),
    stamped("endingTimestamp before all", {"endingTimestamp": "0"}, "0 rows"),
    stamped(
        "endingOffsetsByTimestamp",
        {"endingOffsetsByTimestamp": time_at("stamped", 3000, 99_000, 9000)},
        "15 rows",
    ),
    stamped(
        "endingOffsetsByTimestamp lacks a partition",
        {"endingOffsetsByTimestamp": time_at("stamped", 3000)},
        "action: OTHER_PARTITIONS_ASSIGNED",
    ),
    stamped(
        "from time to time",
        {
            "startingOffsetsByTimestamp": time_at("stamped", 2000, 6000, 0),
            "endingOffsetsByTimestamp": time_at("stamped", 7000, 8000, 9000),
        },
        "9 rows",
    ),
    stamped(
        "from one time to another",
        {"startingTimestamp": str(SINCE_MS + 6000), "endingTimestamp": str(SINCE_MS + 9000)},
        "6 rows",
    ),
    stamped(
        "from a time to offsets",
        {"startingTimestamp": str(SINCE_MS + 6000), "endingOffsets": at("stamped", 8, -1, 3)},
        "12 rows",
    ),
    stamped(
        "from offsets to a time",
        {"startingOffsets": at("stamped", 2, -2, 0), "endingTimestamp": str(SINCE_MS + 9000)},
        "13 rows",
    ),
    stamped(
        "start time above end time",
        {
            "startingOffsetsByTimestamp": time_at("stamped", 7000, 6000, 0),
            "endingOffsetsByTimestamp": time_at("stamped", 2000, 8000, 9000),
        },
        "load: START_ABOVE_END",
    ),
    stamped(
        "one start time above one end time",
        {"startingTimestamp": str(SINCE_MS + 9000), "endingTimestamp": str(SINCE_MS + 6000)},
        "action: RESOLVED_START_ABOVE_END",
    ),
    stamped(
        "start times and end times name different partitions",
        {
            "startingOffsetsByTimestamp": time_at("stamped", 0, 0, 0),
            "endingOffsetsByTimestamp": time_at("stamped", 2000, 8000),
        },
        "load: OTHER_PARTITIONS_AT_END",
    ),
    stamped(
        "startingTimestamp wins",
        {
            "startingTimestamp": str(SINCE_MS + 8000),
            "startingOffsetsByTimestamp": time_at("stamped", 0, 0, 0),
            "startingOffsets": at("stamped", 1, 1, 1),
        },
        "13 rows",
    ),
    stamped(
        "startingOffsetsByTimestamp wins over startingOffsets",
        {
            "startingOffsetsByTimestamp": time_at("stamped", 8000, 8000, 8000),
            "startingOffsets": at("stamped", 1, 1, 1),
        },
        "13 rows",
    ),
    stamped(
        "endingTimestamp wins",
        {
            "endingTimestamp": str(SINCE_MS + 8000),
            "endingOffsetsByTimestamp": time_at("stamped", 0, 0, 0),
            "endingOffsets": at("stamped", 1, 1, 1),
        },
        "13 rows",
    ),
    stamped(
        "endingOffsetsByTimestamp wins over endingOffsets",
        {
            "endingOffsetsByTimestamp": time_at("stamped", 8000, 8000, 8000),
            "endingOffsets": at("stamped", 1, 1, 1),
        },
        "13 rows",
    ),
    stamped(
        "a loser that would be refused",
        {"startingTimestamp": str(SINCE_MS + 8000), "startingOffsets": "latest"},
        "13 rows",
    ),
    batch(
        "empty",
        "startingTimestamp of a topic without records",
        {"startingTimestamp": "5"},
        "action: NO_OFFSET_FOR_TIMESTAMP",
    ),
    batch(
        "half",
        "startingTimestamp where a partition is empty",
        {"startingTimestamp": "5"},
        "action: NO_OFFSET_FOR_TIMESTAMP",
    ),
    batch(
        "empty", "endingTimestamp of a topic without records", {"endingTimestamp": "5"}, "0 rows"
    ),
)

LONG = {
    "earliest to latest",
    "start by offsets",
    "end by offsets",
    "start lacks a partition",
    "start names another topic",
    "end names a partition too many",
    "start above the resolved end",
    "start before the first record, without failOnDataLoss",
    "startingTimestamp before all",
    "startingTimestamp behind all",
    "startingTimestamp behind some, strategy latest",
    "startingOffsetsByTimestamp names a partition too many",
    "startingOffsetsByTimestamp at the end of time, strategy latest",
    "endingTimestamp",
    "endingTimestamp behind all",
    "endingTimestamp before all",
    "from one time to another",
    "from a time to offsets",
    "startingTimestamp of a topic without records",
}

SCENARIOS = with_long(LONG, (*POSITIONS, *TIMES))
