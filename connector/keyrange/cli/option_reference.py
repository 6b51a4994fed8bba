"""`keyrange options`: the option tables as a reference: for people, as JSON, TOML or Markdown.

`conf/keyrange.toml` and `OPTIONS.md` are this command's output; a test holds them to it.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Final

import typer

from keyrange.cli.call_arguments import calls_with
from keyrange.cli.render import print_document, print_text
from keyrange.options import OPTIONS
from keyrange.options.commits import STORAGE_PREFIX
from keyrange.options.kafka_properties import PROPERTIES, property_without_prefix
from keyrange.options.registry import REGISTRY_TLS_PREFIX
from keyrange.options.volume_checks import ADMIN_PREFIX
from keyrange.text.near_names import did_you_mean, near_names
from keyrange.text.wrapping import wrapped

# Lines longer than this are hard to read, on however wide a terminal.
_WIDTH_MAX: Final = 110
_NEAR_MAX: Final = 3
_CALLS_MAX: Final = 5
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


def _spelt() -> dict[str, str]:
    """The names of options and properties, by their small letters."""
    return {row["name"].lower(): row["name"] for row in (*_options(), *_properties())}


def _names(incomplete: str) -> list[str]:
    """Options and properties that a shell offers."""
    begin = incomplete.lower()
    return [name for folded, name in _spelt().items() if folded.startswith(begin)]


def options(
    name: Annotated[
        str,
        typer.Argument(
            help="An option, or a kafka.* property; all of them without it.",
            autocompletion=_names,
            show_default=False,
        ),
    ] = "",
    output: Annotated[
        ReferenceFormat, typer.Option(help="For people, programs, conf/ or docs.")
    ] = ReferenceFormat.TEXT,
) -> None:
    """Print the options of the source, or one of them.

    The list says too how the source treats every kafka.* property.
    """
    if name and output in (ReferenceFormat.TOML, ReferenceFormat.MARKDOWN):
        raise typer.BadParameter(f"--output {output} is the page of all options")
    options, properties = choose(name)
    width = shutil.get_terminal_size((_WIDTH_MAX, 24)).columns
    if output is ReferenceFormat.JSON:
        print_document("options/1", {"options": options, "kafka": properties})
    elif output is ReferenceFormat.TOML:
        print_text(toml(), end="")
    elif output is ReferenceFormat.MARKDOWN:
        print_text(markdown(), end="")
    elif name:
        print_text("\n".join(one_text([*options, *properties][0], width)))
    else:
        print_text(text(width), end="")


def choose(name: str) -> tuple[list[dict[str, Any]], list[dict[str, str]]]:
    """The options and the properties of a name, which is one of either; all where none is named.

    Raises typer.BadParameter (exit code 2) that names near ones, or the calls that have an argument
    of this name.
    """
    options, properties = _options(), _properties()
    if not name:
        return options, properties
    folded = name.strip().lower()
    if folded.startswith(ADMIN_PREFIX):
        # The same properties, for the volume guard's connections.
        folded = f"kafka.{folded.removeprefix(ADMIN_PREFIX)}"
    if folded.startswith(REGISTRY_TLS_PREFIX):
        # And for those to a schema registry.
        folded = f"kafka.ssl.{folded.removeprefix(REGISTRY_TLS_PREFIX)}"
    found = (
        [row for row in options if row["name"].lower() == folded],
        [row for row in properties if row["name"] == folded],
    )
    if any(found):
        return found
    if folded.startswith(STORAGE_PREFIX):
        where = "deploy.md, On S3, says which there are"
        raise typer.BadParameter(f"option '{name}' is passed on to the object store: {where}")
    if calls := calls_with(name):
        shown = ", ".join(calls[:_CALLS_MAX]) + ", ..." * (len(calls) > _CALLS_MAX)
        raise typer.BadParameter(f"'{name}' is no option, but an argument of a call: {shown}")
    spelt = _spelt()
    near = [spelt[each] for each in near_names(folded, spelt, _NEAR_MAX)]
    hint = property_without_prefix(name) or f"does not exist{did_you_mean(near)}"
    raise typer.BadParameter(f"option '{name}' {hint}")


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
        lines += [*one_text(row, width), ""]
    lines += ["Properties of Kafka's consumer", ""]
    for state, meaning in _STATES.items():
        lines += [*wrapped(meaning, width), ""]
        for row in _properties():
            if row["state"] == state:
                said = ": ".join(filter(None, (row["name"], row["reason"])))
                lines += wrapped(said, width, "    ", "        ")
        lines.append("")
    return "\n".join(lines[:-1]) + "\n"


def one_text(row: Mapping[str, Any], width: int) -> list[str]:
    """An option for people, or a property: what it is, in lines of at most `width`."""
    width = min(max(width, 40), _WIDTH_MAX)
    if "state" in row:
        reason = f": {row['reason']}" if row["reason"] else ""
        return wrapped(f"{row['name']} is {row['state']}{reason}", width, "", "    ")
    default = "" if row["default"] is None else f", default {row['default']}"
    return [
        *wrapped(f"{row['name']}  ({row['in']}{default})", width, "", "      "),
        *wrapped(row["doc"], width, "    "),
        *wrapped(f"Values: {row['values']}", width, "    "),
    ]


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


def markdown() -> str:
    """`OPTIONS.md`: both tables."""
    options = ["| option | default | in | values | what it does |", "|---|---|---|---|---|"]
    for row in _options():
        default = "" if row["default"] is None else f"`{row['default']}`"
        values, doc = _cell(row["values"]), _cell(row["doc"])
        options.append(f"| `{row['name']}` | {default} | {row['in']} | {values} | {doc} |")
    properties = ["| property | what becomes of it | why |", "|---|---|---|"]
    for row in _properties():
        properties.append(f"| `{row['name']}` | {row['state']} | {_cell(row['reason'])} |")
    paragraphs = [
        "# Options",
        "Made from the option tables by `keyrange options --output markdown > OPTIONS.md`; a test "
        "holds it to them. Names are not case-sensitive. An option or a property that is not here "
        "is refused with the nearest name, before the first connection.",
        "## Options of the source",
        "\n".join(options),
        "## Properties of Kafka's consumer",
        "`kafka.` and the name that Java's consumer has for it. keyrange accepts a property that "
        "it ignores, for the reason given. A property that it refuses is an error before the first "
        "connection.",
        "\n".join(properties),
    ]
    return "\n\n".join(paragraphs) + "\n"


def _cell(words: str) -> str:
    """Text of a table's cell, in which nothing is markup."""
    return "".join(f"\\{each}" if each in "|*<\\" else each for each in words)
