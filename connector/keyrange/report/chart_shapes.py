"""Areas of one kind as one path: thousands of them are drawn as quickly as one.

A path is two lists, x and y, with None between areas; plotly fills each by itself (`toself`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, cos, pi, sin
from typing import Any, Final

from keyrange.report.wording import label, short_label

# From x, until x, from y, until y.
Cell = tuple[float, float, float, float]
_STEP: Final = pi / 90
# Of more the names would lie upon one another.
_TICKS_MAX: Final = 25
# From here on a count is written with the letter of its size.
_LONG_COUNT: Final = 100_000
# So many bars have room beside one another, where there are fewer.
_BARS_LEAST: Final = 6


@dataclass(slots=True)
class Path:
    """Areas of one kind, in the order in which they were added. Plotly works longest on many areas,
    and little on many corners of one."""

    x: list[float | None] = field(default_factory=list)
    y: list[float | None] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.x)

    def polygon(self, points: Sequence[tuple[float, float]]) -> None:
        """One more area; its last point is joined to the first by who fills it."""
        if self.x:
            self.x.append(None)
            self.y.append(None)
        self.x += [x for x, _ in points]
        self.y += [y for _, y in points]

    def rectangle(self, cell: Cell) -> None:
        """A rectangle, unless it is empty."""
        x0, x1, y0, y1 = cell
        if x0 < x1:
            self.polygon([(x0, y0), (x1, y0), (x1, y1), (x0, y1)])

    def band(self, cells: Sequence[Cell]) -> None:
        """Rectangles that stand on one another, the lowest first, as one area with stairs at both
        sides; nothing where all of them are empty."""
        if not any(x0 < x1 for x0, x1, _, _ in cells):
            return
        left: list[tuple[float, float]] = []
        right: list[tuple[float, float]] = []
        for x0, x1, y0, y1 in cells:
            _climb(left, x0, y0, y1)
            _climb(right, max(x0, x1), y0, y1)
        self.polygon([*left, *reversed(right)])

    def sector(
        self, begin: float, end: float, inner: float, outer: float, closed: bool = False
    ) -> None:
        """A piece of a ring: parts of a turn, clockwise from the top, between two radii. `closed`
        is for those whose edge is drawn."""
        low, high = begin * 2 * pi, end * 2 * pi
        steps = max(ceil((high - low) / _STEP), 1)
        turns = [low + (high - low) * at / steps for at in range(steps + 1)]
        outside = [(outer * sin(turn), outer * cos(turn)) for turn in turns]
        inside = [(inner * sin(turn), inner * cos(turn)) for turn in reversed(turns)]
        corners = [*outside, *inside, *(outside[:1] if closed else [])]
        self.polygon([(round(x, 4), round(y, 4)) for x, y in corners])


def _climb(side: list[tuple[float, float]], x: float, low: float, high: float) -> None:
    """One step more of a stair; a wall goes on without a corner."""
    if side and side[-1] == (x, low):
        side[-1] = (x, high)
    else:
        side += [(x, low), (x, high)]


def area(path: Path, name: str, colour: str, pattern: str = "", **more: Any) -> dict[str, Any]:
    """A trace that fills a path. `pattern` is one of plotly's shapes: what is told apart by colour
    is told apart by it too."""
    trace: dict[str, Any] = {
        "type": "scatter",
        # Lines would be an element of the page for each area.
        "mode": "none",
        "x": path.x,
        "y": path.y,
        "fill": "toself",
        "fillcolor": colour,
        "name": name,
        "hoverinfo": "skip",
    }
    if pattern:
        trace["fillpattern"] = _pattern(colour, pattern) | {"size": 7}
    return trace | more


def _pattern(colour: str, shape: str) -> dict[str, Any]:
    return {"shape": shape, "fgcolor": "--pattern", "bgcolor": colour, "solidity": 0.25}


def bar_marker(colour: str, pattern: str = "") -> dict[str, Any]:
    """How bars of one kind look."""
    edge = {"width": 1, "color": "--edge"}
    return {"color": colour, "line": edge, "pattern": _pattern(colour, pattern)}


def bar(
    name: str,
    kind: Sequence[str],
    across: Sequence[Any],
    along: Sequence[Any],
    said: str,
) -> dict[str, Any]:
    """Bars to the right, of one colour and pattern; `said` is what pointing at one tells of it."""
    return {
        "type": "bar",
        "orientation": "h",
        "y": along,
        "x": across,
        "name": name,
        "marker": bar_marker(*kind),
        "hovertemplate": f"{name}: {said}<extra>%{{y}}</extra>",
    }


def plot(data: Sequence[Mapping[str, Any]], height: int, **more: Any) -> dict[str, Any]:
    """A figure of some traces, with what all figures have in common."""
    layout = {
        "height": height,
        "margin": {"l": 8, "r": 8, "t": 8, "b": 8},
        "paper_bgcolor": "--paper",
        "plot_bgcolor": "--paper",
        "font": {"color": "--ink", "size": 12, "family": "system-ui, sans-serif"},
        "hoverlabel": {
            "bgcolor": "--paper",
            "bordercolor": "--ink",
            "font": {"color": "--ink"},
            "align": "left",
            # A whole name: what tells it apart may stand at its end.
            "namelength": -1,
        },
        "legend": {
            "orientation": "h",
            "x": 0,
            "y": 0,
            "yanchor": "bottom",
            "yref": "container",
            "traceorder": "normal",
        },
        "dragmode": "zoom",
        **more,
    }
    return {"data": data, "layout": layout}


def axis(title: str = "", **more: Any) -> dict[str, Any]:
    """An axis whose labels make room for themselves."""
    return {
        "title": {"text": title, "standoff": 6},
        "automargin": True,
        "gridcolor": "--grid",
        "zerolinecolor": "--grid",
        "linecolor": "--grid",
        **more,
    }


def count_axis(title: str, most: float, ticks: int = 8, **more: Any) -> dict[str, Any]:
    """An axis from 0 on of what comes in whole numbers, `most` at the most: its ticks are whole
    numbers too, and never much longer than five characters."""
    # One tick more than there are numbers: a step of less than 1 would be rounded up to it.
    usual = {"rangemode": "tozero", "nticks": int(min(max(most, 1) + 1, ticks))}
    return axis(title, **usual, tickformat="," if most < _LONG_COUNT else "~s", **more)


def time_axis(**more: Any) -> dict[str, Any]:
    """An axis of times. Its marks keep its labels, which are wide, away from the other axis."""
    marks = {"ticks": "outside", "ticklen": 7, "tickcolor": "--grid"}
    return axis("time (UTC)", type="date", **marks, **more)


def bar_axis(title: str, count: int) -> dict[str, Any]:
    """An axis of so many bars, each under its own name: few of them are no wider than many."""
    places = [-0.5, max(count, _BARS_LEAST) - 0.5]
    return axis(title, type="category", range=places, nticks=_TICKS_MAX, tickangle=0)


def name_axis(names: Sequence[str]) -> dict[str, Any]:
    """An axis of names, downwards. Each is a place of its own by its whole label, however much of
    it is written there."""
    ticks: dict[str, Any] = {}
    if any(label(each) != short_label(each) for each in names):
        drawn = names[:: ceil(len(names) / _TICKS_MAX)]
        ticks = {
            "tickmode": "array",
            "tickvals": [label(each) for each in drawn],
            "ticktext": [short_label(each) for each in drawn],
        }
    return axis(autorange="reversed", type="category", **ticks)


def plot_time(at: str) -> str:
    """A time as plotly reads it; all of them are UTC."""
    return f"{at[:10]} {at[11:23]}"
