"""Names that people look for among the options, and that are arguments of calls."""

from __future__ import annotations

import sys

import pytest

import keyrange
from commands import commanding
from keyrange.cli.call_arguments import calls_with
from keyrange.cli.exit_codes import ExitCode


@pytest.mark.parametrize(
    ("name", "calls"),
    [
        ("delay", ["keyrange.EventTime(delay=...)"]),
        ("idleAfter", ["keyrange.EventTime(idle_after=...)"]),
        ("WITHIN", ["keyrange.deduplicate(within=...)"]),
        ("partition_by", ["keyrange.job(...).into(partition_by=...)"]),
        ("size", ["keyrange.windows.hopping(size=...)", "keyrange.windows.tumbling(size=...)"]),
        ("self", []),
        ("interval", []),
    ],
)
def test_calls_are_found_by_their_signatures(name: str, calls: list[str]) -> None:
    assert calls_with(name) == calls


def test_calls_whose_packages_are_missing_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "keyrange.jobs.api", None)
    assert "job" in keyrange.__all__
    assert calls_with("partition_by") == []
    assert calls_with("delay") == ["keyrange.EventTime(delay=...)"]


def test_an_argument_is_no_option_and_the_command_says_of_which_call() -> None:
    for name, said in (
        ("late", "'late' is no option, but an argument of a call: keyrange.EventTime(late=...)"),
        ("schema", "keyrange.process(schema=...), keyrange.windows.WindowedAggregation(...)."),
    ):
        result = commanding.run("options", name)
        assert result.exit_code == ExitCode.USAGE
        assert said in " ".join(result.output.split())
