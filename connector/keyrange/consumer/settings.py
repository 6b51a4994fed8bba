"""The options of the plain consumer: those of the source that say something without Spark, and a
few of its own."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from keyrange.errors import InvalidError
from keyrange.options import OPTIONS, SourceOptions, parse_options
from keyrange.options.members import MemberOptions
from keyrange.options.option import STREAM, Option
from keyrange.options.parsing import Violations, duration_ms, int_between

_TIME: Final = "a time, such as 10s; a bare number is ms"

CONSUMER_OPTIONS: Final = (
    Option(
        "gap.timeout.ms", "gap_timeout_ms", "5m", STREAM, duration_ms, _TIME,
        "How long a record may wait for its acknowledgement before it is handed out again. 0: as "
        "long as it likes.",
    ),
    Option(
        "warmup.timeout.ms", "warmup_timeout_ms", "30s", STREAM, duration_ms, _TIME,
        "How long key ranges stay where they are after they were announced to who gets them, "
        "unless that is ready before. 0: they move at once.",
    ),
    Option(
        "max.unacknowledged", "unacknowledged_max", "1000000", STREAM,
        int_between(1, 2**31 - 1), "a number of records",
        "With so many records handed out and not acknowledged poll returns no new ones.",
    ),
)  # fmt: skip

# Options of the source that act on a consumer too.
_SHARED: Final = frozenset(
    {
        *("startingOffsets", "startingOffsetsByTimestamp", "startingTimestamp"),
        *("startingOffsetsByTimestampStrategy", "startingOffsetsDefault"),
        *("includeHeaders", "includeKeyHash", "columns", "failOnDataLoss", "nullKeys", "keys"),
        *("maxBatchRows", "maxBatchBytes", "maxRecordBatchBytes", "accept.range.fetch"),
        *("commitMode", "allow.individual.commit", "commitTable", "commitTable.writer"),
        *("commitGroup", "maxDeliveries", "max.num.ranges.to.commit", "mirrorOffsets"),
        *("max.bytes.ranges.to.commit", "kafkaConsumer.pollTimeoutMs", "splitBy"),
        *("memberTable", "memberGroup", "memberNames", "member.name", "member.name.env"),
        *("member.name.file", "slot.directory", "session.timeout.ms", "heartbeat.interval.ms"),
        *("max.poll.interval.ms", "registration.timeout.ms", "expansion.timeout.ms"),
    }
)
_BY_NAME: Final = {row.name.lower(): row for row in CONSUMER_OPTIONS}
_OF_SOURCE: Final = {row.name.lower(): row.name for row in OPTIONS}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings:
    """All options of a consumer, validated. Durations in ms, 0 for none."""

    source: SourceOptions
    gap_timeout_ms: int
    warmup_timeout_ms: int
    unacknowledged_max: int

    @property
    def members(self) -> MemberOptions:
        return self.source.members


def parse_consumer_options(options: Mapping[str, str]) -> ConsumerSettings:
    """All options of `keyrange.Consumer`; raises one InvalidError that names everything wrong."""
    violations = Violations()
    values: dict[str, Any] = {row.field: _default(row) for row in CONSUMER_OPTIONS}
    # What the source asks for, and a consumer is told by assign or subscribe.
    source = {"subscribe": "keyrange", "commitMode": "individual"}
    for name, value in options.items():
        folded = name.lower()
        if folded in _BY_NAME:
            with violations.collecting(_BY_NAME[folded].name):
                values[_BY_NAME[folded].field] = _BY_NAME[folded].parse(value)
        elif folded.startswith(("kafka.", "committable.storage.")):
            source[name] = value
        elif _OF_SOURCE.get(folded) in _SHARED:
            # Which keys are read is said by assign and subscribe.
            if folded != "splitby":
                source[_OF_SOURCE[folded]] = value
        else:
            violations.add(name, _unknown(folded))
    source["splitBy"] = "keyRange"
    parsed = None
    try:
        parsed = parse_options(source, "stream")
    except InvalidError as failure:
        violations.messages.append(failure.message)
    if parsed is not None:
        _check_together(parsed, violations)
    violations.check()
    assert parsed is not None
    return ConsumerSettings(source=parsed, **values)


def _default(row: Option) -> Any:
    return None if row.default is None else row.parse(row.default)


def _check_together(source: SourceOptions, violations: Violations) -> None:
    if not source.commits.individual:
        violations.add("commitMode", "must be individual: a consumer commits nothing else")
    if source.commits.writer != "delta-rs":
        violations.add("commitTable.writer", "must be delta-rs: there is no Spark here")


def _unknown(name: str) -> str:
    if name in _OF_SOURCE:
        return "is not valid for keyrange.Consumer: it is about Spark, or is said by its methods"
    near = difflib.get_close_matches(name, [*_BY_NAME, *(n.lower() for n in _SHARED)], 1)
    known = {**{k: row.name for k, row in _BY_NAME.items()}, **_OF_SOURCE}
    hint = f"; did you mean '{known[near[0]]}'?" if near else ""
    return f"does not exist{hint}"
