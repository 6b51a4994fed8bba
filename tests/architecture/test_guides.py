"""The documents: links that lead somewhere, blocks that say what they are, pages that are made."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest

from keyrange.cli.error_reference import KINDS, markdown
from keyrange.cli.exit_codes import EXIT_CODES
from keyrange.consumer.settings import CONSUMER_OPTIONS
from keyrange.errors import CATALOGUE, Kind
from keyrange.options import OPTIONS
from project.snippets import DOCUMENTS, PAGES, ROOT, Snippet, command_lines, snippets

GUIDES = ROOT / "connector" / "guides"
LANGUAGES = {"python", "bash", "toml", "properties", "json", "sql", "mermaid", "text"}
MARKS = {"no-test", "load-only", "file"}
DIAGRAMS = ("flowchart ", "sequenceDiagram", "stateDiagram-v2")

# Every block that no test runs, or runs in part, by file: each with the reason that stands in it.
NOT_RUN: dict[str, list[str]] = {
    "README.md": [
        "they make an environment of their own; the last one is this test suite",
        "it installs packages; ci/packaging.sh does it in a fresh environment",
        "it leaves a broker running; the tests have one of their own",
        "it is a shell that waits for what is typed",
        "it runs for some minutes; the tests run the job by themselves",
    ],
    "command-line.md": ["it writes to the shell's own start files"],
    "databricks.md": ["it needs Databricks' secrets"],
    "figures.md": ["it measures for hours, on a machine that does nothing else"],
    "notebooks.md": [
        "it installs packages; the tests run the notebook by themselves",
        "the tests run the notebook by themselves",
        "it needs Jupyter; a test runs both so where it is installed",
        "it needs a Connect server; the tests start one of their own",
        "it runs until it is stopped; the tests start one so",
    ],
    "observing.md": [
        "it runs until it is stopped",
        "it takes a port of its own; the tests ask a registry",
        "it exports every minute; the tests run it with a reader in memory",
        "it sets up the logging of the whole process",
    ],
    "reading.md": ["it needs a cluster and an object store; the tests run the job by themselves"],
    "security.md": [
        "it needs a broker with SASL and its credentials",
        "it needs a broker with SASL, and certificates",
    ],
    "static-members.md": ["it needs a Kubernetes cluster"],
    "volume-guard.md": ["it runs until it is stopped, and alters quotas of a cluster"],
    "state.md": [
        "it imports a module of the reader's own",
        "it asks for a table of the reader's own",
        "it serves until Ctrl-C",
        "it needs the members of a query that runs",
    ],
}


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def by_page(paths: list[Path]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("path", paths, ids=name)


def blocks(language: str) -> list[Snippet]:
    return [each for path in DOCUMENTS for each in snippets(path) if each.language == language]


def prose(path: Path) -> str:
    """A page without its blocks and its code."""
    return re.sub(
        r"`[^`\n]*`", "", re.sub(r"^```.*?^```$", "", path.read_text(), flags=re.M | re.S)
    )


def anchors(path: Path) -> set[str]:
    """The anchors that GitHub gives the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", path.read_text(), re.M)
    return {re.sub(r"[^\w\- ]", "", each.lower()).strip().replace(" ", "-") for each in headings}


@by_page(PAGES)
def test_links_lead_somewhere(path: Path) -> None:
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(path)):
        place, _, anchor = target.partition("#")
        if "://" in place:
            continue
        found = (path.parent / place).resolve() if place else path
        inside = found.is_relative_to(ROOT) and found.exists()
        if not inside or (anchor and anchor not in anchors(found)):
            broken.append(target)
    assert broken == []


def test_there_are_links_to_check() -> None:
    assert len(re.findall(r"\]\([^)\s]+\)", prose(ROOT / "README.md"))) > 15


def test_the_readme_lists_every_guide() -> None:
    readme = (ROOT / "README.md").read_text()
    assert [each.name for each in GUIDES.glob("*.md") if f"guides/{each.name})" not in readme] == []


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) < 250


