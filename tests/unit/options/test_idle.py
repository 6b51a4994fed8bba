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
        ({"memberTable": "/lake/m"}, {"pin": "prefer", **KEYED}),
        ({"min.available.ratio": "0.1"}, GUARDED),
        ({"min.available.bytes": "1g"}, GUARDED),
        ({"keyRangesPerPartition": "4"}, KEYED),
    ],
)
def test_what_changes_nothing_names_what_it_needs(
    given: dict[str, str], needed: dict[str, str]
) -> None:
    [said] = idle_options(parse_options(READS | given, "stream"))
    assert next(iter(needed)) in said
    assert next(iter(given)).rpartition(".")[0] in said
    assert list(idle_options(parse_options(READS | given | needed, "stream"))) == []


def test_members_have_the_key_ranges_of_a_pinned_query() -> None:
    pinned = {**KEYED, "pin": "prefer", "memberTable": "/lake/m"}
    given = READS | pinned | {"keyRangesPerPartition": "1"}
    said = list(idle_options(parse_options(given, "stream")))
    assert said == ["option 'keyRangesPerPartition' changes nothing without pin=off"]
    assert list(idle_options(parse_options(READS | pinned, "stream"))) == []


def test_options_of_no_such_kind_are_passed_over() -> None:
    assert list(idle_options(parse_options(READS, "stream"))) == []
    own = {**KEYED, "commitMode": "individual", "commitTable": "/lake/c"}
    assert list(idle_options(parse_options(READS | own, "stream"))) == []
