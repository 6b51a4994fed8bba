"""The options that say which partitions are read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from keyrange.kafka.model.offsets import TopicPartition
from keyrange.kafka.model.subscription import Assign, Subscribe, SubscribePattern, Subscription
from keyrange.options import source_values
from keyrange.options.given_options import GivenOptions
from keyrange.options.option import option
from keyrange.options.value_parsers import Violations, one_of

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
    subscribe_pattern: str = option(
        "subscribePattern",
        source_values.pattern,
        "Reads every topic whose name matches, also those that are created later. Internal topics "
        "are left out.",
        values="a regular expression",
        unset="",
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
        return SubscribePattern(where.subscribe_pattern, where.subscribe_pattern_match)
    return Subscribe(where.subscribe)
