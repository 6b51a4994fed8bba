"""The options of the source: every default, every limit, every violation at once."""

from __future__ import annotations

import copy
import pickle  # noqa: TID251  as Spark does with a source
import traceback
from typing import Any

import pytest

from keyrange.core.columns import COLUMNS
from keyrange.core.offsets import EARLIEST, LATEST, TopicPartition
from keyrange.errors import InvalidError
from keyrange.options import _NOT_YET, OPTIONS, Mode, SourceOptions, parse_options

REQUIRED = {"subscribe": "t", "kafka.bootstrap.servers": "h:9092"}
PASSWORD = "hunter2-\\\"';=,é"
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def violations(options: dict[str, str], mode: Mode | None = None) -> list[str]:
    with pytest.raises(InvalidError) as caught:
        parse_options(REQUIRED | options, mode)
    assert caught.value.condition.name == "INVALID_OPTIONS"
    return caught.value.message.split("; option ")


DEFAULTS: dict[str, Any] = {
    "subscribe": ("t",),
    "starting_offsets": None,
    "ending_offsets": LATEST,
    "max_offsets_per_trigger": None,
    "max_bytes_per_trigger": None,
    "min_partitions": None,
    "bytes_per_task": 8 << 20,
    "min_tasks": 1,
    "include_headers": False,
    "columns": None,
    "filter_pushdown": False,
    "fail_on_data_loss": True,
    "max_batch_rows": 32_768,
    "max_batch_bytes": 4 << 20,
    "max_record_batch_bytes": 128 << 20,
    "poll_timeout_ms": 120_000,
}


@pytest.mark.parametrize("mode", [None, "batch", "stream"])
def test_defaults(mode: Mode | None) -> None:
    options = parse_options(REQUIRED, mode)
    assert {name: getattr(options, name) for name in DEFAULTS} == DEFAULTS
    assert DEFAULTS.keys() == {row.field for row in OPTIONS}


INT64 = 2**63 - 1
INT32 = 2**31 - 1
# Option, least, most, and whether it takes a unit of bytes.
LIMITS = [
    ("maxOffsetsPerTrigger", "max_offsets_per_trigger", 1, INT64, False),
    ("maxBytesPerTrigger", "max_bytes_per_trigger", 1, INT64, True),
    ("minPartitions", "min_partitions", 1, INT32, False),
    ("bytesPerTask", "bytes_per_task", 0, INT64, True),
    ("minTasks", "min_tasks", 1, INT32, False),
    ("maxBatchRows", "max_batch_rows", 1, 1_000_000, False),
    ("maxBatchBytes", "max_batch_bytes", 1024, 2**30, True),
    ("maxRecordBatchBytes", "max_record_batch_bytes", 1 << 20, 2**31 - 2**20, True),
    ("kafkaConsumer.pollTimeoutMs", "poll_timeout_ms", 1, INT32, False),
]


@pytest.mark.parametrize(("name", "field", "least", "most", "unit"), LIMITS)
def test_limits_are_inclusive(name: str, field: str, least: int, most: int, unit: bool) -> None:
    for value in (least, most):
        options = parse_options(REQUIRED | {name: str(value)})
        assert getattr(options, field) == value
    for value in (str(least - 1), str(most + 1), "", "a", "1.5", "-1", "8m" if not unit else "8t"):
        [message] = violations({name: value})
        assert message.startswith(f"option '{name}' must be ")
    if unit:
        assert getattr(parse_options(REQUIRED | {name: "2m"}), field) == 2 << 20


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("includeHeaders", "include_headers"),
        ("failOnDataLoss", "fail_on_data_loss"),
        ("filterPushdown", "filter_pushdown"),
    ],
)
def test_switches(name: str, field: str) -> None:
    for value, expected in (("true", True), ("FALSE", False), (" True ", True)):
        assert getattr(parse_options(REQUIRED | {name: value}), field) is expected
    assert violations({name: "yes"}) == [f"option '{name}' must be true or false, not 'yes'"]


