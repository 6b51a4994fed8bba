"""A dead letter as JSON, as lines of a table, and field by field.

Rule of this file: what a record holds is shown as text where a terminal can show it, and never more
of it than was asked for.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from keyrange.cli.keys import cut, in_json, short_key, shown
from keyrange.cli.render import print_by, print_text
from keyrange.cli.times import iso
from keyrange.text.escaping import one_line, plain
from keyrange.text.formats import moment

if TYPE_CHECKING:
    from keyrange.individual_commits.table.dead_letters import DeadLetter

# What a list shows of an error where it does not go to a terminal.
_ERROR_CHARACTERS: Final = 500
_VALUE_CHARACTERS: Final = 40


def document(letter: DeadLetter) -> dict[str, Any]:
    """A dead letter as JSON."""
    return {
        "group": letter.group,
        "source_id": letter.source_id,
        "query_id": letter.query_id,
        "batch_id": letter.batch_id,
        **located(letter),
        "topic_id": letter.topic_id or None,
        "timestamp": iso(letter.timestamp_ms),
        "key": in_json(letter.key),
        "value": in_json(letter.value),
        "headers": [[name, in_json(value)] for name, value in letter.headers],
        "error": letter.error,
        "frames": list(letter.frames),
        "cause": letter.cause.name.lower(),
        "attempts": letter.attempts,
        "first_at": iso(letter.first_at_ms),
        "last_at": iso(letter.last_at_ms),
        "written_at": iso(letter.written_at_ms),
        "status": letter.status,
        "replayed_by": letter.replayed_by,
        "replayed_to": letter.replayed_to,
    }


def located(letter: DeadLetter) -> dict[str, Any]:
    return {"topic": letter.topic, "partition": letter.partition, "offset": letter.offset}


def print_letters(letters: Sequence[DeadLetter]) -> None:
    """Three lines for each: what it is, its error, and how its value begins."""
    columns = ["offset", "tries", "cause", "given up (UTC)", "state", "key"]
    rows = [
        [
            str(each.offset),
            str(each.attempts),
            each.cause.name.lower().replace("_", " "),
            moment(iso(each.written_at_ms)),
            each.status,
            short_key(each.key),
        ]
        for each in letters
    ]
    wide = shutil.get_terminal_size().columns if sys.stdout.isatty() else _ERROR_CHARACTERS
    below = [
        [
            cut(one_line(" ".join(each.error.split())), wide - 4),
            f"value {cut(' '.join(shown(each.value).split()), _VALUE_CHARACTERS)}",
        ]
        for each in letters
    ]
    print_by([f"{each.topic}-{each.partition}" for each in letters], columns, rows, below)
    if not letters:
        print_text("no dead letters")


def fields_of(letter: DeadLetter, characters: int) -> dict[str, Any]:
    fields = {
        "state": letter.status
        if letter.replayed_by is None
        else f"replayed by {letter.replayed_by}, {letter.replayed_to}",
        "error": plain(letter.error),
        "cause": letter.cause.name.lower().replace("_", " "),
        "attempts": letter.attempts,
        "first at": iso(letter.first_at_ms),
        "last at": iso(letter.last_at_ms),
        "batch": letter.batch_id,
        "query": letter.query_id,
        "timestamp": iso(letter.timestamp_ms),
        "key": _bounded(letter.key, characters),
        "value": _bounded(letter.value, characters),
    }
    if letter.frames:
        fields["raised at"] = plain("\n".join(letter.frames))
    for name, value in letter.headers:
        # Two headers may have one name.
        label = f"header {shown(name.encode())}"
        while label in fields:
            label += "'"
        fields[label] = _bounded(value, characters)
    return fields


def _bounded(content: bytes | None, most: int) -> str:
    text = shown(content)
    if content is None or len(content) <= most:
        return text
    # A character may be cut in two at the bound: what is left of it is left out.
    is_text = text != f"hex:{content.hex()}"
    begin = content[:most].decode("utf-8", "ignore") if is_text else f"hex:{content[:most].hex()}"
    return f"{begin}... ({len(content):,} bytes)"
