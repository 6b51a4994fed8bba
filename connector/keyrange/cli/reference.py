"""`keyrange options`: the option tables as a reference: for people, as JSON, TOML or Markdown.

`conf/keyrange.toml` and `OPTIONS.md` are this command's output; a test holds them to it.
"""

from __future__ import annotations

import json
import shutil
import textwrap
from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Any, Final

import typer

from keyrange.cli.render import print_document, print_text
from keyrange.options import OPTIONS
from keyrange.options.kafka_properties import PROPERTIES

# Lines longer than this are hard to read, on however wide a terminal.
_WIDTH_MAX: Final = 110
_STATES: Final = {
    "used": "These are used.",
    "ignored": "These are accepted and change nothing, because of the reason given.",
    "refused": "These are refused by name.",
}


class ReferenceFormat(StrEnum):
    TEXT = "text"
    JSON = "json"
    TOML = "toml"
    MARKDOWN = "markdown"


def options(
    output: Annotated[
        ReferenceFormat, typer.Option("--output", help="For people, programs, conf/ or docs.")
    ] = ReferenceFormat.TEXT,
) -> None:
    """Every option of the source, and what becomes of every kafka.* property."""
    if output is ReferenceFormat.JSON:
        print_document("options/1", {"options": _options(), "kafka": _properties()})
    elif output is ReferenceFormat.TOML:
        print_text(toml(), end="")
    elif output is ReferenceFormat.MARKDOWN:
        print_text(markdown(), end="")
    else:
        print_text(text(shutil.get_terminal_size((_WIDTH_MAX, 24)).columns), end="")


def _options() -> list[dict[str, Any]]:
    return [
        {
            "name": row.name,
            "default": row.default,
            "in": ", ".join(row.modes),
            "values": row.values,
            "doc": row.doc,
        }
        for row in OPTIONS
    ]


def _properties() -> list[dict[str, str]]:
    """Each property, whether it is used, ignored or refused, and why where it is not used."""
    return [
        {
            "name": f"kafka.{row.name}",
            "state": "refused" if row.refused else "ignored" if row.ignored else "used",
            "reason": row.refused or row.ignored,
        }
        for row in sorted(PROPERTIES.values(), key=lambda row: row.name)
    ]


def text(width: int) -> str:
    """The reference for people: a paragraph an option, since no table of them fits a terminal."""
    width = min(max(width, 40), _WIDTH_MAX)
    lines = ["Options of the source", ""]
    for row in _options():
        default = "" if row["default"] is None else f", default {row['default']}"
        lines += wrapped(f"{row['name']}  ({row['in']}{default})", width, "", "      ")
        lines += wrapped(row["doc"], width, "    ")
        lines += [*wrapped(f"Values: {row['values']}", width, "    "), ""]
    lines += ["Properties of Kafka's consumer", ""]
    for state, meaning in _STATES.items():
        lines += [*wrapped(meaning, width), ""]
        for name, reason in _in_state(state):
            lines += wrapped(f"{name}: {reason}" if reason else name, width, "    ", "        ")
        lines.append("")
    return "\n".join(lines[:-1]) + "\n"


def _in_state(state: str) -> Iterator[tuple[str, str]]:
    return ((row["name"], row["reason"]) for row in _properties() if row["state"] == state)


def toml() -> str:
    """`conf/keyrange.toml`: every option with its default, commented out."""
    lines = [
        '# Every option of format("keyrange"), with its default. Options without a default show',
        "# what they take. kafka.* properties are passed in the same way: see `keyrange options`.",
        "",
    ]
    for row in _options():
        lines += wrapped(f"{row['doc']} Values: {row['values']}.", 100, "# ")
        lines += [f"# {row['name']} = {json.dumps(row['default'] or '')}", ""]
    return "\n".join(lines)


def wrapped(paragraph: str, width: int, first: str = "", others: str | None = None) -> list[str]:
    """Lines of at most `width`, except where a single word is longer: names are never cut."""
    return textwrap.wrap(
        paragraph,
        width,
        initial_indent=first,
        subsequent_indent=first if others is None else others,
        break_long_words=False,
        break_on_hyphens=False,
    )


def markdown() -> str:
    """`OPTIONS.md`: both tables."""
    lines = [
        "# Options",
        "",
        "Made from the option tables by `keyrange options --output markdown > OPTIONS.md`; a test "
        "holds it to them. Names are not case-sensitive. An option or a property that is not here "
        "is refused with the nearest name, before the first connection.",
        "",
        "## Options of the source",
        "",
        "| option | default | in | values | what it does |",
        "|---|---|---|---|---|",
    ]
    for row in _options():
        default = "" if row["default"] is None else f"`{row['default']}`"
        values, doc = _cell(row["values"]), _cell(row["doc"])
        lines.append(f"| `{row['name']}` | {default} | {row['in']} | {values} | {doc} |")
    lines += [
        "",
        "## Properties of Kafka's consumer",
        "",
        "`kafka.` and the name that Java's consumer has for it. " + " ".join(_STATES.values()),
        "",
        "| property | what becomes of it | why |",
        "|---|---|---|",
    ]
    lines += [
        f"| `{row['name']}` | {row['state']} | {_cell(row['reason'])} |" for row in _properties()
    ]
    return "\n".join(lines) + "\n"


def _cell(words: str) -> str:
    """Text of a table's cell, in which nothing is markup."""
    return "".join(f"\\{each}" if each in "|*<\\" else each for each in words)
