"""The options that say which partitions a query reads, and from where to where."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

from keyrange.model.offsets import EARLIEST, LATEST, TopicPartition
from keyrange.model.position_options import (
    Everywhere,
    GroupOffsets,
    Offsets,
    PositionSpec,
    Timestamp,
    Timestamps,
)
from keyrange.model.subscription import Assign, Subscribe, SubscribePattern, Subscription
from keyrange.options import source_values
from keyrange.options.option import INT64_MAX, GivenOptions, Mode, option, text_option
from keyrange.options.value_parsers import Violations, int_between, one_of

_STRATEGIES: Final = ("subscribe", "subscribePattern", "assign")


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionOptions:
    """One of the three ways of naming partitions."""

    subscribe: tuple[str, ...] = option(
        "subscribe",
        source_values.topics,
        "The topics to read. One of subscribe, subscribePattern and assign is required.",
        values="topic,topic,...",
        unset=(),
    )
    subscribe_pattern: str = text_option(
        "subscribePattern",
        source_values.pattern,
        "Reads every topic whose name matches, also those that are created later. Internal topics "
        "are left out.",
        values="a regular expression",
    )
    subscribe_pattern_match: Literal["full", "search"] = option(
        "subscribePatternMatch",
        one_of("full", "search"),
        "full: the pattern describes the whole name, as in Kafka's consumer. search: it is found "
        "somewhere in the name, as Spark's Kafka source has it.",
        default="full",
    )
    assign: tuple[TopicPartition, ...] = option(
        "assign",
        source_values.partitions,
        "The partitions to read; all of them have to exist.",
        values='JSON {"topic": [0, 1]}',
        unset=(),
    )


def choose_subscription(given: GivenOptions, violations: Violations) -> Subscription:
    chosen = [name for name in _STRATEGIES if given.names(name)]
    if len(chosen) != 1:
        said = f"; given are {' and '.join(chosen)}" if chosen else ""
        violations.messages.append(
            f"exactly one of the options {', '.join(_STRATEGIES)} must be specified{said}"
        )
    where = given.settings(SubscriptionOptions)
    if where.assign:
        return Assign(where.assign)
    if where.subscribe_pattern:
        by_default = not given.names("subscribePatternMatch")
        return SubscribePattern(where.subscribe_pattern, where.subscribe_pattern_match, by_default)
    return Subscribe(where.subscribe)


@dataclass(frozen=True, slots=True, kw_only=True)
class StartOptions:
    """Where a new query starts. `unmatched` and `rest` are as in `Timestamps` and `Offsets`."""

    offsets: Everywhere | Offsets | GroupOffsets | None = option(
        "startingOffsets",
        source_values.starting_positions,
        "Where a new query starts; a query that resumes starts at its checkpoint. Default: "
        "latest for a stream, earliest for a batch read. JSON names every partition, or "
        "startingOffsetsDefault says where the others start. group: the offsets that the Kafka "
        "group of that name, or of kafka.group.id, has committed. Partitions found later start "
        "at their earliest offset.",
        values=source_values.OFFSETS_TEXT + "; group, or group:NAME",
    )
    timestamps: Mapping[TopicPartition, int] | None = option(
        "startingOffsetsByTimestamp",
        source_values.timestamps,
        "Starts each partition at its first record at or after a time. Takes precedence over "
        "startingOffsets.",
    )
    timestamp_ms: int | None = option(
        "startingTimestamp",
        int_between(0, INT64_MAX, "ms since 1970"),
        "As startingOffsetsByTimestamp, with the same time for all partitions. Takes precedence "
        "over it.",
    )
    unmatched: int | None = option(
        "startingOffsetsByTimestampStrategy",
        # None is an error.
        source_values.keyword(error=None, latest=LATEST),
        "How the query treats a partition without a record at or after the starting time.",
        default="error",
    )
    rest: int | None = option(
        "startingOffsetsDefault",
        source_values.keyword(earliest=EARLIEST, latest=LATEST),
        "Where partitions start that startingOffsets, startingOffsetsByTimestamp or the group's "
        "offsets do not name. Without it every partition has to be named.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class EndOptions:
    """Where a batch read ends."""

    offsets: Everywhere | Offsets = option(
        "endingOffsets",
        source_values.positions,
        "Where a batch read ends, exclusive.",
        values=source_values.ENDS_TEXT,
        default="latest",
    )
    timestamps: Mapping[TopicPartition, int] | None = option(
        "endingOffsetsByTimestamp",
        source_values.timestamps,
        "Ends each partition before its first record at or after a time, or where there is none "
        "at the end that it has when the read is planned. Older records behind that one are not "
        "read. Takes precedence over endingOffsets.",
    )
    timestamp_ms: int | None = option(
        "endingTimestamp",
        int_between(0, INT64_MAX, "ms since 1970"),
        "As endingOffsetsByTimestamp, with the same time for all partitions. Takes precedence "
        "over it.",
    )
    rest: int | None = option(
        "endingOffsetsDefault",
        source_values.keyword(latest=LATEST),
        "Where partitions end that endingOffsets or endingOffsetsByTimestamp do not name. Without "
        "it every partition has to be named.",
    )


def choose_start(
    given: StartOptions, mode: Mode | None, group_id: str, violations: Violations
) -> PositionSpec:
    """The start, by the JVM connector's precedence: one time, times, offsets."""
    place = given.offsets or Everywhere(EARLIEST if mode == "batch" else LATEST)
    unread = violations.unparsed & {"startingOffsets", "startingOffsetsByTimestamp"}
    if isinstance(place, Offsets | GroupOffsets):
        place = replace(place, rest=given.rest)
    elif given.rest is not None and given.timestamps is None and not unread:
        violations.add(
            "startingOffsetsDefault",
            "needs startingOffsets or startingOffsetsByTimestamp that name partitions, or a group: "
            "by itself it does not say where a query starts, which startingOffsets does",
        )
    spec = _first_given("starting", given, place, given.unmatched)
    if isinstance(spec.positions, GroupOffsets) and not spec.positions.group_id:
        if not group_id:
            violations.add("startingOffsets", "'group' needs a name: group:NAME or kafka.group.id")
        spec = replace(spec, positions=replace(spec.positions, group_id=group_id))
    return replace(spec, by_default=given.offsets is None and spec.positions is place)


