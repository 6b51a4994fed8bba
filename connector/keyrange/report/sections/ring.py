"""The ring of key ranges: who owns which part of the hash space, and what moved at each epoch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import cos, pi, sin
from operator import itemgetter
from typing import Any, Final

from keyrange.model.key_ranges import SPACE
from keyrange.report.chart_shapes import Path, area, axis, bar_axis, bar_marker, plot
from keyrange.report.page_parts import (
    Columns,
    Picture,
    Section,
    Sources,
    Table,
    View,
    partition_name,
    picture,
    table,
)
from keyrange.report.sections.offsets import keys_text
from keyrange.report.wording import (
    Row,
    event_text,
    label,
    moved_text,
    short_label,
    slot_marks,
)
from keyrange.text.formats import counted, moment, number, percent, rounded_span

COLOURS: Final = 8
_PATTERNS: Final = ("", "/", ".", "x", "-", "+", "\\", "|")
# So many partitions are rings in one picture, so many pictures are on a page.
RINGS_MAX: Final = 12
VIEWS_MAX: Final = 24
SECTORS_MAX: Final = 40_000
_INNER: Final = 0.35
# Of a turn: a letter in less room cannot be read.
_LETTER_ROOM: Final = 0.03


@dataclass(frozen=True, slots=True)
class Arc:
    """A part of a partition's hashes (both ends included), whose it is, and whose it was before."""

    range: tuple[int, int]
    slot: str
    before: str | None

    @property
    def turn(self) -> tuple[float, float]:
        """From where to where on the ring, as parts of it."""
        return self.range[0] / SPACE.size, (self.range[1] + 1) / SPACE.size

    @property
    def moved(self) -> bool:
        return self.before is not None and self.before != self.slot


def ring_section(sources: Sources) -> Section:
    """The chapter about members."""
    known = sources.members.document
    if known is None:
        return Section(
            "members", "Members", missing=sources.members.wanted, failures=sources.members.notes
        )
    now, epochs, events = known["list"], known["epochs"], known["history"]
    marks = marks_of(now, epochs)
    age = rounded_span(now["age_ms"])
    facts = [
        ("group", now["group"]),
        ("epoch", number(now["epoch"])),
        ("members", number(len(now["members"]))),
        ("last written", f"{moment(now['at'])} UTC, {age} before this page"),
        ("because", now["reason"]),
    ]
    if now["next"]:
        facts.append(("assigned anew", f"{moment(now['next']['at'])} UTC at the earliest"))
    if now["live"]:
        facts.append(("at the broker", counted(now["live"]["members"], "member")))
    pictures = []
    if views := _views(epochs, events, marks):
        pictures.append(Picture("ring", "Who owns which keys", views, "epoch and partitions", ""))
    happened = _happened(events)
    moved = [row for row in reversed(events) if row["kind"] == "assignment"]
    if moved:
        summary = "The share of the hash space of all partitions that got another owner, by epoch."
        figure = moves_figure(moved)
        pictures.append(
            picture("moves", "Moves between epochs", summary, figure, happened, zooms="")
        )
    return Section(
        "members",
        "Members",
        facts,
        pictures,
        [_members(now, marks), *([] if moved else [happened])],
        failures=sources.members.notes,
    )


def marks_of(now: Row, epochs: Sequence[Row]) -> dict[str, str]:
    """A letter for each slot that owns something or did; who has something gets his letter as the
    command gives it."""
    slots = [each["slot"] for each in now["members"] if each["ranges"]]
    for epoch in epochs:
        slots += [row["slot"] for each in epoch["partitions"] for row in each["ranges"]]
    return slot_marks(slots)


