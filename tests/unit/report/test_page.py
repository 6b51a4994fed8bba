"""The page of a report as text: what is escaped, what may run, what is there without a source."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest

from keyrange.cli.values import iso
from keyrange.report.html import overview_section, page, report
from keyrange.report.page_parts import QueryState, Source
from keyrange.report.wording import escaped, in_script, label, visible
from keyrange.text.formats import rounded_span
from samples.commit_samples import BEGAN_MS
from samples.report_samples import HOSTILE, sources

LIBRARY = "window.Plotly = {};"


class Reader(HTMLParser):
    """The elements of a page, and the texts of its scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.words = ""
        self._in_script = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._in_script = tag == "script"
        if self._in_script:
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._in_script = False

    def handle_data(self, data: str) -> None:
        if self._in_script:
            self.scripts[-1] += data
        else:
            self.words += data

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def hostile() -> Any:
    """A query all of whose texts that come from elsewhere are hostile."""
    letter = {"topic": HOSTILE, "partition": 0, "offset": 5, "written_at": iso(BEGAN_MS)}
    letter |= {"attempts": 5, "cause": "rejected", "key": HOSTILE, "error": HOSTILE}
    letter |= {"status": "dead"}
    volume = {"broker": 1, "log_dir": HOSTILE, "total_bytes": 1000, "used_bytes": 950}
    volume |= {"available_bytes": 50, "available_ratio": 0.05, "violated": True}
    volume |= {"limit_ratio": None, "time_to_full_ms": None, "told": True}
    factor = {"value": 0.0, "why": HOSTILE, "since": iso(BEGAN_MS), "fallback": False}
    known = {"factor": factor, "limit": "", "failure": HOSTILE, "volumes": [volume]}
    ends = [{"topic": HOSTILE, "partition": 0, "offset": 95}]
    member = {"name": HOSTILE, "slot": HOSTILE, "host": HOSTILE, "executor": HOSTILE}
    member |= {"share": 1.0, "ranges": 1, "state": "ASSIGNED", "live": None}
    member |= {"last_seen_ms_ago": 5}
    owned = {"topic": HOSTILE, "partition": 0, "ranges": [{"range": [0, 2**63 - 1],
             "slot": HOSTILE}]}  # fmt: skip
    listed = {"group": HOSTILE, "epoch": 1, "members": [member], "at": iso(BEGAN_MS), "age_ms": 1}
    listed |= {"reason": HOSTILE, "next": None, "live": None, "partitions": [owned]}
    event = {"kind": "assignment", "epoch": 1, "seq": 1, "at": iso(BEGAN_MS), "moved": None}
    event |= {"reason": HOSTILE, "members": 1, "changed": [], "left": [HOSTILE]}
    made = sources(
        letters=Source([letter]),
        volumes=Source(known),
        ends=Source({"at": iso(BEGAN_MS), "ends": ends}),
        members=Source({"list": listed, "history": [event], "epochs": [listed]}),
        commits=Source(failure=HOSTILE),
        progress=Source([], remarks=(HOSTILE,)),
    )
    for row in made.checkpoint["positions"]:
        row["topic"] = HOSTILE
    return made


def test_hostile_texts_make_no_element_and_end_no_script() -> None:
    read = Reader(page(report(hostile()), LIBRARY))
    assert [each for each in read.tags if each[0] in ("img", "b", "iframe", "svg")] == []
    assert [name for _, attributes in read.tags for name in attributes if name[:2] == "on"] == []
    data, library, _ = read.scripts
    assert library == LIBRARY
    assert "<" not in data
    assert visible(HOSTILE) in read.words


def test_hostile_texts_are_no_markup_of_a_figure() -> None:
    """Plotly reads tags and entities in texts, and %{...} in templates."""
    pictures = json.dumps(report(hostile())["pictures"])
    figures = [view["figure"] for each in json.loads(pictures).values() for view in each["views"]]
    texts = [text for figure in figures for text in strings(figure)]
    found = [text for text in texts if "ran=" in text or "img" in text]
    assert len(found) > 5
    for text in found:
        assert not re.search(r"<(?!br>|extra>|/extra>)", text)
        assert "%{x}" not in text
    assert label("<b>&lt;%{x}") == "&lt;b&gt;&amp;lt;%\uff5bx}"


def strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for each in value.values() for text in strings(each)]
    if isinstance(value, list):
        return [text for each in value for text in strings(each)]
    return []


