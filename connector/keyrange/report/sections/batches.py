"""The batches by time: rows per second, duration, records, bytes, read amplification, and what was
read by its owners."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from statistics import median
from typing import Any, Final

from keyrange.report.chart_shapes import axis, bar_axis, bar_marker, count_axis, plot, time_axis
from keyrange.report.page_parts import Columns, Picture, Section, Sources, Table, picture, table
from keyrange.report.wording import Row
from keyrange.text.formats import moment, number, percent, rounded_span, size_text

_ROW_HEIGHT: Final = 115
# Of what lies between two batches usually: a bar is no longer, though the query paused behind it.
_LONG_TIMES: Final = 3
# A bar is never thinner than this part of all that is drawn, and there is room for so many.
_THIN: Final = 1 / 400
_FEW: Final = 12
_SECOND_MS: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A batch as far as it is known. `bytes` are those of the log by a sample, `amplification` is
    what brokers send for one of them, `own` the share of its portions that their owners read."""

    number: int
    at: str
    at_ms: int
    state: str
    offsets: int | None
    records: int | None = None
    duration_ms: int | None = None
    bytes: int | None = None
    amplification: float | None = None
    own: float | None = None

    @property
    def rows_per_s(self) -> float | None:
        """How fast it was worked on, from when it was planned until it was done."""
        if self.records is None or self.duration_ms is None:
            return None
        return self.records / max(self.duration_ms, 1) * 1000


@dataclass(frozen=True, slots=True)
class Measure:
    """One row of the picture: a value of each batch, how it is written, and how its axis is."""

    title: str
    of: Callable[[Batch], float | None]
    text: Callable[[Any], str]
    axis: Callable[[str, float], dict[str, Any]]
    colour: str
    kind: str = "bar"

    def told(self, batch: Batch) -> str:
        value = self.of(batch)
        return "" if value is None else self.text(value)

    def is_drawn(self, found: Sequence[Batch]) -> bool:
        """Bars of nothing are no picture; that a share is 0 is one."""
        values = [self.of(batch) for batch in found]
        return any(values) if self.kind == "bar" else any(each is not None for each in values)


def _counts(title: str, most: float) -> dict[str, Any]:
    return count_axis(title, most, _ROW_TICKS)


def _figures(title: str, _: float, **more: Any) -> dict[str, Any]:
    return axis(title, **{"rangemode": "tozero", "nticks": _ROW_TICKS, "tickformat": "~g", **more})


_ROW_TICKS: Final = 4
MEASURES: Final = (
    Measure(
        "rows per second", lambda each: each.rows_per_s, lambda n: f"{n:,.0f}", _counts, "--done"
    ),
    Measure(
        "duration, s",
        lambda each: None if each.duration_ms is None else each.duration_ms / 1000,
        lambda seconds: rounded_span(seconds * 1000),
        _figures,
        "--behind",
    ),
    Measure("records", lambda each: each.records, number, _counts, "--committed"),
    Measure("offsets", lambda each: each.offsets, number, _counts, "--flight"),
    Measure(
        "bytes (sampled)",
        lambda each: each.bytes,
        size_text,
        partial(_figures, tickformat="~s", ticksuffix="B"),
        "--line2",
    ),
    Measure(
        "read amplification", lambda each: each.amplification, number, _figures, "--line4", "line"
    ),
    Measure(
        "read by owners",
        lambda each: each.own,
        percent,
        partial(_figures, tickformat=".0%", range=[0, 1.08]),
        "--line5",
        "line",
    ),
)


def batches_of(sources: Sources) -> list[Batch]:
    """The batches that checkpoint or progress know of, oldest first."""
    planned = {row["batch"]: row for row in sources.history}
    told = {row["batch"]: row for row in sources.progress.document or ()}
    plans = sources.plans.document or {}
    found = []
    for at in sorted(planned.keys() | told.keys()):
        row, event = planned.get(at), told.get(at)
        known = row if row is not None else told[at]
        size, amplification = _cost(event, told.get(at + 1), plans.get(at))
        found.append(
            Batch(
                number=at,
                at=known["at"],
                at_ms=known["at_ms"],
                state=row["state"] if row is not None else "committed",
                offsets=row["offsets"] if row is not None else event and event["offsets"],
                records=event and event["records"],
                duration_ms=event and event["duration_ms"],
                bytes=size,
                amplification=amplification,
                own=_own_share(_later(event, told.get(at + 1), "members")),
            )
        )
    return found


def _later(event: Row | None, following: Row | None, part: str) -> Row:
    """What the planning process says of a batch: it stands in the progress of the one behind it,
    of the same run."""
    if event is None or following is None or event["run_id"] != following["run_id"]:
        return {}
    found: Row = following[part]
    return found