def pieces(after: Sequence[Row], before: Sequence[Row]) -> Iterator[Arc]:
    """The parts of a partition's hash space, cut wherever the owner now or before is another one.
    `before` may be empty: of a partition that is new nothing has moved."""
    at = 0
    for row in after:
        low, high = row["range"]
        while before and at < len(before) and before[at]["range"][1] < low:
            at += 1
        if not before:
            yield Arc((low, high), row["slot"], None)
            continue
        here = at
        while here < len(before) and before[here]["range"][0] <= high:
            begin, end = before[here]["range"]
            yield Arc((max(low, begin), min(high, end)), row["slot"], before[here]["slot"])
            here += 1


def _views(epochs: Sequence[Row], events: Sequence[Row], marks: Mapping[str, str]) -> list[View]:
    """The epochs from the last one back, each by some partitions at a time."""
    found: list[View] = []
    sectors = 0
    reasons = {row["epoch"]: row for row in reversed(events) if row["kind"] == "assignment"}
    for at in range(len(epochs) - 1, -1, -1):
        epoch, before = epochs[at], epochs[at - 1] if at else None
        was = {partition_name(row): row["ranges"] for row in before["partitions"]} if before else {}
        rows = epoch["partitions"]
        for first in range(0, len(rows), RINGS_MAX):
            some = rows[first : first + RINGS_MAX]
            cut = {
                partition_name(row): list(pieces(row["ranges"], was.get(partition_name(row), ())))
                for row in some
            }
            sectors += sum(map(len, cut.values()))
            if found and (sectors > SECTORS_MAX or len(found) == VIEWS_MAX):
                return found
            found.append(_view(epoch, reasons.get(epoch["epoch"]), cut, marks))
    return found


def _view(
    epoch: Row, event: Row | None, cut: Mapping[str, Sequence[Arc]], marks: Mapping[str, str]
) -> View:
    names = list(cut)
    which = names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"
    share = event["moved"] if event is not None else None
    moved = f", {percent(share)} moved" if share is not None else ""
    title = f"epoch {epoch['epoch']}, {moment(epoch['at'])}{moved}: {which}"
    summary = f"Whose the hashes of {which} are as of epoch {epoch['epoch']}"
    if event is not None:
        summary += f" ({event['reason']})"
    summary += ". One ring for each partition, the first outside; the hash 0 is on top, clockwise."
    if any(piece.moved for found in cut.values() for piece in found):
        summary += " What has another owner than in the epoch before has a thick edge."
    return View(
        f"{epoch['epoch']} {which}",
        title,
        summary,
        ring_figure(cut, marks),
        _owners(title, cut, marks),
    )


def _owners(title: str, cut: Mapping[str, Sequence[Arc]], marks: Mapping[str, str]) -> Table:
    rows = [(name, each) for name, found in cut.items() for each in found]
    rows.sort(key=lambda row: not row[1].moved)
    columns = {
        "partition": lambda row: row[0],
        "keys": lambda row: keys_text(row[1].range),
        "mark": lambda row: marks[row[1].slot],
        "owner": lambda row: row[1].slot,
        "moved from": lambda row: row[1].before if row[1].moved else "",
        "hashes": lambda row: "{} to {}".format(*row[1].range),
    }
    return table(title, columns, rows, "keyrange members list")


