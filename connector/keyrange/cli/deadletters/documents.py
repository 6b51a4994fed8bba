"""Dead letters as JSON, and as people read them.

Rule of this file: what a record holds is shown as text where a terminal can show it, and never more
of it than was asked for.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from keyrange.cli.render import Columns, print_by, table_of
from keyrange.cli.values import cut, in_json, iso, iso_us, short_key, shown
from keyrange.text.escaping import one_line, plain
from keyrange.text.formats import moment

if TYPE_CHECKING:
    from keyrange.individual_commits.table.dead_letters import DeadLetter, Letter

# What a list shows of an error where it does not go to a terminal.
_ERROR_CHARACTERS: Final = 500
_VALUE_CHARACTERS: Final = 40


def _cause(letter: Letter) -> str:
    return letter.cause.name.lower().replace("_", " ")


def document(letter: Letter) -> dict[str, Any]:
    """A dead letter as JSON, of a record or of a timer."""
    values = {
        "group": letter.group,
        "source_id": letter.source_id,
        "query_id": letter.query_id,
        "batch_id": letter.batch_id,
        **located(letter),
        "topic_id": letter.topic_id or None,
        "key": in_json(letter.key),
        "error": letter.error,
        "frames": list(letter.frames),
        "cause": letter.cause.name.lower(),
        "attempts": letter.attempts,
        "last_at": iso(letter.last_at_ms),
        "written_at": iso(letter.written_at_ms),
        "status": letter.status,
        "replayed_by": letter.replayed_by,
        "replayed_to": letter.replayed_to,
    }
    if record := _record_of(letter):
        values |= {
            "timestamp": iso(record.timestamp_ms),
            "value": in_json(record.value),
            "headers": [[name, in_json(value)] for name, value in record.headers],
            "first_at": iso(record.first_at_ms),
        }
    return values


def _record_of(letter: Letter) -> DeadLetter | None:
    """The letter of a record; None of a timer's."""
    from keyrange.individual_commits.table.dead_letters import DeadLetter

    return letter if isinstance(letter, DeadLetter) else None


def located(letter: Letter) -> dict[str, Any]:
    """The record, or the timer of a key, as JSON."""
    from keyrange.individual_commits.table.dead_letters import DeadLetter

    place = {"topic": letter.topic, "partition": letter.partition}
    if isinstance(letter, DeadLetter):
        return place | {"offset": letter.offset}
    return place | {"key": in_json(letter.key), "timer_at": iso_us(letter.timer_at_us)}


_COLUMNS: Final[Columns] = {
    "tries": lambda each: each.attempts,
    "cause": _cause,
    "given up (UTC)": lambda each: moment(iso(each.written_at_ms)),
    "state": lambda each: each.status,
    "key": lambda each: short_key(each.key),
}
_OF_RECORD: Final[Columns] = {"offset": lambda each: each.offset, **_COLUMNS}
_OF_TIMER: Final[Columns] = {
    "timer (UTC)": lambda each: moment(iso_us(each.timer_at_us)),
    **_COLUMNS,
}


def print_letters(letters: Sequence[Letter], of_timers: bool = False) -> None:
    """Some lines for each: what it is, its error, and how the value of a record begins."""
    below = [[_error(each), _value(each)] for each in letters]
    names = [f"{each.topic}-{each.partition}" for each in letters]
    columns = _OF_TIMER if of_timers else _OF_RECORD
    print_by(names, *table_of(columns, letters), below, "no dead letters")


def _value(letter: Letter) -> str:
    record = _record_of(letter)
    if record is None:
        return ""
    return f"value {cut(' '.join(shown(record.value).split()), _VALUE_CHARACTERS)}"


def _error(letter: Letter) -> str:
    wide = shutil.get_terminal_size().columns if sys.stdout.isatty() else _ERROR_CHARACTERS
    return cut(one_line(" ".join(letter.error.split())), wide - 4)


def _state(letter: Letter) -> str:
    if letter.replayed_by is None:
        return letter.status
    return f"replayed by {letter.replayed_by}, {letter.replayed_to}"


def fields_of(letter: Letter, characters: int) -> dict[str, Any]:
    """All of a dead letter, for people."""
    record = _record_of(letter)
    values = {
        "state": _state(letter),
        "error": plain(letter.error),
        "cause": _cause(letter),
        "attempts": letter.attempts,
        "first at": iso(record.first_at_ms) if record else None,
        "last at": iso(letter.last_at_ms),
        "batch": letter.batch_id,
        "query": letter.query_id,
        "timestamp": iso(record.timestamp_ms) if record else None,
        "key": _bounded(letter.key, characters),
        "value": _bounded(record.value, characters) if record else None,
        "raised at": plain("\n".join(letter.frames)) if letter.frames else None,
    }
    fields = {name: each for name, each in values.items() if each is not None}
    for name, value in record.headers if record else ():
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