def _cost(
    event: Row | None, following: Row | None, plan: Row | None
) -> tuple[int | None, float | None]:
    """The bytes of a batch and its read amplification, as the query planned them; else as a plan of
    its offsets has them."""
    said = _later(event, following, "plan")
    # A plan of the same number is that of an earlier batch.
    is_new = event is not None and said.get("number") != event["plan"].get("number")
    size, fetched = _number(said, "bytes"), _number(said, "fetchedBytes")
    if said and is_new and size:
        return round(size), None if fetched is None else fetched / size
    if plan is not None:
        return plan["bytes"], plan["read_amplification"]["one_executor"]
    return None, None


def _own_share(members: Row) -> float | None:
    """Of the portions of a bound batch, those that their owners read."""
    own = _number(members, "ownPortions") or 0
    others = ("foreign", "unowned", "standby")
    total = own + sum(_number(members, f"{whose}Portions") or 0 for whose in others)
    return own / total if total else None


def _number(part: Row, name: str) -> float | None:
    value = part.get(name)
    return value if isinstance(value, int | float) and value >= 0 else None


def batches_section(sources: Sources) -> Section:
    """The chapter about batches."""
    found = batches_of(sources)
    last = sources.checkpoint
    unfinished = last["planned_not_committed"]
    facts = [
        ("last batch planned", number(last["last_planned"])),
        ("last batch committed", number(last["last_committed"]) or "none"),
        ("planned, not committed", ", ".join(map(str, unfinished)) or "none"),
    ]
    timed = [each.duration_ms for each in found if each.duration_ms is not None]
    if timed:
        facts.append(("duration, median", rounded_span(median(timed))))
    rates = [each.rows_per_s for each in found if each.rows_per_s is not None]
    if rates:
        facts.append(("rows per second, median", number(round(median(rates)))))
    pictures = [_picture(found)] if drawn(found) else []
    tables, notes = [], []
    if found and not pictures:
        tables.append(_table(found))
    commits = sources.commits.document
    events = [row for row in commits["history"] if row["batch_id"] is not None] if commits else []
    if any(row[name] for row in events for name, *_ in _NOT_DONE):
        pictures.append(_verdicts(events))
    elif events:
        notes.append("Every record of these batches was done when it was delivered first.")
    missing = sources.progress.wanted
    if sources.plans.missing and all(each.bytes is None for each in found):
        missing.append(sources.plans.missing)
    return Section("batches", "Batches", facts, pictures, tables, notes, missing)


def drawn(found: Sequence[Batch]) -> list[Measure]:
    """The measures that there is something to draw of."""
    return [each for each in MEASURES if each.is_drawn(found)]


def _picture(found: Sequence[Batch]) -> Picture:
    summary = f"Batches {found[0].number} to {found[-1].number} by the time at which they were "
    if len(found) == 1:
        summary = f"Batch {found[0].number} at the time at which it was "
    summary += "planned: " + ", ".join(each.title for each in drawn(found)) + "."
    if any(batch.state != "committed" for batch in found):
        summary += " What is not committed yet has a pattern."
    return picture("batch-rows", "Batches by time", summary, figure(found), _table(found))


def _table(found: Sequence[Batch]) -> Table:
    known = [each for each in MEASURES if any(each.of(batch) is not None for batch in found)]
    columns = {
        "batch": lambda batch: f"{batch.number}",
        "planned (UTC)": lambda batch: moment(batch.at),
        "state": lambda batch: batch.state,
        **{each.title: each.told for each in known},
    }
    return table(
        "Batches, newest first", columns, found[::-1], "keyrange checkpoint show --batches"
    )


def figure(found: Sequence[Batch]) -> dict[str, Any]:
    """A row for each measure, one axis of time below all of them. A bar begins when its batch was
    planned; one of a batch that is not committed has a pattern."""
    known = drawn(found)
    widths = bar_widths([each.at_ms for each in found], [each.duration_ms for each in found])
    rows = max(len(known), 1)
    axes: dict[str, Any] = {}
    data = []
    for at, measure in enumerate(known):
        name = "" if at == 0 else f"{at + 1}"
        top = 1 - at / rows
        most = max((measure.of(batch) or 0 for batch in found), default=0)
        axes[f"yaxis{name}"] = measure.axis(_in_two_lines(measure.title), most) | {
            "domain": [top - 0.8 / rows, top],
            "tickfont": {"size": 11},
            "fixedrange": True,
        }
        data.append(_row(found, measure, f"y{name}", widths))
    # Below the lowest row, whichever that is.
    below = f"y{'' if len(known) < 2 else len(known)}"
    return plot(
        data,
        60 + _ROW_HEIGHT * rows,
        xaxis=time_axis(anchor=below, range=_shown(found, widths)),
        showlegend=False,
        hovermode="closest",
        **axes,
    )


