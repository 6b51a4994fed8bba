"""What others wrote, on its way to a terminal, a log or an error: nothing in it moves a cursor."""

from __future__ import annotations

import copy
import io
import json
import logging
import sys
import unicodedata
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from keyrange.cli import render
from keyrange.cli.render import aligned, make_console, print_record, print_table
from keyrange.cli.watch.view import line, screen
from keyrange.errors import KeyrangeError, error
from keyrange.observing.logs import JsonFormatter, TextFormatter
from keyrange.report.wording import visible
from keyrange.text.escaping import one_line, plain

# Title of the window, clear, C1's form of it, colour by C1, backspace, bell, carriage return,
# delete, right-to-left overrides and isolates, a line separator, half a surrogate pair, a tag.
EVIL = (
    "t\x1b]0;pwned\x07\x1b[2J\x9b2J\x9b31m\x08\r\x7f\x00\u202e\u2066\u2069\u200f\u2028\u0085"
    "\ud800\U000e0041-0"
)
UNSEEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}


def harmless(text: str, kept: str = "\n\t") -> bool:
    return not [each for each in text if each not in kept and unicodedata.category(each) in UNSEEN]


@given(st.text(st.characters()))
def test_nothing_unseen_is_left(text: str) -> None:
    assert harmless(plain(text))
    assert harmless(one_line(text), "")
    assert plain(plain(text)) == plain(text)
    assert one_line(one_line(text)) == one_line(text)


@given(st.text(st.characters(exclude_categories=["Cc", "Cf", "Cs", "Zl", "Zp"])))
def test_what_is_seen_stays_as_it_is(text: str) -> None:
    assert plain(text) == one_line(text) == text


def test_texts_that_differ_look_different_and_breaks_stay_where_they_may() -> None:
    assert plain("a\x1b[2J") == "a\\u001b[2J"
    assert plain("a\n\tb\rc") == "a\n\tb\\u000dc"
    assert one_line("a\nERROR b\r\tc\x00") == "a ERROR b  c\\u0000"
    assert plain("\U000e0041") == "\\U000e0041"


@given(st.dictionaries(st.text(st.characters()), st.text(st.characters())))
def test_json_stays_what_it_was(document: dict[str, str]) -> None:
    assert json.loads(plain(json.dumps(document))) == document


DOCUMENT = {
    "at": "2026-01-01T10:00:00.000Z",
    "name": EVIL,
    "query_id": EVIL,
    "checkpoint": EVIL,
    "state": "working",
    "stuck_since": None,
    "batch": {
        "last_planned": 1,
        "planned_not_committed": False,
        "for_ms": 5,
        "usual_ms": None,
        "done_at": None,
    },
    "rate": {
        "not_moving_since": None,
        "records_per_s": None,
        "offsets_per_s": None,
        "over_ms": 1,
    },
    "lag": {"read": None, "commit": None, "age_ms": None},
    "commits": None,
    "members": None,
    "throttle": None,
    "state_of_keys": None,
    "why": [EVIL],
    "failures": [{"source": "broker", "text": EVIL, "age_ms": None, "waiting_ms": 0}],
    "partitions": [
        {
            "topic": EVIL,
            "partition": 0,
            "read_to": 1,
            "committed": 1,
            "log_end": 2,
            "gone": False,
            "pending": None,
            "read_lag": 1,
            "commit_lag": 1,
        }
    ],
}


def drawn(thing: object) -> None:
    make_console(width=200, force_terminal=True, color_system=None).print(thing)


def _table() -> Table:
    table = Table(title=EVIL)
    table.add_column(EVIL)
    table.add_row(EVIL)
    table.add_row(Text(EVIL))
    return table


def _live() -> None:
    with Live(Text(EVIL), console=make_console(force_terminal=True, color_system=None)) as live:
        live.update(_table(), refresh=True)


def _waiting() -> None:
    with render.waiting() as bars, bars.step(EVIL, 3) as advance:
        advance(1)


