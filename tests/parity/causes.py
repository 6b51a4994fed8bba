"""What an error means, by its text: one common name for what both sources say in their own words.

Rule of this file: the first pattern that is found wins, so special ones stand before general ones.
A text that no pattern knows has no name, and the scenario fails with that text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError

Patterns = Sequence[tuple[str, str]]

# Conditions that both print, by the name that the tables give them.
_CONDITIONS = {
    "KAFKA_START_OFFSET_DOES_NOT_MATCH_ASSIGNED": "OTHER_PARTITIONS_ASSIGNED",
    "KAFKA_TIMESTAMP_OFFSET_DOES_NOT_MATCH_ASSIGNED": "OTHER_PARTITIONS_ASSIGNED",
    "KAFKA_MALFORMED_RECORD_TIMESTAMP": "MALFORMED_TIMESTAMP",
    "MISMATCHED_TOPIC_PARTITIONS_BETWEEN_START_OFFSET_AND_END_OFFSET": "OTHER_PARTITIONS_AT_END",
    "UNRESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET": "START_ABOVE_END",
    "RESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET": "RESOLVED_START_ABOVE_END",
    **{
        f"KAFKA_DATA_LOSS.{name}": name
        for name in (
            "ADDED_PARTITION_DOES_NOT_START_FROM_OFFSET_ZERO",
            "COULD_NOT_READ_OFFSET_RANGE",
            "INITIAL_OFFSET_NOT_FOUND_FOR_PARTITIONS",
            "LOG_TRUNCATED",
            "PARTITIONS_DELETED",
            "PARTITION_OFFSET_CHANGED",
            "TOPIC_RECREATED",
        )
    },
}

_COMMON: Patterns = (
    (r"the sink failed", "SINK_FAILED"),
    *((rf"\[{re.escape(condition)}\]", name) for condition, name in _CONDITIONS.items()),
)

# Spark throws these without a condition.
_TEXTS: Patterns = (
    (r"report available offset which is less than end offset during run", "END_ABOVE_LATEST"),
    (r"have been lost during running query with Trigger.AvailableNow", "LOST_PARTITIONS"),
    (r"Could not read records in offset", "COULD_NOT_READ_OFFSET_RANGE"),
)

KAFKA: Patterns = (
    *_COMMON,
    *_TEXTS,
    (r"Only one of the following options can be specified", "ONE_STRATEGY"),
    (r"One of the following options must be specified", "ONE_STRATEGY"),
    (r"No topics to subscribe|Pattern to subscribe is empty", "EMPTY"),
    (r"'kafka.bootstrap.servers' must be specified", "NO_SERVERS"),
    (r"Kafka option '.*' is not supported|not supported in user-specified", "CLIENT_OPTION"),
    (r"ending (offset|timestamp) not valid in streaming queries", "NOT_IN_STREAMS"),
    (r"can't be latest for batch queries", "LATEST_IN_BATCH"),
    (r"can't be earliest for batch queries", "EARLIEST_IN_BATCH"),
    (r"is higher than the maxOffsetsPerTrigger", "MIN_ABOVE_MAX"),
    (r"fixed schema and cannot be set with a custom one", "OWN_SCHEMA"),
    (r"USER_SPECIFIED_AND_ACTUAL_SCHEMA_MISMATCH", "OWN_SCHEMA"),
    (
        r"If startingOffsets contains specific offsets, you must specify all TopicPartitions",
        "OTHER_PARTITIONS_ASSIGNED",
    ),
    (r"No offset matched from request of topic-partition", "NO_OFFSET_FOR_TIMESTAMP"),
    (r"UnknownTopicOrPartitionException", "UNKNOWN_TOPIC_OR_PARTITION"),
    (r"does not equal -[12]", "BAD_VALUE"),
    (r"Timeout of \d+ms expired before the position for partition", "TIMED_OUT"),
    (r"Cannot fetch record for offset \d+ in \d+ milliseconds", "NO_RECORDS_IN_TIME"),
    (
        r"No topicpartitions to assign|must be positive|For input string|Expected e\.g\.|"
        r"Expected a single long value|No value found for|NumberFormatException|Invalid value|"
        r"PatternSyntaxException|No enum constant|Failed to parse time string|Error parsing",
        "BAD_VALUE",
    ),
)

KEYRANGE: Patterns = (
    *_COMMON,
    (r"option '[^']*' does not exist|is not a property of Kafka's consumer", "UNKNOWN_OPTION"),
    (r"exactly one of the options", "ONE_STRATEGY"),
    (r"no topics to subscribe to|the pattern to subscribe is empty", "EMPTY"),
    (r"'kafka.bootstrap.servers' must be specified", "NO_SERVERS"),
    (r"option 'kafka\.[^']*' is not supported", "CLIENT_OPTION"),
    (r"is not valid in streaming queries", "NOT_IN_STREAMS"),
    (r"can't be latest for batch queries", "LATEST_IN_BATCH"),
    (r"can't be earliest for batch queries", "EARLIEST_IN_BATCH"),
    (r"must not be higher than maxOffsetsPerTrigger", "MIN_ABOVE_MAX"),
    (r"\[INVALID_SCHEMA\]", "OWN_SCHEMA"),
    (r"\[NO_OFFSET_FOR_TIMESTAMP\]", "NO_OFFSET_FOR_TIMESTAMP"),
    (r"\[UNKNOWN_TOPIC_OR_PARTITION\]", "UNKNOWN_TOPIC_OR_PARTITION"),
    (r"\[UNCOMMITTED_FOREIGN_BATCH\]", "UNCOMMITTED_FOREIGN_BATCH"),
    (r"\[REQUEST_TIMED_OUT\]", "TIMED_OUT"),
    (r"\[INVALID_OPTIONS\].*option '[^']*' must (be|hold|name)", "BAD_VALUE"),
)

BY_FORMAT = {"kafka": KAFKA, "keyrange": KEYRANGE}


def cause_of(format_name: str, text: str) -> str:
    """The common name of what a source failed with."""
    for pattern, name in BY_FORMAT[format_name]:
        if re.search(pattern, text, re.DOTALL):
            return name
    return f"UNNAMED {text[:2000]}"


def text_of(failure: BaseException) -> str:
    """All that an error and its Java causes say, conditions included, stack traces left out."""
    thrown: Any = getattr(failure, "_origin", None) or getattr(failure, "java_exception", None)
    own = "" if isinstance(failure, Py4JJavaError) else str(failure)
    return "\n".join([own, *texts_of(thrown)])


def texts_of(thrown: Any) -> list[str]:
    """A Java error and its causes."""
    texts = []
    while thrown is not None:
        texts.append(f"[{_condition(thrown)}] {thrown.toString()}")
        thrown = thrown.getCause()
    return texts


def _condition(thrown: Any) -> str:
    try:
        return str(thrown.getCondition())
    except Py4JError:  # not an error of Spark's
        return ""
