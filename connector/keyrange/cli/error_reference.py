"""`keyrange errors`: the error catalogue for people: what a condition means, and what mends it.

`connector/guides/troubleshooting.md` is this command's output; a test holds it to it.
"""

from __future__ import annotations

import shutil
from enum import StrEnum
from typing import Annotated, Any, Final

import typer

from keyrange.cli.render import print_document, print_text
from keyrange.errors import CATALOGUE, Condition, Kind
from keyrange.errors.symptoms import SYMPTOMS, Symptom
from keyrange.text.near_names import did_you_mean, near_names
from keyrange.text.wrapping import wrapped

_WIDTH_MAX: Final = 100
_SYMPTOMS: Final = "Spark's own symptoms"
_CONDITIONS: Final = "Conditions"
_SORTED: Final = [CATALOGUE[name] for name in sorted(CATALOGUE)]
# How many conditions are offered for a name that none has. What somebody remembers of one may be
# little: the nearest ones are better than none.
_NEAR_MAX: Final = 3
_NEAR_LIKENESS: Final = 0.3
# What to do about a kind of error, in the order in which they are looked for at night.
KINDS: Final = {
    Kind.UNAVAILABLE: "The cluster or a store could not be reached, or did not answer. Trying "
    "again may help, and Spark does so for a task.",
    Kind.DATA_LOSS: "Records or stored data that keyrange needs are gone. It has skipped nothing: "
    "find out why first, then choose.",
    Kind.DENIED: "A broker or a server refused credentials or rights, or another driver, member or "
    "consumer has taken over. Trying again does not help.",
    Kind.CORRUPT: "The bytes that keyrange read are not those that were written. It used none of "
    "them.",
    Kind.INVALID: "The caller has to change something: options, a checkpoint, code, the machine.",
}


class ErrorsFormat(StrEnum):
    TEXT = "text"
    JSON = "json"
    MARKDOWN = "markdown"


def _names(incomplete: str) -> list[str]:
    """Conditions that a shell offers."""
    return [each.name for each in _SORTED if each.name.startswith(incomplete.upper())]


def errors(
    condition: Annotated[
        str,
        typer.Argument(
            help="A condition, as an error names it in brackets, or the words it begins with; all "
            "of them without it.",
            autocompletion=_names,
            show_default=False,
        ),
    ] = "",
    output: Annotated[
        ErrorsFormat, typer.Option(help="For people, programs or docs.")
    ] = ErrorsFormat.TEXT,
) -> None:
    """Print the cause and the remedy of an error, and where to look."""
    found = choose(condition)
    if output is ErrorsFormat.JSON:
        print_document("errors/1", {"conditions": [_document(each) for each in found]})
    elif output is ErrorsFormat.MARKDOWN:
        if condition:
            raise typer.BadParameter("--output markdown is the page of all conditions")
        print_text(markdown(), end="")
    else:
        width = shutil.get_terminal_size((_WIDTH_MAX, 24)).columns
        print_text("\n\n".join(text(each, width) for each in found))


def choose(named: str) -> list[Condition]:
    """The conditions of that name, or below it; all where none is named.

    Raises typer.BadParameter (exit code 2) that names near ones.
    """
    wanted = named.strip().strip("[]").upper()
    if wanted in CATALOGUE:
        return [CATALOGUE[wanted]]
    found = [each for each in _SORTED if each.name.startswith(wanted)]
    if not found:
        holding = [each.name for each in _SORTED if wanted in each.name][:_NEAR_MAX]
        near = holding or near_names(wanted, CATALOGUE, _NEAR_MAX, _NEAR_LIKENESS)
        hint = did_you_mean(near)
        raise typer.BadParameter(
            f"there is no condition {named}{hint}; `keyrange errors` without a name has all of them"
        )
    return found


def _document(condition: Condition) -> dict[str, Any]:
    names = ("name", "kind", "retriable", "meaning", "remedy", "look")
    row = {name: getattr(condition, name) for name in names}
    return row | {"kind": condition.kind.value, "guide": condition.guide or None}


def text(condition: Condition, width: int) -> str:
    """A condition for people, in lines of at most `width`."""
    row = _document(condition)
    width = min(max(width, 40), _WIDTH_MAX)
    again = "trying again may help" if row["retriable"] else "trying again does not help"
    lines = wrapped(f"{row['name']}  ({row['kind']}; {again})", width)
    paragraphs = [row["meaning"], f"To mend it: {row['remedy']}.", f"Look at: {row['look']}."]
    if row["guide"]:
        paragraphs.append(f"Guide: {row['guide'].rpartition('/')[2]}")
    for each in paragraphs:
        lines += wrapped(each.replace("`", ""), width, "    ")
    return "\n".join(lines)


def markdown() -> str:
    """`connector/guides/troubleshooting.md`: what Spark prints by itself, and all conditions, by
    kind and then by name."""
    by_kind = {kind: [each for each in _SORTED if each.kind is kind] for kind in KINDS}
    kinds = [
        f"| [{kind.value}](#{_anchor(kind.value)}) | {KINDS[kind]} | {len(conditions)} |"
        for kind, conditions in by_kind.items()
    ]
    paragraphs = [
        "# Troubleshooting",
        f"[{_SYMPTOMS}](#{_anchor(_SYMPTOMS)}) are messages that keyrange has no part in. "
        f"[{_CONDITIONS}](#{_anchor(_CONDITIONS)}) are the errors of keyrange; Spark prints them "
        "below lines of its own, so look for the last name in brackets, or have them raised "
        "without those lines: `keyrange.short_errors(query).awaitTermination()`. What to do when "
        "nothing fails and nothing moves stands in [on-call.md](on-call.md).",
        "Made from the error catalogue by `keyrange errors --output markdown`; a test holds it to "
        "it.",
        f"## {_SYMPTOMS}",
        *map(_symptom, SYMPTOMS),
        f"## {_CONDITIONS}",
        "Every error of keyrange begins with its condition in brackets and ends with its remedy: "
        "`[CONDITION] what happened, where. To mend it: remedy.` Look for the condition on this "
        "page, or ask for it:",
        "```bash\nkeyrange errors COMMITS_FENCED\n```",
        "\n".join(["| kind | what it says | conditions |", "|---|---|---|", *kinds]),
    ]
    for kind, conditions in by_kind.items():
        paragraphs += [f"## {kind.value.capitalize()}", KINDS[kind], *map(_section, conditions)]
    return "\n\n".join(paragraphs) + "\n"


def _section(condition: Condition) -> str:
    again = " Trying again may help." if condition.retriable else ""
    # A remedy is plain text, in which nothing is markup.
    where = [f"- To mend it: {_escaped(condition.remedy)}.", f"- Look at: {condition.look}."]
    if condition.guide:
        where.append(f"- Guide: [{condition.guide.rpartition('/')[2]}]({condition.guide})")
    listed = "\n".join(where)
    return f"### {condition.name}\n\n{condition.meaning}{again}\n\n{listed}"


def _symptom(symptom: Symptom) -> str:
    printed = "\n".join(["```text", *symptom.printed, "```"])
    return f"### {symptom.name}\n\n{printed}\n\n{symptom.cause}\n\n- What to do: {symptom.remedy}"


def _escaped(words: str) -> str:
    # What a remedy has between ` stays code.
    pieces = words.split("`")
    for at in range(0, len(pieces), 2):
        pieces[at] = "".join(f"\\{each}" if each in "*<_|" else each for each in pieces[at])
    return "`".join(pieces)


def _anchor(heading: str) -> str:
    return heading.lower().replace("'", "").replace(" ", "-")
