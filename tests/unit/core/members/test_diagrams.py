"""The diagrams in ARCHITECTURE.md are those of the tables, and the tables lead somewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from keyrange.core.members import diagrams, group_states, member_states
from keyrange.core.members.group_states import ENDS, State
from keyrange.core.members.member_states import Standing

ARCHITECTURE = Path(__file__).parents[4] / "ARCHITECTURE.md"
BEGIN, END = "<!-- members: begin -->", "<!-- members: end -->"


def test_the_page_shows_the_tables() -> None:
    """To mend it: put between the markers what `python -m keyrange.core.members.diagrams` says."""
    text = ARCHITECTURE.read_text()
    assert (text.count(BEGIN), text.count(END)) == (1, 1)
    between = text.split(BEGIN)[1].split(END)[0]
    assert between.strip() == diagrams.chapter()


def test_the_module_prints_them() -> None:
    command = [sys.executable, "-m", "keyrange.core.members.diagrams"]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert result.stdout == diagrams.chapter() + "\n"


def test_every_line_is_one_that_mermaid_reads() -> None:
    """A label ends at a second colon or a semicolon."""
    state = r"(\[\*\]|[A-Z_]+)"
    line = re.compile(rf"    {state} --> {state}(: [^:;]+)?|```(mermaid)?|stateDiagram-v2")
    for text in (diagrams.membership(), diagrams.group_member()):
        assert [each for each in text.splitlines() if not line.fullmatch(each)] == []


@pytest.mark.parametrize(
    ("table", "begin", "states"),
    [
        (group_states.TRANSITIONS, State.UNJOINED, set(State)),
        (member_states.TRANSITIONS, Standing.UNKNOWN, set(Standing)),
    ],
)
def test_every_state_is_reached(
    table: dict[tuple[str, str], str], begin: str, states: set[str]
) -> None:
    reached = {begin}
    while True:
        further = reached | {to for (source, _), to in table.items() if source in reached}
        if further == reached:
            break
        reached = further
    assert reached == states


def test_nothing_leads_out_of_an_end_and_everything_to_one() -> None:
    sources = {source for source, _ in group_states.TRANSITIONS}
    assert sources == set(State) - ENDS
    for state in sources:
        nexts = {to for (source, _), to in group_states.TRANSITIONS.items() if source is state}
        assert State.CLOSED in nexts, state
