"""The diagrams in the guides are those of the tables."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from commands.diagrams import CHAPTERS, Diagram, chapter

GUIDES = Path(__file__).parents[3] / "connector" / "guides"
PAGES = {"members": "design-members.md", "volumes": "design-guard.md"}
DIAGRAMS = [each for diagrams in CHAPTERS.values() for each in diagrams]


@pytest.mark.parametrize("name", CHAPTERS)
def test_the_page_shows_the_tables(name: str) -> None:
    """To mend it: put what `tests/commands/diagrams.py NAME` says between the marks."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    text = (GUIDES / PAGES[name]).read_text()
    assert (text.count(begin), text.count(end)) == (1, 1)
    assert text.split(begin)[1].split(end)[0].strip() == chapter(name)


def test_the_module_prints_them() -> None:
    program = Path(__file__).parents[2] / "commands" / "diagrams.py"
    command = [sys.executable, str(program), "volumes"]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert result.stdout == chapter("volumes") + "\n"


@pytest.mark.parametrize("diagram", DIAGRAMS, ids=lambda each: each.title)
def test_every_line_is_one_that_mermaid_reads(diagram: Diagram) -> None:
    """A label ends at a second colon or a semicolon."""
    state = r"(\[\*\]|[A-Z_]+)"
    line = re.compile(rf"    {state} --> {state}(: [^:;]+)?|```(mermaid)?|stateDiagram-v2")
    lines = diagram.mermaid().splitlines()
    assert len(lines) > 6
    assert [each for each in lines if not line.fullmatch(each)] == []


@pytest.mark.parametrize("diagram", DIAGRAMS, ids=lambda each: each.title)
def test_every_state_is_reached(diagram: Diagram) -> None:
    reached = {diagram.begin}
    while True:
        nexts = {to for (source, _), to in diagram.transitions.items() if source in reached}
        if nexts <= reached:
            break
        reached |= nexts
    assert reached == set(type(diagram.begin))
