"""`keyrange options`: the option table as a reference: for people, as JSON, TOML or Markdown.

`conf/keyrange.toml` and the table in the docs are this command's output; a test holds them to it.
"""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Annotated, Any

import typer

from keyrange.client_options import PROPERTIES
from keyrange.options import OPTIONS


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
        print(json.dumps({"options": _options(), "kafka": _properties()}))
    elif output is ReferenceFormat.TOML:
        print(toml(), end="")
    elif output is ReferenceFormat.MARKDOWN:
        print(markdown(), end="")
    else:
        from keyrange.cli.render import OutputFormat, make_output

        out = make_output(OutputFormat.TEXT)
        out.table(
            "Options of the source",
            ["option", "default", "in", "values", "what it does"],
            [[r["name"], r["default"], r["in"], r["values"], r["doc"]] for r in _options()],
        )
        out.table(
            "kafka.* properties",
            ["property", "what becomes of it"],
            [[row["name"], row["state"]] for row in _properties()],
        )


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
    return [
        {"name": f"kafka.{row.name}", "state": _state(row.ignored, row.refused)}
        for row in sorted(PROPERTIES.values(), key=lambda row: row.name)
    ]


def _state(ignored: str, refused: str) -> str:
    if refused:
        return f"refused: {refused}"
    return f"ignored: {ignored}" if ignored else "used"


def toml() -> str:
    """`conf/keyrange.toml`: every option with its default, commented out."""
    lines = [
        '# Every option of format("keyrange"), with its default. Options without a default show',
        "# what they take. kafka.* properties are passed in the same way: see `keyrange options`.",
        "",
    ]
    for row in _options():
        lines += [f"# {line}" for line in _wrapped(f"{row['doc']} Values: {row['values']}.")]
        lines += [f"# {row['name']} = {json.dumps(row['default'] or '')}", ""]
    return "\n".join(lines)


def _wrapped(text: str) -> list[str]:
    import textwrap

    return textwrap.wrap(text, 98)


def markdown() -> str:
    """The two tables of the docs."""
    lines = ["| option | default | in | values | what it does |", "|---|---|---|---|---|"]
    for row in _options():
        default = f"`{row['default']}`" if row["default"] is not None else ""
        values = row["values"].replace("|", "\\|")
        lines.append(f"| `{row['name']}` | {default} | {row['in']} | {values} | {row['doc']} |")
    lines += ["", "| `kafka.*` property | what becomes of it |", "|---|---|"]
    lines += [f"| `{row['name']}` | {row['state']} |" for row in _properties()]
    return "\n".join(lines) + "\n"