def _live_screen() -> None:
    console = make_console(width=100, height=30)
    console.print(screen(console, DOCUMENT))


RENDERERS: dict[str, Callable[[], object]] = {
    "record": lambda: print_record(EVIL, {EVIL: EVIL}),
    "table": lambda: print_table(EVIL, [EVIL], [[EVIL]]),
    "note": lambda: render.note(EVIL),
    "document with a list": lambda: render.print_document("doctor/1", {EVIL: [{EVIL: EVIL}]}),
    "document": lambda: render.print_document("watch/1", {EVIL: EVIL}),
    "failure": lambda: render.say_failure(EVIL, "SASL_AUTHENTICATION_FAILED"),
    "text": lambda: render.print_text(EVIL),
    "by head": lambda: render.print_by([EVIL], [EVIL], [[EVIL]], [[EVIL]]),
    "watch line": lambda: render.print_text(line(DOCUMENT)),
    "watch screen": _live_screen,
    "bars": _waiting,
}


@pytest.mark.parametrize("name", RENDERERS)
@pytest.mark.parametrize("log", ["", "json"])
def test_no_renderer_lets_it_through(
    name: str, log: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KEYRANGE_LOG", log)
    RENDERERS[name]()
    said = "".join(capsys.readouterr())
    assert said or name == "bars"
    assert harmless(said)
    if "json" in name or name == "document":
        json.loads(said)


@pytest.mark.parametrize("thing", [Text(EVIL), EVIL, _table(), Panel(Text(EVIL), title=EVIL)])
def test_whatever_a_console_draws(thing: object, capsys: pytest.CaptureFixture[str]) -> None:
    drawn(thing)
    assert harmless(capsys.readouterr().out)


def test_a_console_still_says_its_own_and_no_more(capsys: pytest.CaptureFixture[str]) -> None:
    """Cursor and colours are the console's. What is left without them is plain."""
    _live()
    said = capsys.readouterr().out
    assert "\x1b[?25l" in said
    for own in ("\x1b[?25l", "\x1b[?25h", "\x1b[2K", "\x1b[1A", "\r"):
        said = said.replace(own, "")
    assert harmless(said)
    make_console(force_terminal=True, color_system="standard").print(Text("x", style="red"))
    assert capsys.readouterr().out == "\x1b[31mx\x1b[0m\n"


def test_bars_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(screen, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    _waiting()
    assert "pwned" in screen.getvalue()
    assert "\x1b]0" not in screen.getvalue()
    assert not {"\x9b", "\u202e", "\x07"} & set(screen.getvalue())


def test_columns_are_as_wide_as_what_is_shown() -> None:
    first, second = aligned(["a", "b"], [["\x1b", "c"]])
    assert (first, second) == ("a       b", "\\u001b  c")


def test_an_error_is_plain_and_in_one_line_also_made_again() -> None:
    failure = error("SASL_AUTHENTICATION_FAILED", f"it says: {EVIL}\nERROR no", broker="h\x1b:1")
    for each in (failure, copy.copy(failure)):
        assert isinstance(each, KeyrangeError)
        assert harmless(str(each), "")
        assert harmless(each.message, "")
        assert harmless("".join(map(str, each.args)), "")
        assert "\\u001b]0;pwned" in str(each)


@pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter()])
def test_a_log_line_is_one_line_and_its_traceback_is_plain(formatter: logging.Formatter) -> None:
    try:
        raise ValueError(EVIL)
    except ValueError:
        made = {"levelname": "ERROR", "msg": "topic %s", "args": (f"{EVIL}\nERROR no",)}
        record = logging.makeLogRecord({**made, "exc_info": sys.exc_info()})
    said = formatter.format(record)
    assert harmless(said)
    assert "ERROR no" in said.split("\n")[0]


def test_the_page_is_plain_too() -> None:
    assert harmless(visible(EVIL), "")
