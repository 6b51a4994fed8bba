"""What documents say, in the words of pages and terminals; and texts that others wrote, fit for a
page: names of topics, keys, errors.

In HTML they are escaped. In a figure plotly reads a few tags and entities by itself, so they are
escaped there as well. Neither may hold what a reader cannot see.
"""

from __future__ import annotations

import html
import json
import string
from collections.abc import Iterable, Mapping
from typing import Any, Final

from keyrange.observing.model.state_words import time_words
from keyrange.text.escaping import one_line
from keyrange.text.formats import counted, percent, short_span, size_text

_SHORT_CHARACTERS: Final = 60
_TEXT_CHARACTERS: Final = 600
_MARKS: Final = string.ascii_uppercase + string.ascii_lowercase + string.digits
OTHERS: Final = "*"

Row = Mapping[str, Any]


def visible(text: str, most: int = _TEXT_CHARACTERS) -> str:
    """A text in one line, of what a reader sees."""
    plain = " ".join(one_line(text).split())
    return plain if len(plain) <= most else f"{plain[: most - 1]}…"


def escaped(text: str, most: int = _TEXT_CHARACTERS) -> str:
    """A text for HTML, in elements and in quoted attributes."""
    return html.escape(visible(text, most))


def label(text: str, most: int = _TEXT_CHARACTERS) -> str:
    """A text for a figure: plotly reads no tag in it, no entity and no template."""
    return _inert(visible(text, most))


def short_label(text: str) -> str:
    """The same for an axis or a legend, where a long one leaves no room: its ends tell it apart."""
    plain = visible(text)
    if len(plain) > _SHORT_CHARACTERS:
        half = _SHORT_CHARACTERS // 2
        plain = f"{plain[: half - 1]}…{plain[-half:]}"
    return _inert(plain)


def _inert(plain: str) -> str:
    # Of a template `%{...}` the brace is what matters: it is written as another character.
    return html.escape(plain.replace("%{", "%\uff5b"), quote=False)


def in_script(document: Any) -> str:
    """JSON that cannot end the script element that it stands in."""
    text = json.dumps(document, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def slot_marks(slots: Iterable[str]) -> dict[str, str]:
    """A letter for each slot; those that there are none for share one."""
    found = dict.fromkeys(slots)
    return {slot: _MARKS[at] if at < len(_MARKS) else OTHERS for at, slot in enumerate(found)}


def command_text(row: Row) -> str:
    """What somebody asked of the driver, and why."""
    asked = " ".join(str(each) for each in (row["action"], row["name"], row["members"]) if each)
    return f"{asked}, by {row['who']}: {row['why']}"


def event_text(row: Row) -> str:
    """Why the driver wrote a row, or what it was asked for, and what it changed of which member."""
    if row["kind"] == "command":
        return command_text(row)
    changed = [f"{each['name']} {each['state'].lower()}" for each in row["changed"]]
    changed += [f"{name} left" for name in row["left"]]
    return "; ".join(filter(None, (row["reason"], ", ".join(changed))))


def moved_text(row: Row) -> str:
    """The share of the hash space that an event gave another owner."""
    if row["kind"] != "assignment":
        return ""
    return percent(row["moved"]) or "all"


def factor_text(factor: Row) -> str:
    """A throttle factor."""
    return f"{factor['value']:g}{', the fallback' if factor['fallback'] else ''}"


def volume_state(row: Row) -> str:
    """What there is to say of a volume beside how full it is."""
    words = ["at the limit"] if row["violated"] else []
    if not row["violated"] and row.get("recovered") is False:
        words.append("not recovered")
    return ", ".join([*words, *([] if row["told"] else ["as it was told before"])])


def state_of_keys_text(row: Row) -> str:
    """How much state of keys there is, and what the last batch did, as far as it is known."""
    words = []
    if all(row.get(name) is not None for name in ("rows", "bytes", "runs")):
        words.append(f"{row['rows']:,.0f} rows of state, {size_text(row['bytes'])}")
        words.append(counted(round(row["runs"]), "run"))
    if row.get("changed") is not None:
        found = f"{row['found']:,} of {row['looked_up']:,} keys found"
        words.append(f"last batch: {found}, {row['changed']:,} changed")
        if row["restored_bytes"]:
            took = short_span(row["restored_ms"])
            words.append(f"{size_text(row['restored_bytes'])} restored in {took}")
    words += time_words(row)
    if row.get("watermark_lag_seconds") is not None:
        lag = short_span(round(row["watermark_lag_seconds"] * 1000))
        words.append(f"watermark {lag} behind the clock")
    for name, what in (("records", "pending records"), ("retry", "timers that failed")):
        if partitions := row.get(f"timers_await_{name}"):
            words.append(f"timers of {counted(round(partitions), 'partition')} wait for {what}")
    return ", ".join(words)
