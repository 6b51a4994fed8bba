"""The options of the source: every default, every limit, every violation at once."""

from __future__ import annotations

from typing import Any

import pytest

from keyrange.errors import InvalidError
from keyrange.model.columns import COLUMNS, USUAL
from keyrange.model.offsets import EARLIEST, LATEST, TopicPartition
from keyrange.model.position_options import Everywhere, Offsets, PositionSpec
from keyrange.model.subscription import Subscribe
from keyrange.options import OPTIONS, KeyRangeOptions, Mode, SourceOptions, parse_options
from keyrange.options.commits import CommitOptions
from keyrange.options.members import MemberOptions
from keyrange.options.option import option_fields, rows_of
from keyrange.options.registry import RegistrySettings
from keyrange.options.value_format import ValueOptions
from keyrange.options.volume_checks import VolumeOptions
from keyrange.options.volumes import VOLUME_ROWS

REQUIRED = {"subscribe": "t", "kafka.bootstrap.servers": "h:9092"}
PASSWORD = "hunter2-\\\"';=,é"
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def violations(options: dict[str, str], mode: Mode | None = None) -> list[str]:
    with pytest.raises(InvalidError) as caught:
        parse_options(REQUIRED | options, mode)
    assert caught.value.condition.name == "INVALID_OPTIONS"
    return caught.value.message.split("; option ")


DEFAULTS: dict[str, Any] = {
    "subscription": Subscribe(("t",)),
    "end": PositionSpec("endingOffsets", Everywhere(LATEST)),
    "max_offsets_per_trigger": None,
    "min_offsets_per_trigger": None,
    "max_trigger_delay_ms": 900_000,
    "max_records_per_partition": None,
    "group_id_prefix": "",
    "mirror_offsets": False,
    "fetch_offset_tries": None,
    "fetch_offset_pause_ms": 1_000,
    "max_bytes_per_trigger": None,
    "min_partitions": None,
    "bytes_per_task": 8 << 20,
    "min_tasks": 1,
    "include_headers": False,
    "include_key_hash": False,
    "key_ranges": KeyRangeOptions(memory_bytes=200 << 20, spill_bytes=20 << 30),
    "commits": CommitOptions(group="default"),
    "members": MemberOptions(group="default"),
    "volumes": VolumeOptions(),
    "columns": None,
    "filter_pushdown": False,
    "map_in_arrow": None,
    "values": ValueOptions(),
    "registry": RegistrySettings(),
    "fail_on_data_loss": True,
    "max_batch_rows": 32_768,
    "max_batch_bytes": 4 << 20,
    "max_record_batch_bytes": 128 << 20,
    "poll_timeout_ms": 120_000,
    "rack_variable": "",
}


@pytest.mark.parametrize("mode", [None, "batch", "stream"])
def test_defaults(mode: Mode | None) -> None:
    options = parse_options(REQUIRED, mode)
    assert {name: getattr(options, name) for name in DEFAULTS} == DEFAULTS
    assert DEFAULTS.keys() | {"start", "client", "forms"} == set(SourceOptions.__dataclass_fields__)
    start = PositionSpec("startingOffsets", Everywhere(EARLIEST if mode == "batch" else LATEST))
    assert options.start == start


INT64 = 2**63 - 1
INT32 = 2**31 - 1
# Option, least, most, and whether it takes a unit of bytes.
LIMITS = [
    ("maxOffsetsPerTrigger", "max_offsets_per_trigger", 1, INT64, False),
    ("minOffsetsPerTrigger", "min_offsets_per_trigger", 1, INT64, False),
    ("maxBytesPerTrigger", "max_bytes_per_trigger", 1, INT64, True),
    ("maxRecordsPerPartition", "max_records_per_partition", 1, INT64, False),
    ("fetchOffset.numRetries", "fetch_offset_tries", 1, INT32, False),
    ("fetchOffset.retryIntervalMs", "fetch_offset_pause_ms", 0, INT32, False),
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
        ("includeKeyHash", "include_key_hash"),
        ("failOnDataLoss", "fail_on_data_loss"),
        ("filterPushdown", "filter_pushdown"),
    ],
)
def test_switches(name: str, field: str) -> None:
    for value, expected in (("true", True), ("FALSE", False), (" True ", True)):
        assert getattr(parse_options(REQUIRED | {name: value}), field) is expected
    assert violations({name: "yes"}) == [f"option '{name}' must be true or false, not 'yes'"]


