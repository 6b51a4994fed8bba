"""The options about key ranges: what they take, what they refuse, and that no key is shown."""

from __future__ import annotations

import base64
import json
import traceback
from typing import Any

import pytest

from keyrange.errors import InvalidError
from keyrange.model.key_ranges import HASH_MAX, SPACE, KeyRange, split_evenly, write_ranges
from keyrange.model.offsets import TopicPartition
from keyrange.options import KeyRangeOptions, SourceOptions, parse_options
from keyrange.options.option import rows_of

REQUIRED = {"subscribe": "t", "kafka.bootstrap.servers": "h:9092"}
BY_KEY = {"splitBy": "keyRange"}
T0, T1, T2 = (TopicPartition("t", number) for number in range(3))
MIDDLE = 2**62
HALVES = (KeyRange(0, MIDDLE), KeyRange(MIDDLE, HASH_MAX + 1))
LOW, HIGH = ([[each.from_hash, each.until_hash - 1]] for each in HALVES)


def parsed(**given: str) -> SourceOptions:
    return parse_options(
        REQUIRED | {name.replace("_", "."): value for name, value in given.items()}
    )


def key_ranges(given: dict[str, str]) -> KeyRangeOptions:
    return parse_options(REQUIRED | given).key_ranges


def refused(given: dict[str, str]) -> list[str]:
    """What is said of each violation, all of them; nobody's key is in it."""
    with pytest.raises(InvalidError) as caught:
        parse_options(REQUIRED | given)
    assert caught.value.condition.name == "INVALID_OPTIONS"
    assert "Exceeds" not in caught.value.message
    return caught.value.message.split("; option ")


def ranges(document: Any, **more: str) -> dict[str, str]:
    return BY_KEY | {"keyRanges": json.dumps(document)} | more


# Option, field, values with what they are, values that are refused.
VALUES: list[tuple[str, str, dict[str, Any], list[str]]] = [
    (
        "splitBy",
        "split_by",
        {"partition": "partition", " keyRange": "keyRange", "offset": "offset"},
        ["", "key", "keyrange", "partition,offset"],
    ),
    (
        "keyRangesPerPartition",
        "ranges_per_partition",
        {"1": 1, " 64 ": 64, "65536": 65_536, "auto": None, " AUTO": None},
        ["", "0", "-1", "65537", "1.5", "automatic", "1_0"],
    ),
    (
        "accept.range.fetch",
        "accept",
        {
            "true": (True, {}),
            "False": (False, {}),
            " TRUE ": (True, {}),
            "{}": (True, {}),
            '{"t": false}': (True, {"t": False}),
        },
        ["", "yes", "null", "[]", '"t"', '{"t": 0}', '{"t": "false"}', '{"a b": false}', '{"t":'],
    ),
    ("nullKeys", "nulls_first", {"spread": False, "first": True}, ["", "last", "true"]),
    ("parallelism", "cores", {"1": 1, "2147483647": 2**31 - 1}, ["", "0", "-1", "auto", "2g"]),
    (
        "max.bytes.key.range.results",
        "memory_bytes",
        {"0": 0, "2m": 2 << 20, str(2**63 - 1): 2**63 - 1},
        ["", "-1", "8t", "auto", str(2**63)],
    ),
    (
        "max.bytes.key.range.spill",
        "spill_bytes",
        {"0": 0, "2g": 2 << 30, str(2**63 - 1): 2**63 - 1},
        ["", "-1", "8t", "auto", str(2**63)],
    ),
    (
        "reserve.message.value.range.fetch",
        "keep_values",
        {"true": True, "FALSE": False},
        ["", "yes", "1"],
    ),
    (
        "keys",
        "keys",
        {
            '["a"]': (b"a",),
            '["", null, "é", "a"]': (b"", None, "é".encode(), b"a"),
            '[{"base64": ""}, {"base64": "AP8="}]': (b"", b"\x00\xff"),
            '["\\ud800"]': (b"\xed\xa0\x80",),
        },
        ["", "[]", "a", '"a"', "null", "{}", "[1]", "[true]", '[["a"]]', "[NaN]", '["a"'],
    ),
]
TESTED_APART = {"keyRanges", "keyRangesCoverage"}


def test_every_option_is_tested_here() -> None:
    names = {row.name for row in rows_of(KeyRangeOptions)}
    assert names == {name for name, *_ in VALUES} | TESTED_APART


@pytest.mark.parametrize(
    ("name", "field", "value", "expected"),
    [(name, field, *each) for name, field, taken, _ in VALUES for each in taken.items()],
)
def test_what_an_option_takes(name: str, field: str, value: str, expected: Any) -> None:
    found = getattr(key_ranges({name: value}), field)
    assert (found, type(found)) == (expected, type(expected))


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, _, _, wrong in VALUES for value in wrong]
)
def test_what_an_option_refuses(name: str, value: str) -> None:
    [message] = refused({name: value})
    assert message.startswith(f"option '{name}' must ")