def _in_two_lines(title: str) -> str:
    """A row is lower than most titles are long."""
    begin, _, end = title.partition(" ")
    return f"{begin}<br>{end}" if end and not title.endswith(", s") else title


def bar_widths(starts_ms: Sequence[int], durations_ms: Sequence[int | None]) -> list[float]:
    """How long each bar is on an axis of time, in ms: most of the way to the next batch, but not
    through a pause, and not so short that nobody sees it."""
    gaps = [after - before for before, after in pairwise(starts_ms)]
    usual = median(gaps) if gaps else max(durations_ms[0] or 0, _SECOND_MS)
    least = max((max(starts_ms) - min(starts_ms)) * _THIN, 1)
    return [0.9 * max(min(gap, usual * _LONG_TIMES), least) for gap in [*gaps, usual]]


def _shown(found: Sequence[Batch], widths: Sequence[float]) -> list[float]:
    """From when to when: all bars with a little room, and a single one with much, which lies before
    it: behind it is what has not come yet."""
    begin = min(each.at_ms for each in found)
    end = max(each.at_ms + width for each, width in zip(found, widths, strict=True))
    least = _FEW * max(widths) if len(found) < _FEW else 0
    room = (end - begin) / 50
    return [round(begin - room - max(least - (end - begin), 0)), round(end + room)]


def _row(
    found: Sequence[Batch], measure: Measure, y: str, widths: Sequence[float]
) -> dict[str, Any]:
    trace = {
        "x": [batch.at_ms for batch in found],
        "y": [measure.of(batch) for batch in found],
        "yaxis": y,
        "name": measure.title,
        "customdata": [
            [measure.told(batch), f"{batch.number}", batch.state, moment(batch.at)]
            for batch in found
        ],
        "hovertemplate": f"{measure.title}: %{{customdata[0]}}<br>batch "
        "%{customdata[1]}, %{customdata[2]}, planned %{customdata[3]} UTC<extra></extra>",
    }
    if measure.kind == "line":
        return trace | {
            "type": "scatter",
            "mode": "lines+markers",
            "line": {"width": 2, "color": measure.colour},
            "marker": {"size": 5, "color": measure.colour},
        }
    marker = bar_marker(measure.colour)
    marker["pattern"]["shape"] = ["" if batch.state == "committed" else "/" for batch in found]
    return trace | {"type": "bar", "marker": marker, "width": widths, "offset": 0}


_VERDICTS: Final = (
    ("done", "--committed", ""),
    ("redelivered", "--flight", "\\"),
    ("held_back", "--behind", "."),
    ("rejected", "--done", "/"),
    ("dead", "--pending", "x"),
)
_NOT_DONE: Final = _VERDICTS[1:]


def _records(verdict: str, row: Row) -> str:
    return number(row[verdict])


def _verdicts(events: Sequence[Row]) -> Picture:
    """What became of the records of each batch that was committed individually."""
    rows = sorted(events, key=lambda row: row["seq"])
    # What is given up was rejected for the last time, and is drawn once.
    drawn = [{**row, "rejected": max(row["rejected"] - row["dead"], 0)} for row in rows]
    shown = [each for each in _VERDICTS if any(row[each[0]] for row in drawn)]
    data = [
        {
            "type": "bar",
            "x": [f"{row['batch_id']}" for row in rows],
            "y": [row[name] for row in drawn],
            "name": name.replace("_", " "),
            "visible": True if name != "done" else "legendonly",
            "marker": bar_marker(colour, pattern),
            "hovertemplate": f"{name.replace('_', ' ')}: %{{y:,d}}, batch %{{x}}<extra></extra>",
        }
        for name, colour, pattern in shown
    ]
    most = max(sum(row[name] for name, *_ in _NOT_DONE) for row in drawn)
    bars = plot(
        data,
        320,
        barmode="stack",
        xaxis=bar_axis("batch", len({row["batch_id"] for row in rows})),
        yaxis=count_axis("records", most),
    )
    columns: Columns = {
        "batch": lambda row: f"{row['batch_id']}",
        "commit": lambda row: f"{row['seq']}",
        "time (UTC)": lambda row: moment(row["committed_at"]),
        **{name.replace("_", " "): partial(_records, name) for name, *_ in _VERDICTS},
    }
    summary = "Records of each batch: handed out again, held back, rejected and given up. What is "
    summary += "done is much more, and shows when it is chosen in the legend."
    listed = table("Commits, newest first", columns, rows[::-1], "keyrange commits history")
    return picture("batch-verdicts", "What became of the records", summary, bars, listed)