def test_every_option_is_tested_here() -> None:
    tested = {name for name, *_ in LIMITS} | {"includeHeaders", "failOnDataLoss", "columns"}
    tested |= {"filterPushdown"}
    positions = {"subscribe", "startingOffsets", "endingOffsets"}
    assert {row.name for row in OPTIONS} == tested | positions


@pytest.mark.parametrize("change", [str.lower, str.upper, str.swapcase])
def test_names_are_not_case_sensitive(change: Any) -> None:
    given = {
        "subscribe": "MyTopic",
        "startingOffsets": "EARliest",
        "endingOffsets": '{"MyTopic":{"0":5}}',
        "minPartitions": "5",
        "includeHeaders": "TRUE",
        "kafkaConsumer.pollTimeoutMs": "7",
        "kafka.bootstrap.servers": "h:9092",
        "kafka.client.id": "Me",
    }
    plain = parse_options(given)
    assert parse_options({change(name): value for name, value in given.items()}) == plain
    assert plain.subscribe == ("MyTopic",)
    assert plain.starting_offsets == EARLIEST
    assert plain.client.client_id == "Me"


@pytest.mark.parametrize(
    ("given", "expected"),
    [("a", ("a",)), (" a , b,a,,", ("a", "b")), ("A,a", ("A", "a")), ("x_y.z-1", ("x_y.z-1",))],
)
def test_topics(given: str, expected: tuple[str, ...]) -> None:
    assert parse_options(REQUIRED | {"subscribe": given}).subscribe == expected


@pytest.mark.parametrize(
    "given", ["", " , ", ".", "..", "a b", "a*", "ü", "a" * 250, "a;b", "a\nb"]
)
def test_what_cannot_be_a_topic(given: str) -> None:
    [message] = violations({"subscribe": given})
    assert message.startswith("option 'subscribe' must ")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("value", ("value",)),
        (" TIMESTAMPTYPE , value,KEY", ("key", "value", "timestampType")),
        ("headers,offset", ("offset", "headers")),
        (",".join(COLUMNS), COLUMNS),
    ],
)
@pytest.mark.parametrize("mode", [None, "batch", "stream"])
def test_columns_come_in_the_sources_order(
    given: str, expected: tuple[str, ...], mode: Mode | None
) -> None:
    options = parse_options(REQUIRED | {"columns": given}, mode)
    assert options.columns == options.chosen_columns == expected


def test_without_a_list_of_columns_headers_are_the_option_s_matter() -> None:
    assert parse_options(REQUIRED).chosen_columns == COLUMNS[:-1]
    assert parse_options(REQUIRED | {"includeHeaders": "true"}).chosen_columns == COLUMNS
    both = parse_options(REQUIRED | {"includeHeaders": "true", "columns": "headers,key"})
    assert both.chosen_columns == ("key", "headers")


ALL = ", ".join(COLUMNS)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("", f"must name at least one column of {ALL}"),
        (" , ", f"must name at least one column of {ALL}"),
        ("key,,value", f"must name columns of {ALL}, not ''"),
        ("key,vlaue", f"must name columns of {ALL}, not 'vlaue'; did you mean 'value'?"),
        ("Header", f"must name columns of {ALL}, not 'Header'; did you mean 'headers'?"),
        ("zzz", f"must name columns of {ALL}, not 'zzz'"),
        ("*", f"must name columns of {ALL}, not '*'"),
        ("key,KEY", "must name every column once, but 'key' is there twice"),
    ],
)
def test_what_cannot_be_columns(given: str, text: str) -> None:
    assert violations({"columns": given}) == [f"option 'columns' {text}"]