def ring_figure(cut: Mapping[str, Sequence[Arc]], marks: Mapping[str, str]) -> dict[str, Any]:
    """An area for all that a slot owns, and one for the edges of what moved."""
    order = {slot: at for at, slot in enumerate(marks)}
    thickness = (1 - _INNER) / max(len(cut), 1)
    paths: dict[str, Path] = {}
    shares: dict[str, float] = {}
    edges = Path()
    letters: list[tuple[float, float, str]] = []
    for number_, found in enumerate(cut.values()):
        outer = 1 - number_ * thickness
        inner = outer - 0.9 * thickness
        for each in found:
            begin, end = each.turn
            paths.setdefault(each.slot, Path()).sector(begin, end, inner, outer)
            shares[each.slot] = shares.get(each.slot, 0) + end - begin
            if each.moved:
                edges.sector(begin, end, inner, outer, closed=True)
            if end - begin >= _LETTER_ROOM and thickness >= 0.05:
                letters.append(((begin + end) / 2, (inner + outer) / 2, marks[each.slot]))
    data = [
        _owner(paths[slot], slot, order[slot], marks[slot], shares[slot] / len(cut))
        for slot in sorted(paths, key=order.__getitem__)
    ]
    if edges:
        moved = {"name": "moved in this epoch", "line": {"width": 3, "color": "--ink"}}
        drawn = {"type": "scatter", "mode": "lines", "hoverinfo": "skip"}
        data.append({"x": edges.x, "y": edges.y, **drawn, **moved})
    data.append(
        {
            "type": "scatter",
            "mode": "text",
            "x": [round(radius * sin(2 * pi * turn), 4) for turn, radius, _ in letters],
            "y": [round(radius * cos(2 * pi * turn), 4) for turn, radius, _ in letters],
            "text": [mark for _, _, mark in letters],
            "textfont": {"size": 13, "color": "--onslot"},
            "hoverinfo": "skip",
            "showlegend": False,
        }
    )
    hidden = {"visible": False, "range": [-1.05, 1.05], "fixedrange": True}
    return plot(
        data,
        460,
        xaxis=hidden,
        yaxis=hidden | {"scaleanchor": "x", "constrain": "domain"},
        hovermode="closest",
        dragmode=False,
    )


def _owner(path: Path, slot: str, at: int, mark: str, share: float) -> dict[str, Any]:
    name = short_label(f"{mark} {slot}")
    trace = area(path, name, f"--slot{at % COLOURS}", _PATTERNS[at // COLOURS % len(_PATTERNS)])
    return trace | {
        "hoveron": "fills",
        "hoverinfo": "text",
        "text": f"{label(f'{mark} {slot}')}: {share:.1%} of what is drawn",
    }


def moves_figure(moved: Sequence[Row]) -> dict[str, Any]:
    """A bar for each epoch, the oldest first."""
    bars = {
        "type": "bar",
        "x": [f"{row['epoch']}" for row in moved],
        "y": [1.0 if row["moved"] is None else row["moved"] for row in moved],
        "name": "moved",
        "marker": bar_marker("--done"),
        "customdata": [[moment(row["at"]), label(row["reason"], 120)] for row in moved],
        "hovertemplate": "epoch %{x}: %{y:.1%}<br>%{customdata[0]} UTC"
        "<br>%{customdata[1]}<extra></extra>",
    }
    return plot(
        [bars],
        240,
        xaxis=bar_axis("epoch", len(moved)),
        yaxis=axis("of all hashes moved", tickformat=".0%", range=[0, 1.05]),
        showlegend=False,
    )


def _happened(events: Sequence[Row]) -> Table:
    columns = {
        "time (UTC)": lambda row: moment(row["at"]),
        "what": lambda row: f"row {row['seq']}" if "seq" in row else f"command {row['number']}",
        "epoch": lambda row: number(row.get("epoch")),
        "members": lambda row: number(row.get("members")),
        "moved": moved_text,
        "why and who": event_text,
    }
    return table("What happened, newest first", columns, events, "keyrange members history")


def _members(now: Row, marks: Mapping[str, str]) -> Table:
    columns: Columns = {
        "name": itemgetter("name"),
        "mark": lambda each: marks.get(each["slot"], ""),
        "slot": itemgetter("slot"),
        "host": lambda each: each["host"] or "",
        "executor": lambda each: each["executor"] or "",
        "share": lambda each: percent(each["share"]),
        "ranges": lambda each: number(each["ranges"]),
        "state": _state,
        "seen": _seen,
    }
    return table("Members", columns, now["members"], "keyrange members list")


def _seen(member: Row) -> str:
    return "now" if member["live"] else f"{rounded_span(member['last_seen_ms_ago'])} ago"


def _state(member: Row) -> str:
    here = ", not at the broker" if member["live"] is False else ""
    return f"{member['state'].lower()}{here}"
