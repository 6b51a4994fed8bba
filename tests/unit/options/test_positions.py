"""What to read and from where, and the group told of it: precedence, defaults, refusals."""

from __future__ import annotations

import pytest

from keyrange.errors import InvalidError
from keyrange.model.offsets import EARLIEST, LATEST, TopicPartition
from keyrange.model.position_options import (
    GroupOffsets,
    Offsets,
    PositionSpec,
    Timestamp,
    Timestamps,
)
from keyrange.model.subscription import Assign, SubscribePattern
from keyrange.options import Mode, parse_options

REQUIRED = {"subscribe": "t", "kafka.bootstrap.servers": "h:9092"}
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def violations(options: dict[str, str], mode: Mode | None = None) -> list[str]:
    with pytest.raises(InvalidError) as caught:
        parse_options(REQUIRED | options, mode)
    return caught.value.message.split("; option ")


TIMES = {"startingOffsetsByTimestamp": '{"t":{"0":7}}', "startingTimestamp": "9"}


def test_the_start_by_precedence() -> None:
    """One time before times before offsets, as in the JVM connector."""
    given = {"startingOffsets": '{"t":{"0":3}}', **TIMES}
    latest = {"startingOffsetsByTimestampStrategy": "LATEST"}
    assert parse_options(REQUIRED | given).start == PositionSpec(
        "startingTimestamp", Timestamp(9, None)
    )
    del given["startingTimestamp"]
    assert parse_options(REQUIRED | given | latest).start == PositionSpec(
        "startingOffsetsByTimestamp", Timestamps({T0: 7}, LATEST)
    )
    del given["startingOffsetsByTimestamp"]
    assert parse_options(REQUIRED | given).start.positions == Offsets({T0: 3})


def test_the_end_by_precedence() -> None:
    """Without a record behind it a time is the end of the partition: never an error."""
    given = {
        "endingOffsets": '{"t":{"0":3}}',
        "endingOffsetsByTimestamp": '{"t":{"0":7}}',
        "endingTimestamp": "9",
    }
    assert parse_options(REQUIRED | given, "batch").end.positions == Timestamp(9, LATEST)
    del given["endingTimestamp"]
    assert parse_options(REQUIRED | given, "batch").end.positions == Timestamps({T0: 7}, LATEST)


def test_a_default_for_partitions_that_are_not_named() -> None:
    given = {"startingOffsetsDefault": "Earliest", "endingOffsetsDefault": "latest"}
    offsets = {"startingOffsets": '{"t":{"0":3}}', "endingOffsets": '{"t":{"1":3}}'}
    options = parse_options(REQUIRED | given | offsets, "batch")
    assert options.start.positions == Offsets({T0: 3}, EARLIEST)
    assert options.end.positions == Offsets({T1: 3}, LATEST)
    times = {"startingOffsetsByTimestamp": TIMES["startingOffsetsByTimestamp"]}
    assert parse_options(REQUIRED | given | times).start.positions == Timestamps(
        {T0: 7}, None, EARLIEST
    )
    assert violations({"endingOffsetsDefault": "earliest"}) == [
        "option 'endingOffsetsDefault' must be latest, not 'earliest'"
    ]
    assert violations(offsets | {"startingOffsetsDefault": "latest"}, "batch") == [
        "option 'startingOffsetsDefault' can't be latest for batch queries"
    ]


def test_a_default_of_nothing_is_refused() -> None:
    """It reads as the default of startingOffsets, and the query would begin at the end."""
    alone = {"startingOffsetsDefault": "earliest"}
    for given in ({}, {"startingOffsets": "latest"}, {"startingTimestamp": "9"}):
        [message] = violations(alone | given)
        assert message.startswith("option 'startingOffsetsDefault' needs startingOffsets or")
    [message] = violations(alone | {"startingOffsets": "soon"})
    assert message.startswith("option 'startingOffsets' must be")
    assert parse_options(REQUIRED | alone | TIMES).start.option == "startingTimestamp"


def test_the_start_of_a_group() -> None:
    group = {"kafka.group.id": "g"}
    assert parse_options(REQUIRED | {"startingOffsets": "group:Other"} | group).start.positions == (
        GroupOffsets("Other")
    )
    given = {"startingOffsets": "GROUP", "startingOffsetsDefault": "latest"} | group
    assert parse_options(REQUIRED | given).start.positions == GroupOffsets("g", LATEST)
    [message] = violations({"startingOffsets": "group"})
    assert "needs a name" in message
    [message] = violations({"startingOffsets": "group:" + "g" * 32_768})
    assert message == "option 'startingOffsets' must have 32767 bytes at the most"


def test_one_way_to_subscribe() -> None:
    servers = {"kafka.bootstrap.servers": "h:1"}
    assigned = parse_options(servers | {"assign": '{"t":[1,0,1],"s":[]}'}).subscription
    assert assigned == Assign((T0, T1))
    assert isinstance(assigned, Assign)
    assert assigned.topics == ("t",)
    for pattern in (r"\[a[b]", r"[\[]", "[]&]&&[^]]", r"a[\]][&]", "[a][b]"):
        parse_options(servers | {"subscribePattern": pattern})
    matched = parse_options(servers | {"subscribePattern": "a.c"}).subscription
    assert matched == SubscribePattern("a.c")
    assert isinstance(matched, SubscribePattern)
    assert [matched.reads(name) for name in ("abc", "xabc", "abcx")] == [True, False, False]
    # As of a file with a value in a line of its own; Spark's own source takes blanks away too.
    assert parse_options(servers | {"subscribePattern": " a.c\n"}).subscription == matched
    search = {"subscribePattern": "b", "subscribePatternMatch": "search"}
    searched = parse_options(servers | search).subscription
    assert isinstance(searched, SubscribePattern)
    assert [searched.reads(name) for name in ("abc", "ac")] == [True, False]
    with pytest.raises(InvalidError, match="exactly one of the options subscribe, subscribePatt"):
        parse_options(servers)
    both = REQUIRED | {"assign": '{"t":[0]}'}
    with pytest.raises(InvalidError, match="given are subscribe and assign"):
        parse_options(both)


