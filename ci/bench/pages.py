"""`python -m bench.pages FILE...`: write the tables of the pages from the JSON of runs.

A section of a page begins with `<!-- figures: NAME -->` and ends with `<!-- end of figures -->`;
NAME is a table of `bench.tables`, or `shortfalls`: all figures that miss their targets. Within a
line `<!-- figure: GROUP NAME -->` and `<!-- end -->` stand around the value of one figure. With
`--check` nothing is written, and pages that differ from the files are named.
`connector/guides/figures/` keeps the files that the pages are made from.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import shortfalls
from bench.before import BEFORE
from bench.tables import TABLES, Table

ROOT = Path(__file__).parents[2]
_GUIDES = ROOT / "connector" / "guides"
PAGES = (ROOT / "README.md", *sorted(_GUIDES.glob("*.md")))
KEPT = _GUIDES / "figures"
# The page on which figures have those of before beside them.
_ALL = _GUIDES / "figures.md"
_SHORTFALLS = "shortfalls"
_SECTION = re.compile(r"(<!-- figures: (\w+) -->\n)(.*?)(<!-- end of figures -->)", re.DOTALL)
_MARK = re.compile(r"<!-- (?:figures: .*|end of figures) -->")
_FIGURE = re.compile(r"(<!-- figure: (\S+) (\S+) -->)(.*?)(<!-- end -->)")
_FIGURE_MARK = re.compile(r"<!-- (?:figure:.*?|end) -->")
_UNMEASURED = "No run of this group is kept; `bash ci/bench.sh --only {}` measures it.\n"
_UNITS = {
    "ratio": "{} times",
    "M/s": "{} million records/s",
    "M/core-s": "{} million records per core-second",
    "MB/core-s": "{} MB per core-second",
    "cores": "{} of a core",
    "share": "{}",
    "times": "{}",
}


class RefusedError(Exception):
    """The files do not prove what the pages are to say."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A group's figures by name, and the run that they come from."""

    document: dict[str, Any]
    figures: dict[str, dict[str, Any]]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench.pages", description=__doc__)
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE")
    parser.add_argument("--check", action="store_true", help="write nothing, name what differs")
    parsed = parser.parse_args(arguments)
    try:
        written = {page: page.read_text() for page in PAGES}
        made = made_pages(written, measured(parsed.files))
    except RefusedError as refused:
        print(refused, file=sys.stderr)
        return 2
    differing = [page for page in PAGES if written[page] != made[page]]
    for page in differing:
        if not parsed.check:
            page.write_text(made[page])
        print(f"{page.relative_to(ROOT)}: {'differs' if parsed.check else 'written'}")
    return 1 if parsed.check and differing else 0


def measured(files: Iterable[Path]) -> dict[str, Measured]:
    """The groups that some files have. A group is in one file, so that one run proves a table."""
    found: dict[str, Measured] = {}
    for path in files:
        document = json.loads(path.read_text())
        if document["run"]["scale"] == "tiny":
            raise RefusedError(f"{path}: the figures of a tiny run say nothing about speed")
        for group in document["groups"]:
            name = group["name"]
            if group["failed"]:
                raise RefusedError(f"{path}: group {name} failed, its figures are not whole")
            if name in found:
                raise RefusedError(f"{path}: group {name} is in another file too")
            figures = {each["name"]: each for each in document["figures"] if each["group"] == name}
            found[name] = Measured(document, figures)
    return found


def made_pages(pages: dict[Path, str], groups: dict[str, Measured]) -> dict[Path, str]:
    """The pages with their sections written anew."""
    return {page: _made(page, text, groups) for page, text in pages.items()}


