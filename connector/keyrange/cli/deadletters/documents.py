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
    from keyrange.individual_commits.table.dead_letters import DeadLetter, Letter, TimerLetter

# What a list shows of an error where it does not go to a terminal.
_ERROR_CHARACTERS: Final = 500
_VALUE_CHARACTERS: Final = 40


def _cause(letter: Letter) -> str:
    return letter.cause.name.lower().replace("_", " ")


def document(letter: DeadLetter) -> dict[str, Any]:
    """A dead letter as JSON."""
    return {
        **_batch_of(letter),
        **located(letter),
        "topic_id": letter.topic_id or None,
        "timestamp": iso(letter.timestamp_ms),
        "key": in_json(letter.key),
        "value": in_json(letter.value),
        "headers": [[name, in_json(value)] for name, value in letter.headers],
        **_failure_of(letter),
        "first_at": iso(letter.first_at_ms),
        "last_at": iso(letter.last_at_ms),
        "written_at": iso(letter.written_at_ms),
        "status": letter.status,
        "replayed_by": letter.replayed_by,
        "replayed_to": letter.replayed_to,
    }


def _batch_of(letter: Letter) -> dict[str, Any]:
    return {
        "group": letter.group,
        "source_id": letter.source_id,
        "query_id": letter.query_id,
        "batch_id": letter.batch_id,
    }


def _failure_of(letter: Letter) -> dict[str, Any]:
    return {
        "error": letter.error,
        "frames": list(letter.frames),
        "cause": letter.cause.name.lower(),
        "attempts": letter.attempts,
    }


def located(letter: DeadLetter) -> dict[str, Any]:
    return {"topic": letter.topic, "partition": letter.partition, "offset": letter.offset}


def timer_located(letter: TimerLetter) -> dict[str, Any]:
    place = {"topic": letter.topic, "partition": letter.partition}
    return place | {"key": in_json(letter.key), "timer_at": iso_us(letter.timer_at_us)}


def timer_document(letter: TimerLetter) -> dict[str, Any]:
    """A timer that was given up, as JSON."""
    return {
        **_batch_of(letter),
        **timer_located(letter),
        "topic_id": letter.topic_id or None,
        **_failure_of(letter),
        "last_at": iso(letter.last_at_ms),
        "written_at": iso(letter.written_at_ms),
        "status": letter.status,
        "replayed_by": letter.replayed_by,
        "replayed_to": letter.replayed_to,
    }


_TIMERS: Final[Columns] = {
    "timer (UTC)": lambda each: moment(iso_us(each.timer_at_us)),
    "tries": lambda each: each.attempts,
    "cause": _cause,
    "given up (UTC)": lambda each: moment(iso(each.written_at_ms)),
    "state": lambda each: each.status,
    "key": lambda each: short_key(each.key),
}
_LETTERS: Final[Columns] = {
    "offset": lambda each: each.offset,
    "tries": lambda each: each.attempts,
    "cause": _cause,
    "given up (UTC)": lambda each: moment(iso(each.written_at_ms)),
    "state": lambda each: each.status,
    "key": lambda each: short_key(each.key),
}


def print_letters(letters: Sequence[DeadLetter]) -> None:
    """Three lines for each: what it is, its error, and how its value begins."""
    below = [
        [_error(each), f"value {cut(' '.join(shown(each.value).split()), _VALUE_CHARACTERS)}"]
        for each in letters
    ]
    names = [f"{each.topic}-{each.partition}" for each in letters]
    print_by(names, *table_of(_LETTERS, letters), below, "no dead letters")


def print_timers(letters: Sequence[TimerLetter]) -> None:
    """Two lines for each timer that was given up: what it is, and its error."""
    below = [[_error(each)] for each in letters]
    names = [f"{each.topic}-{each.partition}" for each in letters]
    print_by(names, *table_of(_TIMERS, letters), below, "no timers")


def _error(letter: Letter) -> str:
    wide = shutil.get_terminal_size().columns if sys.stdout.isatty() else _ERROR_CHARACTERS
    return cut(one_line(" ".join(letter.error.split())), wide - 4)


def _state(letter: Letter) -> str:
    if letter.replayed_by is None:
        return letter.status
    return f"replayed by {letter.replayed_by}, {letter.replayed_to}"


def fields_of(letter: DeadLetter, characters: int) -> dict[str, Any]:
    fields = {
        "state": _state(letter),
        "error": plain(letter.error),
        "cause": _cause(letter),
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


def fields_of_timer(letter: TimerLetter, characters: int) -> dict[str, Any]:
    fields = {
        "state": _state(letter),
        "error": plain(letter.error),
        "cause": _cause(letter),
        "attempts": letter.attempts,
        "last at": iso(letter.last_at_ms),
        "batch": letter.batch_id,
        "query": letter.query_id,
        "key": _bounded(letter.key, characters),
    }
    if letter.frames:
        fields["raised at"] = plain("\n".join(letter.frames))
    return fields


def _bounded(content: bytes | None, most: int) -> str:
    text = shown(content)
    if content is None or len(content) <= most:
        return text
    # A character may be cut in two at the bound: what is left of it is left out.
    is_text = text != f"hex:{content.hex()}"
    begin = content[:most].decode("utf-8", "ignore") if is_text else f"hex:{content[:most].hex()}"
    return f"{begin}... ({len(content):,} bytes)"