@by_page(DOCUMENTS)
def test_blocks_say_what_they_are(path: Path) -> None:
    for each in snippets(path):
        assert each.language in LANGUAGES, f"{each}: a block of {each.language or 'no language'}"
        assert each.marks.keys() <= MARKS, f"{each}: {sorted(each.marks)}"
        assert each.text.strip(), f"{each}: nothing in it"


def test_blocks_that_no_test_runs_are_listed_with_their_reason() -> None:
    found: dict[str, list[str]] = {}
    for path in DOCUMENTS:
        for each in snippets(path):
            for mark in ("no-test", "load-only"):
                if mark in each.marks:
                    found.setdefault(path.name, []).append(each.marks[mark])
    assert found == NOT_RUN
    assert all(len(reason.split()) > 2 for reasons in found.values() for reason in reasons)


def test_python_that_no_test_runs_is_python_at_least() -> None:
    python = [each for each in blocks("python") if "no-test" in each.marks]
    for each in python:
        lines = [line for line in each.text.splitlines() if not line.startswith("%")]
        compile("\n".join(lines), str(each), "exec")


def test_scripts_that_are_named_are_there() -> None:
    named = {
        word
        for each in blocks("bash")
        for words in command_lines(each.text)
        for word in words
        if re.match(r"(ci|jobs|conf)/", word)
    }
    assert len(named) > 4
    assert [each for each in sorted(named) if not (ROOT / each).exists()] == []


def test_data_can_be_read_and_pictures_are_of_a_known_kind() -> None:
    for each in blocks("json"):
        json.loads(each.text)
    for each in blocks("toml"):
        tomllib.loads(each.text)
    for each in blocks("properties"):
        lines = [line for line in each.text.splitlines() if line and not line.startswith("#")]
        assert all(re.fullmatch(r"[\w.\-]+(\s+|\s*=\s*)\S.*", line) for line in lines), each
    pictures = blocks("mermaid")
    assert pictures
    for each in pictures:
        assert each.text.startswith(DIAGRAMS), each


def test_every_condition_is_explained() -> None:
    assert KINDS.keys() == set(Kind)
    for each in CATALOGUE.values():
        assert each.meaning.endswith(".")
        assert each.look
        assert not each.look.endswith(".")
        assert not each.guide or (GUIDES / each.guide).exists(), each.guide


def test_the_page_of_troubleshooting_is_the_catalogue() -> None:
    """`keyrange errors --output markdown > connector/guides/troubleshooting.md` makes it anew."""
    assert (GUIDES / "troubleshooting.md").read_text() == markdown()
    for each in CATALOGUE.values():
        assert f"\n### {each.name}\n" in markdown()


def test_every_option_is_named_where_it_belongs() -> None:
    """OPTIONS.md lists them all; who looks for what to do reads a guide."""
    pages = "\n".join(path.read_text() for path in [ROOT / "README.md", *GUIDES.glob("*.md")])
    missing = [
        row.name
        for row in (*OPTIONS, *CONSUMER_OPTIONS)
        if not re.search(rf"(?<![\w.]){re.escape(row.name)}(?![\w]|\.\w)", pages)
    ]
    assert missing == []


DESIGN = [ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md", *GUIDES.glob("design-*.md")]


@by_page(DESIGN)
def test_modules_that_a_design_page_names_are_there(path: Path) -> None:
    folders = (ROOT / folder for folder in ("connector", "jobs", "conf", "tests", "ci"))
    there = [str(each) for folder in folders for each in folder.rglob("*.py")]
    # A job of a user's, which hides Python's own module.
    named = set(re.findall(r"`([\w/]+\.py)", path.read_text())) - {"inspect.py"}
    assert {each for each in named if not any(f.endswith(f"/{each}") for f in there)} == set()


def test_exit_codes_are_those_of_the_help() -> None:
    text = (GUIDES / "command-line.md").read_text()
    rows = dict(re.findall(r"^\| (\d+) \| (.+) \|$", text, re.M))
    assert {code: words.replace("`", "") for code, words in rows.items()} == dict(EXIT_CODES)