def test_only_the_scripts_of_the_page_may_run() -> None:
    read = Reader(page(report(sources()), LIBRARY))
    [policy] = [
        each["content"]
        for each in read.named("meta")
        if each.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policy is not None
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == "'none'"
    assert rules["connect-src"] == "'none'"
    data, *scripts = read.scripts
    allowed = [
        f"'sha256-{base64.b64encode(hashlib.sha256(each.encode()).digest()).decode()}'"
        for each in scripts
    ]
    assert rules["script-src"].split() == allowed
    assert [each.get("type") for each in read.named("script")] == ["application/json", None, None]
    assert json.loads(data)["refresh_ms"] == 0
    assert not [each for tag, each in read.tags if "src" in each]
    assert [each["href"] for each in read.named("link")] == ["data:,"]


def test_a_served_page_may_ask_its_own_server_only() -> None:
    text = page(report(sources()), LIBRARY, "v1", 5_000)
    assert "connect-src 'self'" in text
    assert json.loads(Reader(text).scripts[0])["version"] == "v1"


def test_what_is_not_there_says_which_option_brings_it() -> None:
    words = Reader(page(report(sources()), LIBRARY)).words
    for option in ("progress", "ends", "plans", "commits", "members", "letters", "volumes"):
        assert f"--{option}" in words


def test_an_option_in_a_sentence_is_not_broken_at_its_hyphens() -> None:
    made = sources(members=Source(missing="Give it with --members TABLE, or a--b <--x>."))
    text = page(report(made), LIBRARY)
    assert "Give it with <code>--members</code> TABLE, or a--b &lt;--x&gt;." in text


def test_a_source_that_failed_says_why_and_since_when() -> None:
    failed = Source(failure="[COMMITS_UNREADABLE] it is <gone>", since=iso(BEGAN_MS))
    content = report(sources(members=failed))
    [html] = [each["html"] for each in content["sections"] if each["name"] == "members"]
    said = "Not read (since 2026-05-28 20:26:40 UTC): [COMMITS_UNREADABLE] it is &lt;gone&gt;"
    assert said in html


def test_the_page_can_be_walked_by_keyboard_and_read_aloud() -> None:
    read = Reader(page(report(hostile()), LIBRARY))
    assert read.named("a")[0] == {"class": "skip", "href": "#main"}
    assert read.named("html")[0]["lang"] == "en"
    ids = [each["id"] for _, each in read.tags if each.get("id")]
    assert len(ids) == len(set(ids))
    for plot in (each for each in read.named("div") if each.get("class") == "plot"):
        assert {plot["aria-labelledby"], plot["aria-describedby"]} <= set(ids)
    plots = [each for each in read.named("div") if each.get("class") == "plot"]
    assert len(plots) >= 5
    assert len(read.named("details")) == len(plots)
    for each in read.named("button"):
        assert each["aria-label"]
    levels = [tag for tag, _ in read.tags if tag in ("h1", "h2", "h3")]
    assert levels.count("h1") == 1
    assert levels[:2] == ["h1", "h2"]
    for table in (each for each in read.named("div") if each.get("class") == "scroll"):
        assert table["tabindex"] == "0"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\nb\x00\x1b[2Jc", r"a b\u0000\u001b[2Jc"),
        ("left\u202eright", r"left\u202eright"),
        ("x" * 700, "x" * 599 + "…"),
    ],
)
def test_what_cannot_be_seen_is_left_out(text: str, expected: str) -> None:
    assert visible(text) == expected
    assert escaped("'\"<") == "&#x27;&quot;&lt;"


def test_json_in_a_script_reads_the_same() -> None:
    document = {"a": [HOSTILE, None, 1.5, "\u2028"]}
    text = in_script(document)
    assert json.loads(text) == document
    assert not re.search("[<>&\u2028]", text)
    with pytest.raises(ValueError, match="JSON"):
        in_script(float("nan"))


@pytest.mark.parametrize(
    ("ms", "expected"), [(0, "0 ms"), (999, "999 ms"), (90_000, "1.5 min"), (-5, "0 ms")]
)
def test_spans(ms: int, expected: str) -> None:
    assert rounded_span(ms) == expected


def test_the_page_begins_with_the_state_why_and_what_to_do() -> None:
    state = QueryState(
        text="stuck since <noon>",
        level="bad",
        causes=["the volume guard lets in 0%: <d> is full", "no batch was planned"],
        advice="Free space.",
        command="keyrange volumes show --option 'a=<b>'",
        facts=[("batch", "batch 7 done"), ("lag", "5 (now)")],
    )
    made = replace(sources(letters=Source([])), state=state)
    text = page(report(made), LIBRARY)
    begin = text.index('<div class="state bad"><p class="now">stuck since &lt;noon&gt;</p>')
    assert begin < text.index('<div class="picture"')
    read = Reader(text)
    parts = ["stuck since", "Why", "<d> is full", "no batch was planned", "What to do"]
    parts += ["Free space.", "keyrange volumes show --option 'a=<b>'"]
    places = [read.words.index(each) for each in parts]
    assert places == sorted(places)
    assert dict(overview_section(made).facts) == {
        "batch": "batch 7 done",
        "lag": "5 (now)",
        "partitions": "2",
        "dead letters": "none",
    }
    assert '<dl class="lines"><div><dt>batch</dt><dd>batch 7 done</dd></div>' in text
    calm = page(report(sources()), LIBRARY)
    assert '<div class="state good"><p class="now">caught up</p>' in calm
    assert "<pre>" not in calm
