"""The batches: records, bytes, duration, read amplification, and what was read by its owners."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from keyrange.report.parts import Picture, Section, Sources, View, table
from keyrange.report.shapes import axis, bar_marker, layout
from keyrange.report.words import Row
from keyrange.text.formats import moment, number, percent, rounded_span, size_text

_ROW_HEIGHT: Final = 130


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A batch as far as it is known. `bytes` are those of the log by a sample, `amplification` is
    what brokers send for one of them, `own` the share of its portions that their owners read."""

    number: int
    at: str
    state: str
    offsets: int | None
    records: int | None = None
    duration_ms: int | None = None
    bytes: int | None = None
    amplification: float | None = None
    own: float | None = None


@dataclass(frozen=True, slots=True)
class Measure:
    """One row of the picture: a value of each batch, how it is written, and where it is from."""

    title: str
    of: Callable[[Batch], float | None]
    text: Callable[[Any], str]
    tickformat: str
    colour: str
    kind: str = "bar"


MEASURES: Final = (
    Measure("records", lambda each: each.records, number, ",", "--committed"),
    Measure("offsets", lambda each: each.offsets, number, ",", "--flight"),
    Measure("bytes (sampled)", lambda each: each.bytes, size_text, ".3~s", "--line2"),
    Measure(
        "duration, s",
        lambda each: None if each.duration_ms is None else each.duration_ms / 1000,
        lambda seconds: rounded_span(seconds * 1000),
        "~g",
        "--done",
    ),
    Measure(
        "read amplification", lambda each: each.amplification, number, ".2f", "--line4", "line"
    ),
    Measure("read by owners", lambda each: each.own, percent, ".0%", "--line5", "line"),
)


def batches_of(sources: Sources) -> list[Batch]:
    """The batches that checkpoint or progress know of, oldest first."""
    planned = {row["batch"]: row for row in sources.history}
    told = {row["batch"]: row for row in sources.progress.document or ()}
    plans = sources.plans.document or {}
    found = []
    for at in sorted(planned.keys() | told.keys()):
        row, event = planned.get(at), told.get(at)
        size, amplification = _cost(event, told.get(at + 1), plans.get(at))
        found.append(
            Batch(
                number=at,
                at=row["at"] if row is not None else event["at"] if event is not None else "",
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
    others = (_number(members, f"{whose}Portions") or 0 for whose in ("foreign", "unowned"))
    total = own + sum(others)
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
        facts.append(("duration, median", rounded_span(sorted(timed)[len(timed) // 2])))
    pictures = [_picture(found)] if found else []
    commits = sources.commits.document
    if commits is not None:
        events = [row for row in commits["history"] if row["batch_id"] is not None]
        if events:
            pictures.append(_verdicts(events))
    missing = sources.progress.wanted
    if sources.plans.missing and all(each.bytes is None for each in found):
        missing.append(sources.plans.missing)
    return Section("batches", "Batches", facts, pictures, missing=missing)


def _picture(found: Sequence[Batch]) -> Picture:
    known = [each for each in MEASURES if any(each.of(batch) is not None for batch in found)]
    columns = ["batch", "planned (UTC)", "state", *(each.title for each in known)]
    cells = []
    for batch in reversed(found):
        values = [(each, each.of(batch)) for each in known]
        cells.append(
            [
                f"{batch.number}",
                moment(batch.at),
                batch.state,
                *("" if value is None else each.text(value) for each, value in values),
            ]
        )
    summary = f"Batches {found[0].number} to {found[-1].number}: "
    summary += ", ".join(each.title for each in known) + "."
    shown = table("Batches, newest first", columns, cells, "keyrange checkpoint show --batches")
    return Picture(
        "batch-rows", "Batch by batch", [View("all", "all", summary, figure(found), shown)]
    )


def figure(found: Sequence[Batch]) -> dict[str, Any]:
    """A row for each measure that is known, one axis of batches below all of them. A batch that is
    not committed has a pattern."""
    known = [each for each in MEASURES if any(each.of(batch) is not None for batch in found)]
    rows = max(len(known), 1)
    axes: dict[str, Any] = {}
    data = []
    for at, measure in enumerate(known):
        name = "" if at == 0 else f"{at + 1}"
        top = 1 - at / rows
        axes[f"yaxis{name}"] = axis(
            measure.title.replace(" (", "<br>(").replace("read ", "read<br>"),
            domain=[top - 0.82 / rows, top],
            rangemode="tozero",
            tickformat=measure.tickformat,
            nticks=4,
            tickfont={"size": 11},
        )
        data.append(_row(found, measure, f"y{name}"))
    # Below the lowest row, whichever that is.
    below = f"y{'' if len(known) < 2 else len(known)}"
    return {
        "data": data,
        "layout": layout(
            60 + _ROW_HEIGHT * rows,
            xaxis=axis("batch", tickformat=",", anchor=below),
            showlegend=False,
            hovermode="x",
            bargap=0.15,
            **axes,
        ),
    }


def _row(found: Sequence[Batch], measure: Measure, y: str) -> dict[str, Any]:
    values = [measure.of(batch) for batch in found]
    trace = {
        "x": [batch.number for batch in found],
        "y": values,
        "yaxis": y,
        "name": measure.title,
        "customdata": [
            ["" if value is None else measure.text(value), batch.state, moment(batch.at)]
            for batch, value in zip(found, values, strict=True)
        ],
        "hovertemplate": f"{measure.title}: %{{customdata[0]}}<br>batch %{{x}}, "
        "%{customdata[1]}, %{customdata[2]} UTC<extra></extra>",
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
    return trace | {"type": "bar", "marker": marker}


_VERDICTS: Final = (
    ("done", "--committed", ""),
    ("redelivered", "--flight", "\\"),
    ("held_back", "--behind", "."),
    ("rejected", "--done", "/"),
    ("dead", "--pending", "x"),
)


def _verdicts(events: Sequence[Row]) -> Picture:
    """What became of the records of each batch that was committed individually."""
    rows = sorted(events, key=lambda row: row["seq"])
    data = [
        {
            "type": "bar",
            "x": [row["batch_id"] for row in rows],
            "y": [row[name] for row in rows],
            "name": name.replace("_", " "),
            "visible": True if name != "done" else "legendonly",
            "marker": bar_marker(colour, pattern),
            "hovertemplate": f"{name.replace('_', ' ')}: %{{y:,d}}, batch %{{x}}<extra></extra>",
        }
        for name, colour, pattern in _VERDICTS
    ]
    figure_ = {
        "data": data,
        "layout": layout(
            320,
            barmode="stack",
            xaxis=axis("batch", tickformat=","),
            yaxis=axis("records", tickformat=",", rangemode="tozero"),
        ),
    }
    columns = ["batch", "commit", "time (UTC)", *(name.replace("_", " ") for name, *_ in _VERDICTS)]
    cells = [
        [
            f"{row['batch_id']}",
            f"{row['seq']}",
            moment(row["committed_at"]),
            *(number(row[name]) for name, *_ in _VERDICTS),
        ]
        for row in reversed(rows)
    ]
    summary = "Records of each batch: handed out again, held back, rejected and given up. What is "
    summary += "done is much more, and shows when it is chosen in the legend."
    shown = table("Commits, newest first", columns, cells, "keyrange commits history")
    view = View("all", "all", summary, figure_, shown)
    return Picture("batch-verdicts", "What became of the records", [view])