def _made(page: Path, text: str, groups: dict[str, Measured]) -> str:
    def section(match: re.Match[str]) -> str:
        if match[2] == _SHORTFALLS:
            return f"{match[1]}\n{_shortfalls(groups)}\n{match[4]}"
        if match[2] not in TABLES:
            raise RefusedError(f"{page.name}: no table is called {match[2]}")
        before = BEFORE if page == _ALL else {}
        return f"{match[1]}\n{_section(TABLES[match[2]], groups, before)}\n{match[4]}"

    def figure(match: re.Match[str]) -> str:
        if match[2] not in groups:
            raise RefusedError(f"{page.name}: no file has group {match[2]}, of figure {match[3]}")
        return f"{match[1]}{_value(_figure(match[2], groups[match[2]], match[3]))}{match[5]}"

    if len(_MARK.findall(text)) != 2 * len(_SECTION.findall(text)):
        raise RefusedError(f"{page.name}: a section of figures has no beginning or no end")
    if len(_FIGURE_MARK.findall(text)) != 2 * len(_FIGURE.findall(text)):
        raise RefusedError(f"{page.name}: a figure in a line has no beginning, no name or no end")
    return _FIGURE.sub(figure, _SECTION.sub(section, text))


def _section(table: Table, groups: dict[str, Measured], before: Mapping[str, str]) -> str:
    if table.group not in groups:
        return _UNMEASURED.format(table.group)
    group = groups[table.group]
    is_told = any(names[0] in before for names in table.rows.values())
    columns = (*table.columns, *["before"] * is_told)
    lines = [_origin(table.group, group.document), ""]
    lines += [_row(columns), "|" + "---|" * len(columns)]
    for label, names in table.rows.items():
        found = [_figure(table.group, group, name) for name in names]
        was = [_in_units(before.get(names[0], ""), found[0])] * is_told
        lines.append(_row((label, *(_text(group, each) for each in found), *was)))
    return "\n".join(lines) + "\n"


def _shortfalls(groups: dict[str, Measured]) -> str:
    """One row for each figure that misses its target; those of one reason stand together."""
    missed: dict[str, list[tuple[str, ...]]] = {}
    for group, of_group in shortfalls.targets().items():
        for name, target in of_group.items():
            figure = groups[group].figures.get(name) if group in groups else None
            if figure is None or target.met(figure["value"]):
                continue
            if (why := shortfalls.reason(name)) is None:
                raise RefusedError(f"{name} misses its target, {target}, and nothing says why")
            label = f"`{group}`: {shortfalls.label(group, name)}"
            missed.setdefault(why, []).append((label, _value(figure), str(target)))
    columns = ("figure", "measured", "target", "why")
    lines = [_row(columns), "|" + "---|" * len(columns)]
    for why, rows in missed.items():
        lines += [_row((*row, "as above" if at else why)) for at, row in enumerate(rows)]
    return "\n".join(lines) + "\n"


def _origin(name: str, document: dict[str, Any]) -> str:
    """One sentence on the run: what kind, when, how often, and on what machine."""
    run, machine = document["run"], document["machine"]
    is_full = run["scale"] == "full"
    kind = "Full run" if is_full else "**Quick run, not a full one:** fewer records,"
    option = "" if is_full else " --quick"
    commit = f"commit {run['commit'][:9]}" if run["commit"] else "no known commit"
    return (
        f"{kind} of {run['started'][:10]} (`bash ci/bench.sh{option} --only {name}`): medians of"
        f" {run['repetitions']} repetitions, lowest and highest in brackets;"
        f" {machine['cores']} cores ({machine['cpu']}), load {machine['load_at_start']} at the"
        f" start, {commit}{' with changes' if run['changed'] else ''}."
    )


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _figure(group: str, measured: Measured, name: str) -> dict[str, Any]:
    if name not in measured.figures:
        raise RefusedError(f"group {group} was run and has no figure {name}")
    return measured.figures[name]


def _text(group: Measured, figure: dict[str, Any]) -> str:
    value, runs = _value(figure), figure["runs"]
    if runs == 1:
        return f"{value} (one run)"
    spread = f"{_number(figure['min'])} to {_number(figure['max'])}"
    often = "" if runs == group.document["run"]["repetitions"] else f", {runs} runs"
    return f"{value} ({spread}{often})"


def _value(figure: dict[str, Any]) -> str:
    return _in_units(_number(figure["value"]), figure)


def _in_units(number: str, figure: dict[str, Any]) -> str:
    text = _UNITS.get(figure["unit"], f"{{}} {figure['unit']}").format(number)
    return text if number else ""


def _number(number: float) -> str:
    return f"{number:,.0f}" if abs(number) >= 100 else f"{number:.3g}"


if __name__ == "__main__":
    sys.exit(main())
