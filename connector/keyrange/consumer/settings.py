"""The options of the plain consumer: those of the source that say something without Spark, and a
few of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from keyrange.errors import InvalidError
from keyrange.model.value_forms import REGISTERED, SELF_DESCRIBED
from keyrange.options import OPTIONS, SourceOptions, parse_options
from keyrange.options.commits import STORAGE_PREFIX
from keyrange.options.kafka_properties import ClientSettings
from keyrange.options.members import MemberOptions
from keyrange.options.option import GivenOptions, by_name, option, rows_of, texts_of
from keyrange.options.parsing import KAFKA_PREFIX, unknown
from keyrange.options.producer_properties import ProducerSettings, parse_producer_options
from keyrange.options.registry import REGISTRY_TLS_PREFIX, RegistrySettings
from keyrange.options.value_parsers import Violations, duration_or_ms, int_between, one_of
from keyrange.values.forms import value_forms

_TIME: Final = "a time, such as 10s; a bare number is ms"

# Options of the source that act on a consumer too.
_SHARED: Final = frozenset(
    {
        *("startingOffsets", "startingOffsetsByTimestamp", "startingTimestamp"),
        *("startingOffsetsByTimestampStrategy", "startingOffsetsDefault"),
        *("includeHeaders", "includeKeyHash", "columns", "failOnDataLoss", "nullKeys", "keys"),
        *("maxBatchRows", "maxBatchBytes", "maxRecordBatchBytes", "accept.range.fetch"),
        "commit.isolation",
        *("commitMode", "allow.individual.commit", "commitTable"),
        *("commitGroup", "maxDeliveries", "max.num.ranges.to.commit", "mirrorOffsets"),
        *("max.bytes.ranges.to.commit", "kafkaConsumer.pollTimeoutMs", "splitBy"),
        *("memberTable", "memberGroup", "memberNames", "member.name", "member.name.env"),
        *("member.name.file", "slot.directory", "session.timeout.ms", "heartbeat.interval.ms"),
        *("max.poll.interval.ms", "registration.timeout.ms", "expansion.timeout.ms"),
        *("members.expected", "warmup.timeout.ms"),
        *("valueFormat", "valueSchema", "valueMessage", "keyFormat", "keySchema", "keyMessage"),
        *("badValues", "rescuedData", "timeZone", "valueSchema.location", "keySchema.location"),
        *(row.name for row in rows_of(RegistrySettings)),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings:
    """All options of a consumer, validated. Durations in ms, 0 for none. `by_offset`: records are
    shared out by the hashes of their offsets, and no order is kept. `producer`, on the cluster of
    `producer_client`, sends what transactions send."""

    source: SourceOptions
    producer: ProducerSettings
    producer_client: ClientSettings
    by_offset: bool = False
    gap_timeout_ms: int = option(
        "gap.timeout.ms",
        duration_or_ms,
        "How long a record may wait for its acknowledgement before it is handed out again. 0: as "
        "long as it likes.",
        values=_TIME,
        default="5m",
    )
    unacknowledged_max: int = option(
        "max.unacknowledged",
        int_between(1, 2**31 - 1),
        "With so many records handed out and not acknowledged poll returns no new ones.",
        values="a number of records",
        default="1000000",
    )
    if_forgotten: str = option(
        "if.forgotten",
        one_of("fail", "send", "skip"),
        "What is done with the last transaction of a consumer that ended in it, where Kafka does "
        "not know any more whether it is committed (TRANSACTION_FORGOTTEN): send hands its records "
        "out again, skip takes them as done.",
        values="fail, send or skip",
        default="fail",
    )

    @property
    def members(self) -> MemberOptions:
        return self.source.members


# A transaction is in Kafka only while the end of its block runs, and keeps readers waiting until
# somebody ends it.
_PRODUCER: Final = {"kafka.transaction.timeout.ms": "60000"}

CONSUMER_OPTIONS: Final = rows_of(ConsumerSettings)
_BY_NAME: Final = by_name(CONSUMER_OPTIONS)
_OF_SOURCE: Final = by_name(OPTIONS)


def parse_consumer_options(
    options: Mapping[str, object], producer: Mapping[str, object] | None = None
) -> ConsumerSettings:
    """All options of `keyrange.Consumer`, and its producer's; raises one InvalidError that names
    everything wrong."""
    violations = Violations()
    given = GivenOptions(_BY_NAME, violations)
    # What the source asks for, and a consumer is told by assign or subscribe.
    source = {"subscribe": "keyrange", "commitMode": "individual"}
    for name, value in texts_of(options, violations).items():
        folded = name.lower()
        if given.take(name, value):
            continue
        of_source = _OF_SOURCE.get(folded)
        if folded.startswith((KAFKA_PREFIX, STORAGE_PREFIX, REGISTRY_TLS_PREFIX)):
            source[name] = value
        elif of_source is not None and of_source.name in _SHARED:
            source[of_source.name] = value
        else:
            violations.add(name, _unknown(folded))
    by_offset = False
    with violations.collecting("splitBy"):
        by_offset = _OF_SOURCE["splitby"].parse(source.get("splitBy", "keyRange")) == "offset"
    # How much of a partition is read is said by assign and subscribe.
    source["splitBy"] = "keyRange"
    parsed = None
    try:
        parsed = parse_options(source, "stream")
    except InvalidError as failure:
        violations.messages.append(failure.message)
    client = ClientSettings()
    if parsed is not None:
        _check_together(parsed, by_offset, violations)
        client = parsed.client
    texts = _PRODUCER | texts_of(producer or {}, violations)
    sends, sends_to = parse_producer_options(texts, client, violations)
    violations.check()
    assert parsed is not None
    return given.settings(
        ConsumerSettings,
        source=replace(parsed, forms=value_forms(parsed)),
        producer=sends,
        producer_client=sends_to,
        by_offset=by_offset,
    )


def _check_together(source: SourceOptions, by_offset: bool, violations: Violations) -> None:
    if not source.commits.individual:
        violations.add("commitMode", "must be individual: a consumer commits nothing else")
    if source.commits.transactional:
        violations.add(
            "commit.isolation",
            "must be immediate: a consumer has no sink whose output could be kept until everything "
            "before it is done; publish what committed() has passed (guides/consumer.md)",
        )
    named = (
        (
            "value",
            source.values.format,
            source.values.schema or source.values.location,
            source.registry.value_subject,
        ),
        (
            "key",
            source.values.key_format,
            source.values.key_schema or source.values.key_location,
            source.registry.key_subject,
        ),
    )
    for side, form, schema, subject in named:
        text = "must be given: its schema is read before assign and subscribe name topics"
        if source.registry.urls and form in REGISTERED and not (schema or subject):
            violations.add(f"{side}Subject", text)
        if not source.registry.urls and form in SELF_DESCRIBED and not schema:
            violations.add(f"{side}Schema", text)
    if source.values.bad == "deadLetter":
        text = "must be null, fail or column: what a consumer is handed it judges itself"
        violations.add("badValues", text)
    if by_offset and source.key_ranges.nulls_first:
        violations.add("nullKeys", "must be spread with splitBy=offset, which asks no record's key")


def _unknown(name: str) -> str:
    if name in _OF_SOURCE:
        return "is not valid for keyrange.Consumer: it is about Spark, or is said by its methods"
    shared = {key: row for key, row in _OF_SOURCE.items() if row.name in _SHARED}
    return unknown(name, {**_BY_NAME, **shared})