def choose_end(given: EndOptions) -> PositionSpec:
    """The end, by the same precedence."""
    place = given.offsets
    if isinstance(place, Offsets):
        place = replace(place, rest=given.rest)
    return _first_given("ending", given, place, LATEST)


def _first_given(
    side: str,
    given: StartOptions | EndOptions,
    place: Everywhere | Offsets | GroupOffsets,
    unmatched: int | None,
) -> PositionSpec:
    """What a side's options say, by precedence: one time, times, else `place`."""
    if given.timestamp_ms is not None:
        return PositionSpec(f"{side}Timestamp", Timestamp(given.timestamp_ms, unmatched))
    if given.timestamps is not None:
        times = Timestamps(given.timestamps, unmatched, given.rest)
        return PositionSpec(f"{side}OffsetsByTimestamp", times)
    return PositionSpec(f"{side}Offsets", place)


def check_batch(start: PositionSpec, end: PositionSpec, violations: Violations) -> None:
    _no_position(start, LATEST, violations)
    _no_position(end, EARLIEST, violations)
    first, last = start.positions, end.positions
    if not isinstance(first, Offsets | Timestamps) or not isinstance(last, type(first)):
        return
    if first.rest is None and last.rest is None and first.each.keys() != last.each.keys():
        violations.add(
            end.option,
            f"must name the same partitions as {start.option} "
            "[MISMATCHED_TOPIC_PARTITIONS_BETWEEN_START_OFFSET_AND_END_OFFSET]",
        )
    for partition in sorted(first.each.keys() & last.each.keys()):
        if 0 <= last.each[partition] < first.each[partition]:
            violations.add(
                end.option,
                f"must not lie before {start.option}: {partition} from {first.each[partition]} to "
                f"{last.each[partition]} [UNRESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET]",
            )


def _no_position(spec: PositionSpec, refused: int, violations: Violations) -> None:
    word = "latest" if refused == LATEST else "earliest"
    if isinstance(spec.positions, Everywhere) and spec.positions.which == refused:
        violations.add(spec.option, f"can't be {word} for batch queries")
    elif isinstance(spec.positions, Offsets):
        for partition in sorted(p for p, at in spec.positions.each.items() if at == refused):
            violations.add(spec.option, f"for {partition} can't be {word} for batch queries")
        if spec.positions.rest == refused:
            violations.add(f"{spec.option}Default", f"can't be {word} for batch queries")