@pytest.mark.parametrize("name", ["keys", "keyRanges", "accept.range.fetch"])
@pytest.mark.parametrize(
    "value",
    ["[" * 100_000, '{"t":' * 100_000, "9" * 5_000, f"[{'9' * 5_000}]"],
    ids=["lists", "objects", "digits", "digits in a list"],
)
def test_json_beyond_pythons_limits_is_refused_like_any_other(name: str, value: str) -> None:
    [message] = refused(BY_KEY | {name: value})
    assert message.startswith(f"option '{name}' must be JSON, ")


def test_topics_that_keep_their_order_are_named() -> None:
    some = key_ranges({"accept.range.fetch": '{"t": false, "u": true}'})
    assert [some.accepts_splits(topic) for topic in ("t", "u", "other")] == [False, True, True]
    assert not key_ranges({"accept.range.fetch": "false"}).accepts_splits("t")


def test_a_list_of_ranges_for_partitions_or_for_all_of_a_topic() -> None:
    cut = write_ranges(split_evenly(SPACE, 3))
    found = key_ranges(ranges({"t": {"0": LOW + HIGH, "1": []}, "u": cut[::-1], "v": []}))
    assert found.given(T0) == HALVES
    assert found.given(T1) == (SPACE,)
    assert found.given(T2) is None
    for partition in (0, 7):
        assert found.given(TopicPartition("u", partition)) == tuple(split_evenly(SPACE, 3))
        assert found.given(TopicPartition("v", partition)) == (SPACE,)
    assert found.given(TopicPartition("w", 0)) is None
    assert not found.partial


def test_holes_are_for_those_who_name_them() -> None:
    [message] = refused(ranges({"t": {"0": LOW, "1": []}}))
    assert message == (
        f"option 'keyRanges' leaves [{MIDDLE}, {HASH_MAX}] of partition t-0 out; "
        "say keyRangesCoverage=partial where others read the rest"
    )
    [message] = refused(ranges({"t": [[5, HASH_MAX]]}))
    assert message.startswith("option 'keyRanges' leaves [0, 4] of topic t out; ")
    assert len(refused(ranges({"t": [[5, 9]], "u": {"0": [[5, 9]], "1": []}}))) == 2
    found = key_ranges(ranges({"t": {"0": LOW}}, keyRangesCoverage="partial"))
    assert found.partial
    assert found.given(T0) == HALVES[:1]
    assert not key_ranges(ranges({"t": []}, keyRangesCoverage="full")).partial


def test_ranges_must_not_overlap_whatever_the_coverage() -> None:
    for coverage in ("full", "partial"):
        given = ranges({"t": [[0, MIDDLE], [MIDDLE, HASH_MAX]]}, keyRangesCoverage=coverage)
        message = refused(given)[0]
        assert message.endswith(f"t: [0, {MIDDLE}] and [{MIDDLE}, {HASH_MAX}] overlap")


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ("{}", "must name at least one topic"),
        ("[]", "must be JSON, "),
        ("null", "must be JSON, "),
        ("[[0, 5]]", "must be JSON, "),
        ("", "must be JSON, "),
        ('{"t": []', "must be JSON, "),
        ('{"t": null}', "must be JSON, "),
        ('{"t": {}}', "must be JSON, "),
        ('{"t": {}, "u": []}', "must be JSON, "),
        ('{"t": "all"}', "must be JSON, "),
        ('{"t": {"0": null}}', "t: key ranges are a list of [lo, hi]"),
        ('{"t": {"0": {"1": []}}}', "t: key ranges are a list of [lo, hi]"),
        ('{"t": [0, 5]}', "t: a key range is [lo, hi], two whole numbers"),
        ('{"t": [[0]]}', "t: a key range is [lo, hi], two whole numbers"),
        ('{"t": [[0, 1, 2]]}', "t: a key range is [lo, hi], two whole numbers"),
        ('{"t": [["0", "1"]]}', "t: a key range is [lo, hi], two whole numbers"),
        ('{"t": [[0.0, 1.0]]}', "t: a key range is [lo, hi], two whole numbers"),
        ('{"t": [[false, true]]}', "t: a key range is [lo, hi], two whole numbers"),
        ('{"t": [[5, 4]]}', "t: [5, 4] does not lie in [0, 9223372036854775807]"),
        ('{"t": [[-1, 4]]}', "t: [-1, 4] does not lie in [0, 9223372036854775807]"),
        ('{"t": [[0, 9223372036854775808]]}', "does not lie in [0, 9223372036854775807]"),
        ('{"a b": []}', "must name topics, and 'a b' cannot be a topic: Kafka allows 1 to 249"),
        ('{"": []}', "must name topics, and '' cannot be a topic"),
        ('{"t": {"x": []}}', "'x' is not a partition of topic t"),
        ('{"t": {"-1": []}}', "'-1' is not a partition of topic t"),
        ('{"t": {"00": []}}', "'00' is not a partition of topic t"),
        ('{"t": {"²": []}}', "'²' is not a partition of topic t"),
        ('{"t": {"2147483648": []}}', "'2147483648' is not a partition of topic t"),
        ('{"t": [], "t": []}', "must name every topic and partition once"),
        ('{"t": {"0": [], "0": []}}', "must name every topic and partition once"),
    ],
)
def test_what_cannot_be_key_ranges(document: str, text: str) -> None:
    [message] = refused(BY_KEY | {"keyRanges": document})
    assert message.startswith("option 'keyRanges' must ")
    assert text in message