def test_headers_must_not_be_asked_for_and_left_out() -> None:
    assert violations({"columns": "key,value", "includeHeaders": "true"}) == [
        "option 'includeHeaders' must not be true where option 'columns' leaves headers out"
    ]
    parse_options(REQUIRED | {"columns": "key,value", "includeHeaders": "false"})


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("earLiEst", EARLIEST),
        (" laTest ", LATEST),
        ('{"t":{"0":23,"1":-1}}', {T0: 23, T1: -1}),
        ('{"t":{"0":-2},"T":{"0":0}}', {T0: -2, TopicPartition("T", 0): 0}),
    ],
)
def test_positions(given: str, expected: object) -> None:
    options = parse_options(REQUIRED | {"startingOffsets": given, "endingOffsets": given})
    assert options.starting_offsets == options.ending_offsets == expected


@pytest.mark.parametrize(
    "given",
    [
        "",
        "5",
        "first",
        "null",
        "[]",
        '{"t":{"0":-3}}',
        '{"t":{"0":"5"}}',
        '{"t":{"a":5}}',
        '{"t":5}',
        '{"t\\n":{"0":5}}',
        '{"@keyrange":{"version":1}}',
        '{"t":{"0":5}',
        "[" * 100_000,
    ],
    ids=lambda given: given[:20],
)
@pytest.mark.parametrize("name", ["startingOffsets", "endingOffsets"])
def test_what_cannot_be_a_position(name: str, given: str) -> None:
    [message] = violations({name: given})
    assert message.startswith(f"option '{name}' must ")


def test_everything_that_is_wrong_is_said_at_once() -> None:
    with pytest.raises(InvalidError) as caught:
        parse_options(
            {
                "startingOffset": "earliest",
                "minTasks": "0",
                "endingOffsets": "5",
                "includeHeaders": "maybe",
                "kafka.auto.offset.reset": "earliest",
                "kafka.fetch.max.bytes": "-1",
                "kafka.nonsense.thing": "x",
                "kafka.security.protocol": "SASL_SSL",
            },
            "stream",
        )
    message = caught.value.message
    for name in (
        "startingOffset",
        "minTasks",
        "endingOffsets",
        "includeHeaders",
        "subscribe",
        "kafka.auto.offset.reset",
        "kafka.fetch.max.bytes",
        "kafka.nonsense.thing",
        "kafka.bootstrap.servers",
        "kafka.sasl.mechanism",
        "kafka.sasl.jaas.config",
    ):
        assert f"option '{name}' " in message


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("startingOffset", "startingOffsets"),
        ("subscribes", "subscribe"),
        ("MAXOFFSETPERTRIGGER", "maxOffsetsPerTrigger"),
        ("minPartition", "minPartitions"),
        ("failOnDataloss2", "failOnDataLoss"),
    ],
)
def test_a_misspelt_option_is_refused_with_what_was_meant(given: str, meant: str) -> None:
    message = f"option '{given}' does not exist; did you mean '{meant}'?"
    assert violations({given: "1"}) == [message]


def test_an_option_like_no_other_is_refused_without_a_guess() -> None:
    assert violations({"zzzz": "1"}) == ["option 'zzzz' does not exist"]


@pytest.mark.parametrize("name", _NOT_YET)
def test_options_of_the_jvm_connector_without_a_row_are_named_as_such(name: str) -> None:
    for given in (name, name.upper()):
        [message] = violations({given: "1"})
        assert message.endswith(
            "is an option of Spark's Kafka source that keyrange does not support"
        )
    assert name.lower() not in {row.name.lower() for row in OPTIONS}


MODES = [
    ("endingOffsets", "latest", "stream", "is not valid in streaming queries"),
    ("maxOffsetsPerTrigger", "5", "batch", "is not valid in batch reads"),
    ("maxBytesPerTrigger", "5m", "batch", "is not valid in batch reads"),
    ("filterPushdown", "true", "stream", "is not valid in streaming queries"),
    ("startingOffsets", "latest", "batch", "can't be latest for batch queries"),
    ("startingOffsets", '{"t":{"0":-1}}', "batch", "for t-0 can't be latest for batch queries"),
    ("endingOffsets", "earliest", "batch", "can't be earliest for batch queries"),
    ("endingOffsets", '{"t":{"0":-2}}', "batch", "for t-0 can't be earliest for batch queries"),
]