def test_every_option_is_tested_here() -> None:
    tested = {name for name, *_ in LIMITS} | {"includeHeaders", "includeKeyHash", "failOnDataLoss"}
    # In test_key_ranges.py, test_commits.py, test_members.py and test_volume_checks.py.
    key_ranges = {row.name for row in rows_of(KeyRangeOptions)}
    commits = {row.name for row in rows_of(CommitOptions)}
    members = {row.name for row in rows_of(MemberOptions)}
    volumes = {row.name for row in VOLUME_ROWS}
    positions = {
        f"{side}{name}"
        for side in ("starting", "ending")
        for name in ("Offsets", "OffsetsByTimestamp", "Timestamp", "OffsetsDefault")
    }
    others = {
        "subscribe",
        "subscribePattern",
        "subscribePatternMatch",
        "assign",
        "startingOffsetsByTimestampStrategy",
        "maxTriggerDelay",
        "groupIdPrefix",
        "mirrorOffsets",
        "columns",
        "filterPushdown",
        # In test_read_rack.py.
        "client.rack.env",
        # In test_map_in_arrow.py.
        "mapInArrow",
        "mapInArrowSchema",
        # In test_value_format.py.
        *("valueFormat", "valueSchema", "valueMessage", "keyFormat", "keySchema", "keyMessage"),
        *("badValues", "rescuedData", "timeZone", "valueSchema.location", "keySchema.location"),
    }
    # In test_registry_options.py.
    others |= set(option_fields(RegistrySettings).values())
    assert {row.name for row in OPTIONS} == (
        tested | positions | key_ranges | commits | members | volumes | others
    )


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
    assert plain.subscription == Subscribe(("MyTopic",))
    assert plain.start.positions == Everywhere(EARLIEST)
    assert plain.client.client_id == "Me"


@pytest.mark.parametrize(
    ("given", "expected"),
    [("a", ("a",)), (" a , b,a,,", ("a", "b")), ("A,a", ("A", "a")), ("x_y.z-1", ("x_y.z-1",))],
)
def test_topics(given: str, expected: tuple[str, ...]) -> None:
    assert parse_options(REQUIRED | {"subscribe": given}).subscription == Subscribe(expected)


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
    assert parse_options(REQUIRED).chosen_columns == USUAL
    assert parse_options(REQUIRED | {"includeHeaders": "true"}).chosen_columns == COLUMNS[:-1]
    both = REQUIRED | {"includeHeaders": "true", "includeKeyHash": "true"}
    assert parse_options(both).chosen_columns == COLUMNS
    both = parse_options(REQUIRED | {"includeHeaders": "true", "columns": "headers,key"})
    assert both.chosen_columns == ("key", "headers")


ALL = ", ".join(COLUMNS)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("", f"must name at least one column of {ALL}"),
        (" , ", f"must name at least one column of {ALL}"),
        ("key,,value", f"must name columns of {ALL}, not ''"),
        ("key,vlaue", f"must name columns of {ALL}, not 'vlaue' (did you mean 'value'?)"),
        ("Header", f"must name columns of {ALL}, not 'Header' (did you mean 'headers'?)"),
        ("zzz", f"must name columns of {ALL}, not 'zzz'"),
        ("*", f"must name columns of {ALL}, not '*'"),
        ("key,KEY", "must name every column once, but 'key' is there twice"),
    ],
)
def test_what_cannot_be_columns(given: str, text: str) -> None:
    assert violations({"columns": given}) == [f"option 'columns' {text}"]