def test_a_topic_that_is_named_twice_is_not_half_protected() -> None:
    [message] = refused({"accept.range.fetch": '{"t": false, "t": true}'})
    assert message == "option 'accept.range.fetch' must name every topic and partition once"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"keyRanges": '{"t": []}'}, ["keyRanges' needs splitBy=keyRange"]),
        (
            {"keyRanges": '{"t": []}', "splitBy": "offset"},
            ["keyRanges' needs splitBy=keyRange"],
        ),
        (BY_KEY | {"keyRangesCoverage": "partial"}, ["keyRangesCoverage' partial needs keyRanges"]),
        (
            BY_KEY | {"maxRecordsPerPartition": "5"},
            ["maxRecordsPerPartition' is not valid with splitBy=keyRange"],
        ),
        (
            {"splitBy": "offset", "maxRecordsPerPartition": "5"},
            ["maxRecordsPerPartition' is not valid with splitBy=offset"],
        ),
        (
            {"keyRanges": '{"t": [[0, 5]]}', "keyRangesCoverage": "most"},
            [
                "keyRangesCoverage' must be one of full, partial, not 'most'",
                "'keyRanges' needs splitBy=keyRange",
                "'keyRanges' leaves [6, ",
            ],
        ),
    ],
)
def test_what_does_not_go_together(given: dict[str, str], expected: list[str]) -> None:
    messages = refused(given)
    assert len(messages) == len(expected)
    for message, text in zip(messages, expected, strict=True):
        assert text in message


def test_what_goes_together() -> None:
    assert parsed(maxRecordsPerPartition="5").max_records_per_partition == 5
    found = parsed(splitBy="keyRange", minPartitions="9", keys='["a"]', nullKeys="first")
    assert (found.min_partitions, found.key_ranges.split_by) == (9, "keyRange")
    assert (found.key_ranges.keys, found.key_ranges.nulls_first) == ((b"a",), True)
    assert parsed(keys='["a"]', splitBy="offset").key_ranges.keys == (b"a",)


SECRET = "hunter2"
ENCODED = base64.b64encode(SECRET.encode()).decode()


@pytest.mark.parametrize(
    "keys",
    [
        f'["{SECRET}", 1]',
        f'["{SECRET}"',
        SECRET,
        f'[["{SECRET}"]]',
        f'{{"{SECRET}": 1}}',
        f'[{{"{SECRET}": "a"}}]',
        f'[{{"base64": "{SECRET}!"}}]',
        f'[{{"base64": ["{ENCODED}"]}}]',
        f'[{{"base64": "{ENCODED}", "more": 1}}]',
        f'[{{"base64": "é{ENCODED}"}}]',
    ],
)
def test_a_refusal_never_repeats_a_key(keys: str) -> None:
    with pytest.raises(InvalidError) as caught:
        parse_options(REQUIRED | {"keys": keys})
    assert caught.value.message.startswith("option 'keys' must be JSON, a list of texts")
    shown = "".join(traceback.format_exception(caught.value))
    assert SECRET not in shown
    assert ENCODED not in shown


def test_keys_are_not_shown_with_the_options() -> None:
    options = parsed(keys=f'["{SECRET}"]')
    assert options.key_ranges.keys == (SECRET.encode(),)
    assert SECRET not in f"{options} {options!r} {options.key_ranges}"


@pytest.mark.parametrize("split_by", ["keyRange", "offset"])
@pytest.mark.parametrize("named", [{"subscribe": "t,u"}, {"assign": '{"t": [0], "u": [1]}'}])
def test_a_named_topic_that_keeps_its_order_is_refused_at_once(
    split_by: str, named: dict[str, str]
) -> None:
    servers = {"kafka.bootstrap.servers": "h:1"}
    given = servers | named | {"splitBy": split_by, "accept.range.fetch": '{"u": false}'}
    with pytest.raises(InvalidError, match=r"'splitBy' .*RANGE_FETCH_NOT_ACCEPTED.* topic u in"):
        parse_options(given)
    parse_options(given | {"splitBy": "partition"})
    parse_options(given | {"accept.range.fetch": '{"v": false}'})


def test_keys_have_one_fingerprint_in_any_order() -> None:
    def of(keys: str) -> str:
        return parsed(keys=keys).key_ranges.keys_fingerprint

    assert parsed().key_ranges.keys_fingerprint == ""
    assert of('["a", "b", "a"]') == of('["b", {"base64": "YQ=="}]')
    other = ['["a", "b"]', '["a, b"]', '["ab"]', "[null]", '["None"]']
    assert len({*map(of, other)}) == len(other)
