"""How full the volumes of the brokers are, and the throttle factor that follows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from keyrange.report.chart_shapes import axis, bar, name_axis, plot, plot_time, time_axis
from keyrange.report.page_parts import Picture, Section, Sources, picture, table
from keyrange.report.wording import Row, factor_text, label, volume_state
from keyrange.text.formats import moment, percent, rounded_span, size_text

BARS_MAX: Final = 100


def volumes_section(sources: Sources) -> Section:
    """The chapter about volumes."""
    known = sources.volumes.document
    failures = list(sources.volumes.notes)
    facts: list[tuple[str, str]] = []
    pictures = []
    if known is not None:
        facts = _facts(known)
        if known["failure"]:
            failures.append(f"Not observed: {known['failure']}")
        if known["volumes"]:
            pictures.append(_bars(known["volumes"]))
    held = [each for each in sources.progress.document or () if _factor_of(each) is not None]
    if len({_factor_of(each) for each in held}) > 1:
        pictures.append(_factors(held))
    elif held:
        facts.append(("throttle factor of each batch", f"{_factor_of(held[-1]):g}"))
    return Section(
        "volumes", "Volumes", facts, pictures, missing=sources.volumes.wanted, failures=failures
    )


def _facts(known: Row) -> list[tuple[str, str]]:
    factor = known["factor"]
    if factor is None:
        return [("throttle factor", "none, since no limit was given")]
    return [
        ("throttle factor", factor_text(factor)),
        ("since", f"{moment(factor['since'])} UTC"),
        ("limit", known["limit"]),
        ("because", factor["why"]),
    ]


def _bars(volumes: Sequence[Row]) -> Picture:
    """The fullest first."""
    rows = sorted(volumes, key=lambda row: row["available_ratio"])
    columns = {
        "broker": lambda row: str(row["broker"]),
        "log dir": lambda row: row["log_dir"],
        "used": lambda row: size_text(row["used_bytes"]),
        "available": lambda row: size_text(row["available_bytes"]),
        "of": lambda row: size_text(row["total_bytes"]),
        "free": lambda row: percent(row["available_ratio"]),
        "full in": lambda row: rounded_span(row["time_to_full_ms"]),
        "": volume_state,
    }
    summary = "The part of each volume that is used, the fullest first; a line stands at the limit."
    figure = bars_figure(rows[:BARS_MAX])
    shown = table("Volumes", columns, rows, "keyrange volumes show")
    return picture("volume-bars", "How full each volume is", summary, figure, shown, zooms="")


def bars_figure(rows: Sequence[Row]) -> dict[str, Any]:
    """A bar of used and free for each volume, with a mark where the limit is."""
    texts = [f"{row['broker']} {row['log_dir']}" for row in rows]
    names = [label(each) for each in texts]
    free = [row["available_ratio"] for row in rows]
    data = [
        bar("used", ("--flight", "/"), [1 - each for each in free], names, "%{x:.1%}"),
        bar("available", ("--tocome", ""), free, names, "%{x:.1%}"),
    ]
    limits = [
        (name, 1 - row["limit_ratio"])
        for name, row in zip(names, rows, strict=True)
        if row["limit_ratio"] is not None
    ]
    if limits:
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "y": [name for name, _ in limits],
                "x": [at for _, at in limits],
                "name": "limit",
                "marker": {
                    "symbol": "line-ns",
                    "size": 22,
                    "line": {"width": 4, "color": "--pending"},
                },
                "hovertemplate": "full from %{x:.1%} used on<extra>%{y}</extra>",
            }
        )
    return plot(
        data,
        min(120 + 34 * max(len(rows), 1), 700),
        barmode="stack",
        xaxis=axis("of the volume", tickformat=".0%", range=[0, 1]),
        yaxis=name_axis(texts),
    )


def _factor_of(batch: Row) -> float | None:
    factor = batch["volumes"].get("throttleFactor")
    return factor if isinstance(factor, int | float) else None


def _factors(batches: Sequence[Row]) -> Picture:
    """The factor that each batch was planned with."""
    line = {
        "type": "scatter",
        "mode": "lines+markers",
        "x": [plot_time(each["at"]) for each in batches],
        "y": [_factor_of(each) for each in batches],
        "name": "throttle factor",
        "line": {"shape": "hv", "width": 2, "color": "--line0"},
        "customdata": [
            [each["batch"], label(str(each["volumes"].get("why", "")), 120)] for each in batches
        ],
        "hovertemplate": "factor %{y:g}, batch %{customdata[0]}<br>%{customdata[1]}<extra></extra>",
    }
    figure = plot(
        [line],
        240,
        xaxis=time_axis(),
        yaxis=axis("throttle factor", range=[-0.05, 1.05], dtick=0.25, fixedrange=True),
        showlegend=False,
    )
    columns = {
        "batch": lambda each: f"{each['batch']}",
        "time (UTC)": lambda each: moment(each["at"]),
        "factor": lambda each: f"{_factor_of(each):g}",
        "partitions held": lambda each: f"{each['volumes'].get('partitionsHeld', 0)}",
        "why": lambda each: str(each["volumes"].get("why", "")),
    }
    shown = table("The factor by batch, newest first", columns, batches[::-1])
    summary = "The throttle factor as each batch of the query saw it: at 0 nothing new is taken in."
    return picture("volume-factor", "Throttle factor", summary, figure, shown)