@pytest.mark.parametrize(("name", "value", "mode", "text"), MODES)
def test_what_one_mode_refuses_the_other_takes(
    name: str, value: str, mode: Mode, text: str
) -> None:
    assert violations({name: value}, mode) == [f"option '{name}' {text}"]
    parse_options(REQUIRED | {name: value})
    other: Mode = "batch" if mode == "stream" else "stream"
    if name != "endingOffsets" or mode == "stream":
        parse_options(REQUIRED | {name: value}, other)


def test_a_batch_read_must_not_end_before_it_starts() -> None:
    def both(start: str, end: str) -> dict[str, str]:
        return {"startingOffsets": start, "endingOffsets": end}

    [message] = violations(both('{"t":{"0":5,"1":6}}', '{"t":{"0":5,"1":5}}'), "batch")
    assert message.endswith("must not lie before startingOffsets: t-1 from 6 to 5")
    [message] = violations(both('{"t":{"0":5}}', '{"t":{"1":5}}'), "batch")
    assert message.endswith("must name the same partitions as startingOffsets")
    parse_options(REQUIRED | both('{"t":{"0":5}}', '{"t":{"0":5}}'), "batch")
    parse_options(REQUIRED | both('{"t":{"0":5}}', '{"t":{"0":-1}}'), "batch")
    parse_options(REQUIRED | both('{"t":{"0":-2}}', '{"t":{"0":0}}'), "batch")


def with_secrets() -> SourceOptions:
    jaas = f'x.PlainLoginModule required username="u" password="{PASSWORD[:7]}";'
    return parse_options(
        REQUIRED
        | {
            "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.sasl.jaas.config": jaas,
            "kafka.ssl.key.password": PASSWORD,
        }
    )


def test_secrets_never_show() -> None:
    options = with_secrets()
    for shown in (repr(options), str(options), f"{options}", "%s" % options):  # noqa: UP031
        assert "hunter2" not in shown
    with pytest.raises(TypeError) as caught:
        options < 1  # noqa: B015
    assert "hunter2" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    "wrong",
    [
        {"kafka.sasl.password": PASSWORD, "kafka.security.protocol": PASSWORD[:3]},
        {"kafka.sasl.pasword": PASSWORD},
        {"kafka.ssl.keystore.password": PASSWORD},
        {"kafka.ssl.truststore.password": PASSWORD},
        {"kafka.ssl.keystore.key": PASSWORD},
        {"kafka.sasl.jaas.config": f"PlainLoginModule required password={PASSWORD}"},
        {"password": PASSWORD},
        {"sasl.password": PASSWORD},
        {"kafka.sasl.login.callback.handler.class": PASSWORD},
    ],
)
def test_a_refusal_never_repeats_a_secret(wrong: dict[str, str]) -> None:
    with pytest.raises(InvalidError) as caught:
        parse_options(REQUIRED | wrong)
    assert "hunter2" not in "".join(traceback.format_exception(caught.value))


def test_options_travel_and_a_broken_journey_shows_no_secret() -> None:
    options = with_secrets()
    data = pickle.dumps(options)
    for travelled in (pickle.loads(data), copy.deepcopy(options)):
        assert travelled == options
        assert travelled.client.ssl_key_password.reveal() == PASSWORD
    for size in range(len(data)):
        with pytest.raises(Exception) as caught:
            pickle.loads(data[:size])
        assert "hunter2" not in str(caught.value)


def test_settings_cannot_be_changed_afterwards() -> None:
    with pytest.raises(AttributeError):
        with_secrets().min_tasks = 5
