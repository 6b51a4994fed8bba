"""What a query's filters say of where to read: topics, partitions, offsets, and from which time on.

A row that satisfies all conditions is never left out; rows that do not may stay in, because Spark
applies the filters again. So a condition that is not understood is no constraint.

Of timestamps only a lower bound is used. Kafka answers "the first offset whose record has a
timestamp of at least T": all before it are older, so reading may start there. The same answer says
nothing of what comes behind it. Producers set timestamps, and they may be out of order: a record
that is older than an upper bound may stand behind any number of younger ones, so that bound ends no
range.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from operator import eq, ge, gt, le, lt
from typing import Any, Final

from keyrange.model.offsets import OFFSET_MAX, OffsetRange, TopicPartition

# A function of Python's, `among` or `str.startswith`. Text is compared by code points, which is
# Spark's order of UTF-8 bytes.
Operator = Callable[[Any, Any], bool]

_OPPOSITE: Final[dict[Operator, Operator]] = {gt: le, ge: lt, lt: ge, le: gt}
_TYPES: Final = {"topic": str, "partition": int, "offset": int, "timestamp": int}


def among(actual: object, values: tuple[object, ...]) -> bool:
    return actual in values


@dataclass(frozen=True, slots=True)
class Condition:
    """`column operator value`, or its opposite.

    The columns are those of the source that are never null: topic, partition, offset, and timestamp
    in microseconds since 1970. `among` takes a tuple; a null in it matches nothing.
    """

    column: str
    operator: Operator
    value: Any
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Constraints:
    """What rows that satisfy all conditions have in common.

    `partition_conditions` are those on topic and partition. Offsets are half-open.
    `from_timestamp_ms` None: any time.
    """

    partition_conditions: tuple[Condition, ...] = ()
    from_offset: int = 0
    until_offset: int = OFFSET_MAX
    from_timestamp_ms: int | None = None

    def keeps(self, partition: TopicPartition) -> bool:
        """Whether a row of this partition may satisfy the conditions."""
        actual = {"topic": partition.topic, "partition": partition.partition}
        return all(
            each.operator(actual[each.column], each.value) != each.negated
            for each in self.partition_conditions
        )

    def clamp(self, span: OffsetRange) -> OffsetRange:
        """The part of a range that the conditions on offsets leave; it may be empty."""
        return OffsetRange(
            max(span.from_offset, self.from_offset), min(span.until_offset, self.until_offset)
        )


def constrain(conditions: Iterable[Condition]) -> Constraints:
    """What holds for every row that satisfies all of the conditions."""
    found = Constraints()
    for given in conditions:
        condition = _understood(given)
        if condition is None:
            continue
        if condition.column in ("topic", "partition"):
            found = replace(found, partition_conditions=(*found.partition_conditions, condition))
            continue
        least, most = _bounds(condition)
        if condition.column == "offset":
            until = OFFSET_MAX if most is None else most + 1
            found = replace(
                found,
                from_offset=max(found.from_offset, least or 0),
                until_offset=min(found.until_offset, until),
            )
        elif least is not None:
            # Records have milliseconds: the first one that is not before the bound.
            least_ms = -(-least // 1000)
            known_ms = found.from_timestamp_ms
            found = replace(
                found,
                from_timestamp_ms=least_ms if known_ms is None else max(known_ms, least_ms),
            )
    return found


def _understood(condition: Condition) -> Condition | None:
    """The condition without negation where that can be said so; None where nothing follows."""
    wanted = _TYPES.get(condition.column)
    if wanted is None:
        return None
    value = condition.value
    if condition.operator is among:
        value = tuple(each for each in value if each is not None)
    values = value if isinstance(value, tuple) else (value,)
    # Not isinstance: True is an int, and no offset.
    if any(type(each) is not wanted for each in values):
        return None
    if condition.operator is str.startswith and wanted is not str:
        return None
    if condition.negated and condition.operator in _OPPOSITE:
        return Condition(condition.column, _OPPOSITE[condition.operator], value)
    return replace(condition, value=value)


def _bounds(condition: Condition) -> tuple[int | None, int | None]:
    """The least and the most that a number can be, both inclusive; None is no bound."""
    if condition.negated:
        return None, None
    value = condition.value
    if isinstance(value, tuple):
        return (min(value), max(value)) if value else (OFFSET_MAX, -1)
    least = {eq: value, ge: value, gt: value + 1}.get(condition.operator)
    most = {eq: value, le: value, lt: value - 1}.get(condition.operator)
    return least, most