@pytest.mark.parametrize(
    ("option", "column"), [("includeHeaders", "headers"), ("includeKeyHash", "keyHash")]
)
def test_a_column_must_not_be_asked_for_and_left_out(option: str, column: str) -> None:
    assert violations({"columns": "key,value", option: "true"}) == [
        f"option '{option}' must not be true where option 'columns' leaves {column} out"
    ]
    parse_options(REQUIRED | {"columns": "key,value", option: "false"})
    parse_options(REQUIRED | {"columns": f"key,{column}", option: "true"})


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("earLiEst", Everywhere(EARLIEST)),
        (" laTest ", Everywhere(LATEST)),
        ('{"t":{"0":23,"1":-1}}', Offsets({T0: 23, T1: -1})),
        ('{"t":{"0":-2},"T":{"0":0}}', Offsets({T0: -2, TopicPartition("T", 0): 0})),
    ],
)
def test_positions(given: str, expected: Any) -> None:
    options = parse_options(REQUIRED | {"startingOffsets": given, "endingOffsets": given})
    assert options.start == PositionSpec("startingOffsets", expected)
    assert options.end == PositionSpec("endingOffsets", expected)


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
        '{"t":{"0":%s}}' % ("9" * 5_000),
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
        "kafka.auto.offset.reset",
        "kafka.fetch.max.bytes",
        "kafka.nonsense.thing",
        "kafka.bootstrap.servers",
        "kafka.sasl.jaas.config",
    ):
        assert f"option '{name}' " in message
    assert "exactly one of the options subscribe, subscribePattern, assign" in message


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
    message = f"option '{given}' does not exist (did you mean '{meant}'?)"
    assert violations({given: "1"}) == [message]


def test_an_option_like_no_other_is_refused_without_a_guess() -> None:
    assert violations({"zzzz": "1"}) == ["option 'zzzz' does not exist"]


def test_the_least_must_not_be_higher_than_the_most() -> None:
    [message] = violations({"minOffsetsPerTrigger": "20", "maxOffsetsPerTrigger": "15"})
    assert message.endswith("must not be higher than maxOffsetsPerTrigger: 20 and 15")


MODES = [
    ("endingOffsets", "latest", "stream", "is not valid in streaming queries"),
    ("endingTimestamp", "5", "stream", "is not valid in streaming queries"),
    ("endingOffsetsByTimestamp", '{"t":{"0":5}}', "stream", "is not valid in streaming queries"),
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
    if not name.startswith("ending") or mode == "stream":
        parse_options(REQUIRED | {name: value}, other)


@pytest.mark.parametrize("name", ["maxOffsetsPerTrigger", "minOffsetsPerTrigger"])
def test_a_batch_read_warns_of_the_limits_of_streams(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    parse_options(REQUIRED | {name: "5"}, "stream")
    assert not caplog.messages
    parse_options(REQUIRED | {name: "5"}, "batch")
    assert caplog.messages == [f"option '{name}' is ignored in batch reads"]


def test_a_batch_read_must_not_end_before_it_starts() -> None:
    def both(start: str, end: str) -> dict[str, str]:
        return {"startingOffsets": start, "endingOffsets": end}

    [message] = violations(both('{"t":{"0":5,"1":6}}', '{"t":{"0":5,"1":5}}'), "batch")
    assert "must not lie before startingOffsets: t-1 from 6 to 5" in message
    assert "UNRESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET" in message
    [message] = violations(both('{"t":{"0":5}}', '{"t":{"1":5}}'), "batch")
    assert "must name the same partitions as startingOffsets" in message
    assert "MISMATCHED_TOPIC_PARTITIONS_BETWEEN_START_OFFSET_AND_END_OFFSET" in message
    parse_options(REQUIRED | both('{"t":{"0":5}}', '{"t":{"0":5}}'), "batch")
    parse_options(REQUIRED | both('{"t":{"0":5}}', '{"t":{"0":-1}}'), "batch")
    parse_options(REQUIRED | both('{"t":{"0":-2}}', '{"t":{"0":0}}'), "batch")
