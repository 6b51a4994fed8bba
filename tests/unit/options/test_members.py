"""The options about members: defaults, and what must not be said together."""

from __future__ import annotations

import pytest

from keyrange.errors import InvalidError
from keyrange.options import SourceOptions, parse_options
from keyrange.options.members import MemberOptions
from keyrange.options.option import rows_of

BASE = {
    "kafka.bootstrap.servers": "h:1",
    "subscribe": "t",
    "splitBy": "keyRange",
    "memberTable": "/tables/members",
}


def parsed(**given: str) -> SourceOptions:
    named = {name.replace("_", "."): value for name, value in given.items()}
    return parse_options(BASE | named, "stream")


def refused(**given: str) -> str:
    with pytest.raises(InvalidError) as raised:
        parsed(**given)
    return str(raised.value)


def test_nothing_is_pinned_unless_it_is_asked_for() -> None:
    options = parse_options({"kafka.bootstrap.servers": "h:1", "subscribe": "t"}, "stream")

    assert not options.members.pinned
    assert options.members.kafka == {}


def test_what_a_pinned_query_has() -> None:
    given = {"keyRangeListener": "shop.state:Warm.Up", "expansion.timeout.ms": "10s"}
    members = parsed(pin="strict", pin_wait_ms="70", kafka_group_id="sales", **given).members

    assert (members.pinned, members.pin, members.pin_wait_ms) == (True, "strict", 70)
    assert (members.table, members.group) == ("/tables/members", "sales")
    assert members.kafka_group == "sales.members"
    assert members.listener == "shop.state:Warm.Up"
    assert members.kafka["bootstrap.servers"] == "h:1"
    assert (members.host, members.bind_address) == ("", "")
    assert (members.registration_timeout_ms, members.expansion_timeout_ms) == (900_000, 10_000)


def test_the_table_is_beside_that_of_the_commits() -> None:
    options = parse_options(
        {
            "kafka.bootstrap.servers": "h:1",
            "subscribe": "t",
            "splitBy": "keyRange",
            "commitMode": "individual",
            "commitTable": "/tables/commits",
            "commitGroup": "g",
            "pin": "prefer",
        },
        "stream",
    )

    assert options.members.table == "/tables/commits_members"
    assert options.members.group == "g"


def test_secrets_do_not_show() -> None:
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" '
    options = parsed(
        pin="prefer",
        kafka_security_protocol="SASL_PLAINTEXT",
        kafka_sasl_mechanism="PLAIN",
        kafka_sasl_jaas_config=jaas + 'password="hidden-word";',
    )

    assert "hidden-word" not in repr(options)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"pin": "prefer", "splitBy": "partition"}, "needs splitBy=keyRange"),
        ({"pin": "strict", "memberTable": "/"}, "memberTable"),
        ({"pin": "hard"}, "off, prefer, strict"),
        ({"pin_wait_ms": "-1"}, "pin.wait.ms"),
        ({"memberNames": "any"}, "auto, static, dynamic"),
        ({"member_name_env": "A-B"}, "environment variable"),
        ({"heartbeat_interval_ms": "20000"}, "at most a third of session.timeout.ms"),
        ({"session_timeout_ms": "0"}, "session.timeout.ms"),
        ({"memberGroup": "x" * 32_768}, "memberGroup"),
        ({"splitsPerCore": "0"}, "splitsPerCore"),
        ({"keyRangeListener": "a.b:C"}, "keyRangeListener' needs pin"),
        ({"pin": "prefer", "keyRangeListener": "a.C"}, "must be package.module:Class"),
        (
            {"pin": "prefer", "keyRanges": '{"t": []}'},
            "not valid with keyRanges",
        ),
    ],
)
def test_what_is_refused(given: dict[str, str], said: str) -> None:
    assert said in refused(**given)


def test_a_pinned_query_needs_its_table() -> None:
    with pytest.raises(InvalidError, match="needs memberTable"):
        parse_options(
            {
                "kafka.bootstrap.servers": "h:1",
                "subscribe": "t",
                "splitBy": "keyRange",
                "pin": "prefer",
            },
            "stream",
        )


def test_only_streams_have_members() -> None:
    for row in rows_of(MemberOptions):
        value = row.default or {"memberTable": "/t", "member.name.env": "A"}.get(row.name, "x")
        with pytest.raises(InvalidError, match="is not valid in batch reads"):
            parse_options({**BASE, row.name: value}, "batch")


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("lake/members", "option 'memberTable' must be an absolute path or a URI"),
        ("/lake/c/", "option 'memberTable' must not be the same path as commitTable"),
        ("/lake/c_dead_letters", "must not be the same path as deadLetterTable"),
    ],
)
def test_the_table_of_members_has_a_path_of_its_own(table: str, said: str) -> None:
    commits = {"commitMode": "individual", "commitTable": "/lake/c"}
    assert said in refused(pin="prefer", memberTable=table, **commits)


def test_no_path_is_relative() -> None:
    commits = {"commitMode": "individual", "commitTable": "/lake/c"}
    for name in ("memberTable", "slot.directory"):
        for pin in ({}, {"pin": "prefer"}):
            said = refused(**{name: "lake/m"}, **pin, **commits)
            assert f"option '{name}' must be an absolute path or a URI" in said
