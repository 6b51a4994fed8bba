"""Options that change nothing are named, with the option that they wait for."""

from __future__ import annotations

import pytest

from keyrange.options import parse_options
from keyrange.options.source import idle_options

READS = {"kafka.bootstrap.servers": "broker:9092", "subscribe": "orders"}
GUARDED = {"guard.admission": "true", "kafka.admin.bootstrap.servers": "broker:9092"}
KEYED = {"splitBy": "keyRange"}


@pytest.mark.parametrize(
    ("given", "needed"),
    [
        ({"commitTable": "/lake/c"}, {"commitMode": "individual"}),
        *(
            ({name: value}, {"commitMode": "individual", "commitTable": "/lake/c", **KEYED})
            for name, value in (
                ("commit.isolation", "transactional"),
                ("record.timeout", "5s"),
                ("batch.time.budget", "1m"),
            )
        ),
        ({"memberTable": "/lake/m"}, {"pin": "prefer", **KEYED}),
        ({"min.available.ratio": "0.1"}, GUARDED),
        ({"min.available.bytes": "1g"}, GUARDED),
        ({"keyRangesPerPartition": "4"}, KEYED),
        ({"parallelism": "4"}, KEYED),
        ({"parallelism": "4"}, {"splitBy": "offset"}),
        ({"bytesPerTask": "1m", **KEYED}, {"splitBy": "partition"}),
    ],
)
def test_what_changes_nothing_names_what_it_needs(
    given: dict[str, str], needed: dict[str, str]
) -> None:
    [said] = idle_options(parse_options(READS | given, "stream"))
    assert next(iter(needed)) in said
    assert next(iter(given)).rpartition(".")[0] in said
    assert list(idle_options(parse_options(READS | given | needed, "stream"))) == []


@pytest.mark.parametrize(
    ("given", "needed"),
    [
        ({"commit.isolation": "transactional"}, "commitMode=individual"),
        ({"keyOrder": "skipAhead"}, "commitMode=individual"),
        ({"maxDeliveries": "7"}, "commitMode=individual"),
        ({"deadLetterTable": "/lake/d"}, "commitMode=individual"),
        ({"member.name": "a"}, "pin"),
        ({"registration.timeout.ms": "1"}, "pin"),
        ({"members.expected": "3"}, "pin"),
        ({"warmup.timeout.ms": "1m"}, "pin"),
        ({"slot.directory": "/var/slots"}, "pin"),
    ],
)
def test_without_individual_commits_and_members_it_is_said_which_options_are_theirs(
    given: dict[str, str], needed: str
) -> None:
    options = parse_options(READS | given, "stream")
    [name] = given
    said = [f"option '{name}' changes nothing without {needed}"]
    assert list(idle_options(options)) == said
    # A job takes dead letters, for example, in both modes, and has copies of its state anyway.
    is_theirs = name == "commit.isolation" or (needed == "pin" and name != "slot.directory")
    assert list(idle_options(options, works=True)) == (said if is_theirs else [])
    theirs = {"pin": "prefer", **KEYED, "commitMode": "individual", "commitTable": "/lake/c"}
    assert list(idle_options(parse_options(READS | theirs | given, "stream"))) == []


def test_to_say_what_is_so_anyhow_is_no_mistake() -> None:
    same = {"allow.individual.commit": "false", "commitMode": "batch", "pin": "off"}
    assert list(idle_options(parse_options(READS | same, "stream"))) == []


def test_members_have_the_key_ranges_of_a_pinned_query() -> None:
    pinned = {**KEYED, "pin": "prefer", "memberTable": "/lake/m"}
    given = READS | pinned | {"keyRangesPerPartition": "1"}
    said = list(idle_options(parse_options(given, "stream")))
    assert said == ["option 'keyRangesPerPartition' changes nothing without pin=off"]
    assert list(idle_options(parse_options(READS | pinned, "stream"))) == []


def test_options_of_no_such_kind_are_passed_over() -> None:
    assert list(idle_options(parse_options(READS, "stream"))) == []
    own = {**KEYED, "commitMode": "individual", "commitTable": "/lake/c", "bytesPerTask": "0"}
    assert list(idle_options(parse_options(READS | own, "stream"))) == []
