"""`keyrange options`: the option tables as a reference: for people, as JSON, TOML or Markdown.

`conf/keyrange.toml` and `OPTIONS.md` are this command's output; a test holds them to it.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Annotated, Any, Final

import typer

from keyrange.cli.call_arguments import calls_with
from keyrange.cli.render import print_document, print_text
from keyrange.consumer.settings import ConsumerSettings
from keyrange.options import OPTIONS
from keyrange.options.commits import STORAGE_PREFIX
from keyrange.options.kafka_properties import PROPERTIES, property_without_prefix
from keyrange.options.option import Option, rows_of
from keyrange.options.producer_properties import PRODUCER_PROPERTIES
from keyrange.options.registry import REGISTRY_TLS_PREFIX
from keyrange.options.topic_options import TOPIC_OPTIONS
from keyrange.options.value_parsers import Property
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


# What takes options beside the source, and those that the source does not have: the consumer, and
# topics that rows are written to (`keyrange.Topic(options=...)`).
_BESIDE: Final = {
    "consumer": [row for row in rows_of(ConsumerSettings) if row not in OPTIONS],
    "topic": [row for row in TOPIC_OPTIONS if row.name not in {each.name for each in OPTIONS}],
}
# Those about connections are rows of the consumer's properties.
_OF_PRODUCERS: Final = [
    row for name, row in PRODUCER_PROPERTIES.items() if PROPERTIES.get(name) is not row
]
_PROPERTIES_OF: Final[dict[str, Iterable[Property]]] = {
    "Properties of Kafka's consumer": PROPERTIES.values(),
    "Properties of Kafka's producer, of a topic that rows are written to": _OF_PRODUCERS,
}


def _spelt() -> dict[str, str]:
    """The names of options and properties, by their small letters."""
    rows = (*_options(), *_beside(), *_properties(), *_properties(_OF_PRODUCERS))
    return {row["name"].lower(): row["name"] for row in rows}


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
    options, properties, producers = choose(name)
    width = shutil.get_terminal_size((_WIDTH_MAX, 24)).columns
    if output is ReferenceFormat.JSON:
        told = {"options": options, "kafka": properties, "kafkaProducer": producers}
        print_document("options/1", told)
    elif output is ReferenceFormat.TOML:
        print_text(toml(), end="")
    elif output is ReferenceFormat.MARKDOWN:
        print_text(markdown(), end="")
    elif name:
        found = (one_text(row, width) for row in (*options, *properties, *producers))
        print_text("\n".join(line for lines in found for line in lines))
    else:
        print_text(text(width), end="")


_Rows = list[dict[str, Any]]


def choose(name: str) -> tuple[_Rows, _Rows, _Rows]:
    """The options, the consumer's properties and the producer's of a name, which is one of any of
    these; all where none is named.

    Raises typer.BadParameter (exit code 2) that names near ones, or the calls that have an argument
    of this name.
    """
    every = ([*_options(), *_beside()], _properties(), _properties(_OF_PRODUCERS))
    if not name:
        return every
    folded = name.strip().lower()
    if folded.startswith(ADMIN_PREFIX):
        # The same properties, for the volume guard's connections.
        folded = f"kafka.{folded.removeprefix(ADMIN_PREFIX)}"
    if folded.startswith(REGISTRY_TLS_PREFIX):
        # And for those to a schema registry.
        folded = f"kafka.ssl.{folded.removeprefix(REGISTRY_TLS_PREFIX)}"
    options, consumers, producers = (
        [row for row in rows if row["name"].lower() == folded] for rows in every
    )
    if options or consumers or producers:
        return options, consumers, producers
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


def _options() -> _Rows:
    return [_option(row, ", ".join(row.modes)) for row in OPTIONS]


def _beside() -> _Rows:
    return [_option(row, of) for of, rows in _BESIDE.items() for row in rows]


def _option(row: Option, acts_in: str) -> dict[str, Any]:
    return {
        "name": row.name,
        "default": row.default,
        "in": acts_in,
        "values": row.values,
        "doc": row.doc,
    }


def _properties(rows: Iterable[Property] = PROPERTIES.values()) -> _Rows:
    """Each property, whether it is used, ignored or refused, and why where it is not used."""
    return [
        {
            "name": f"kafka.{row.name}",
            "state": "refused" if row.refused else "ignored" if row.ignored else "used",
            "reason": row.refused or row.ignored,
        }
        for row in sorted(rows, key=lambda row: row.name)
    ]


def text(width: int) -> str:
    """The reference for people: a paragraph an option, since no table of them fits a terminal."""
    width = min(max(width, 40), _WIDTH_MAX)
    lines = ["Options of the source", ""]
    for row in _options():
        lines += [*one_text(row, width), ""]
    title = "Options of keyrange.Consumer, and of a topic that rows are written to"
    lines += [*wrapped(title, width), ""]
    for row in _beside():
        lines += [*one_text(row, width), ""]
    for title, rows in _PROPERTIES_OF.items():
        lines += [*wrapped(title, width), ""]
        for state, meaning in _STATES.items():
            lines += [*wrapped(meaning, width), ""]
            for row in _properties(rows):
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
    """`OPTIONS.md`: all tables."""
    paragraphs = [
        "# Options",
        "Made from the option tables by `keyrange options --output markdown > OPTIONS.md`; a test "
        "holds it to them. Names are not case-sensitive. An option or a property that is not here "
        "is refused with the nearest name, before the first connection.",
        "## Options of the source",
        _option_table(_options()),
        "## Options beside those of the source",
        "The consumer takes options of the source too ([consumer.md](connector/guides/consumer.md))"
        ", and a topic those of schemas and registries ([topics.md](connector/guides/topics.md)).",
        _option_table(_beside()),
        "## Properties of Kafka's consumer",
        "`kafka.` and the name that Java's consumer has for it. keyrange accepts a property that "
        "it ignores, for the reason given. A property that it refuses is an error before the first "
        "connection.",
        _property_table(PROPERTIES.values()),
        "## Properties of Kafka's producer",
        "Of a topic that rows are written to (`keyrange.Topic(options=...)`, `into_topic`), of a "
        "`deadLetterTopic` and of the consumer's transactions, beside those above that are about "
        "connections.",
        _property_table(_OF_PRODUCERS),
    ]
    return "\n\n".join(paragraphs) + "\n"


def _option_table(rows: _Rows) -> str:
    lines = ["| option | default | in | values | what it does |", "|---|---|---|---|---|"]
    for row in rows:
        default = "" if row["default"] is None else f"`{row['default']}`"
        values, doc = _cell(row["values"]), _cell(row["doc"])
        lines.append(f"| `{row['name']}` | {default} | {row['in']} | {values} | {doc} |")
    return "\n".join(lines)


def _property_table(rows: Iterable[Property]) -> str:
    lines = ["| property | what becomes of it | why |", "|---|---|---|"]
    for row in _properties(rows):
        lines.append(f"| `{row['name']}` | {row['state']} | {_cell(row['reason'])} |")
    return "\n".join(lines)


def _cell(words: str) -> str:
    """Text of a table's cell, in which nothing is markup."""
    return "".join(f"\\{each}" if each in "|*<\\" else each for each in words)