def test_a_pattern_knows_what_spark_reads_by_it_too() -> None:
    servers = {"kafka.bootstrap.servers": "h:1", "subscribePattern": "orders"}
    topics = ("orders", "eu.orders", "prices")

    def left_out(given: dict[str, str]) -> list[str]:
        where = parse_options(servers | given).subscription
        assert isinstance(where, SubscribePattern)
        return [topic for topic in topics if where.leaves_out(topic)]

    assert left_out({}) == ["eu.orders"]
    assert left_out({"subscribePattern": "^orders$"}) == []
    assert left_out({"subscribePatternMatch": "search"}) == []
    # Who says so has thought of it.
    assert left_out({"subscribePatternMatch": "full"}) == []


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("subscribe", "", "no topics to subscribe to"),
        ("assign", "", "must be JSON"),
        ("assign", "{}", "no topic partitions to assign"),
        ("assign", '{"t":0}', "no list of partitions"),
        ("assign", '{"t":[-1]}', "-1 is not a partition"),
        ("assign", '{"t":[true]}', "True is not a partition"),
        ("assign", '{"t":["0"]}', "'0' is not a partition"),
        ("subscribePattern", " ", "the pattern to subscribe is empty"),
        ("subscribePattern", "a(", "must be a regular expression"),
        ("subscribePattern", "[a-c[x-z]]", "sets within sets"),
        ("subscribePattern", r"x[a]\[[]\][^bc]*[\w&&[^b]]+", "sets within sets"),
        ("subscribePattern", "[[:alpha:]]", "sets within sets"),
        ("subscribePattern", "t[a-z&&def]", "sets within sets"),
        ("startingOffsetsByTimestamp", '{"t":{"0":-1}}', "is -1"),
        ("startingOffsetsByTimestamp", "soon", "must be JSON"),
        ("startingTimestamp", "x", "must be a whole number"),
        ("startingOffsetsByTimestampStrategy", "FOO", "must be error or latest"),
        ("maxTriggerDelay", "x", "must be a time"),
        ("mirrorOffsets", "true", "needs the group's name"),
    ],
)
def test_what_is_wrong_with_a_value_is_said(name: str, value: str, text: str) -> None:
    with pytest.raises(InvalidError, match="INVALID_OPTIONS") as caught:
        parse_options(REQUIRED | {name: value})
    assert f"option '{name}' " in caught.value.message
    assert text in caught.value.message


def test_offsets_are_mirrored_where_a_group_is_named() -> None:
    def mirrored(given: dict[str, str]) -> tuple[bool, str]:
        options = parse_options(REQUIRED | given)
        return options.mirror_offsets, options.group_id_prefix

    assert mirrored({"kafka.group.id": "g"}) == (True, "")
    assert mirrored({"groupIdPrefix": "p"}) == (True, "p")
    assert mirrored({"groupIdPrefix": "p", "kafka.group.id": "g"}) == (True, "")
    assert mirrored({"groupIdPrefix": "p", "mirrorOffsets": "false"}) == (False, "p")


def test_an_empty_name_of_a_group_is_none() -> None:
    """Jobs hand options through that nobody has filled in; Kafka has no group without a name."""
    empty = {"kafka.group.id": "", "groupIdPrefix": ""}
    options = parse_options(REQUIRED | empty)
    assert (options.mirror_offsets, options.group_id_prefix) == (False, "")
    assert parse_options(REQUIRED | empty | {"groupIdPrefix": "p"}).mirror_offsets
    assert violations(empty | {"mirrorOffsets": "true"}) == [
        "option 'mirrorOffsets' needs the group's name: kafka.group.id or groupIdPrefix"
    ]
    assert violations(empty | {"startingOffsets": "group"}) == [
        "option 'startingOffsets' 'group' needs a name: group:NAME or kafka.group.id"
    ]


@pytest.mark.parametrize(
    ("name", "most"),
    [
        ("kafka.group.id", 32_767),
        ("kafka.client.id", 32_767),
        ("kafka.client.rack", 32_767),
        ("groupIdPrefix", 32_734),
    ],
)
def test_a_name_that_kafkas_messages_have_no_room_for(name: str, most: int) -> None:
    parse_options(REQUIRED | {name: "x" * most})
    message = f"option '{name}' must have {most} bytes at the most"
    assert violations({name: "x" * (most - 1) + "ü"}) == [message]


@pytest.mark.parametrize(
    ("name", "document"),
    [
        ("startingOffsets", '{"t":{"0":5},"t":{"1":7}}'),
        ("startingOffsets", '{"t":{"0":5,"0":7}}'),
        ("startingOffsetsByTimestamp", '{"t":{"0":5,"0":7}}'),
        ("assign", '{"t":[0],"t":[1]}'),
    ],
)
def test_what_json_names_twice_is_not_dropped(name: str, document: str) -> None:
    given = {**REQUIRED, name: document}
    if name == "assign":
        del given["subscribe"]
    with pytest.raises(InvalidError) as failure:
        parse_options(given)
    assert f"option '{name}' must name every topic and partition once" in failure.value.message


def test_a_group_stands_behind_a_blank_as_well() -> None:
    group = parse_options(REQUIRED | {"startingOffsets": "group: x"}).start.positions
    assert group == GroupOffsets("x")
