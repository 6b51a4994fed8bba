"""The line of offsets: what is committed, done above it, not done, in flight and to come; of each
partition as a whole, and of its key ranges."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from keyrange.observing.model.lag import offsets_behind
from keyrange.report.chart_shapes import Path, area, axis, bar, count_axis, name_axis, plot
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
from keyrange.report.sections.lag import PartitionLag, standings
from keyrange.report.wording import Row, label
from keyrange.text.formats import counted, number, percent_of_hashes, rounded_span

# A picture of more areas takes a browser too long, and shows no more.
RUNS_MAX: Final = 40_000
PENDING_MAX: Final = 1_000
# Of all partitions together: what a page may weigh.
AREAS_MAX: Final = 100_000
BARS_MAX: Final = 200
STAIRS_MAX: Final = 200

# The classes of offsets: name, colour and pattern.
COMMITTED: Final = ("committed", "--committed", "")
DONE: Final = ("done above it", "--done", "/")
NOT_DONE: Final = ("not done", "--pending", "x")
BEHIND: Final = ("not handed out to these keys", "--behind", ".")
IN_FLIGHT: Final = ("in flight", "--flight", "\\")
TO_COME: Final = ("to come", "--tocome", "")


def offsets_section(sources: Sources) -> Section:
    """The chapter about what is done of each partition."""
    rows = standings(sources)
    show = sources.commits.document["show"] if sources.commits.document else None
    parts = {partition_name(row): row for row in show["partitions"]} if show else {}
    lengths = [_lengths(each, parts.get(each.name)) for each in rows]
    pictures, tables, notes = [], [], []
    if any(any(found.values()) for found in lengths):
        pictures.append(_whole(rows, lengths))
    else:
        tables.append(_standing(rows, lengths))
        notes.append(
            "As far as is known, all offsets are committed: there is nothing to draw above them."
        )
    if show is not None:
        views, left_out = _views(sources, rows, parts)
        if views:
            pictures.append(
                Picture("offset-ranges", "One partition, by key range", views, "partition", "xy")
            )
        if left_out:
            notes.append(
                f"{counted(left_out, 'partition')} would make the page too large to be drawn one "
                "by one; keyrange commits show --topic has them."
            )
    facts = [] if show is None else _facts(show)
    return Section(
        "offsets",
        "Offsets",
        facts,
        pictures,
        tables,
        notes,
        missing=sources.commits.wanted,
        failures=sources.commits.notes,
    )


def _facts(show: Row) -> list[tuple[str, str]]:
    rows = show["partitions"]
    oldest = max(
        (row["oldest_pending"]["age_ms"] for row in rows if row["oldest_pending"]), default=None
    )
    tries = max((row["deliveries_max"] for row in rows), default=0)
    return [
        ("records that are not done", number(sum(row["pending"] for row in rows))),
        ("the oldest of them for", rounded_span(oldest)),
        ("the most tries of one", number(tries)),
        ("last commit", number(show["seq"])),
    ]


def _whole(rows: Sequence[PartitionLag], lengths: Sequence[Mapping[str, int]]) -> Picture:
    """All partitions, a bar each, from its committed offset on."""
    summary = "Of each partition, in offsets from its committed one on: what is done above it, "
    summary += "what is not done, what is in flight, and what is to come."
    if len(rows) > BARS_MAX:
        summary += f" Drawn are the {BARS_MAX} that are behind most."
    drawn = list(zip(rows, lengths, strict=True))[:BARS_MAX]
    shown = _standing(rows, lengths)
    return picture("offset-bars", "All partitions", summary, bars(drawn), shown)


def _standing(rows: Sequence[PartitionLag], lengths: Sequence[Mapping[str, int]]) -> Table:
    columns = {
        "partition": lambda row: row[0].name,
        "committed": lambda row: number(row[0].committed),
        "done above": lambda row: number(row[1][DONE[0]]),
        "not done": lambda row: number(row[1][NOT_DONE[0]]),
        "in flight": lambda row: number(row[1][IN_FLIGHT[0]]),
        "to come": lambda row: number(row[1][TO_COME[0]]),
    }
    both = list(zip(rows, lengths, strict=True))
    return table("Offsets from the committed one on", columns, both, "keyrange commits show")


def _lengths(each: PartitionLag, part: Row | None) -> dict[str, int]:
    """How many offsets of a partition are of each class, in the order of the line; what is not
    known counts 0. `not done` are records below the position, or of ranges that lag behind."""
    known = (each.committed, each.read_to, each.planned)
    committed = next(at for at in known if at is not None)
    position = part["position"] if part is not None else committed
    not_done = min(part["pending"], position - committed) if part is not None else 0
    top = max(each.planned, position)
    return {
        DONE[0]: max(position - committed - not_done, 0),
        NOT_DONE[0]: not_done,
        IN_FLIGHT[0]: top - position,
        TO_COME[0]: max((each.log_end or 0) - top, 0),
    }


def bars(rows: Sequence[tuple[PartitionLag, Mapping[str, int]]]) -> dict[str, Any]:
    """A bar for each partition, the one that is behind most on top."""
    names = [label(each.name) for each, _ in rows]
    data = [
        bar(name, kind, [lengths[name] for _, lengths in rows], names, "%{x:,d} offsets")
        for name, *kind in (DONE, NOT_DONE, IN_FLIGHT, TO_COME)
        if any(lengths[name] for _, lengths in rows)
    ]
    most = max(sum(lengths.values()) for _, lengths in rows)
    return plot(
        data,
        min(110 + 26 * max(len(rows), 2), 700),
        barmode="stack",
        xaxis=count_axis("offsets from the committed one on", most),
        yaxis=name_axis([each.name for each, _ in rows]),
    )


def _views(
    sources: Sources, rows: Sequence[PartitionLag], parts: Mapping[str, Row]
) -> tuple[list[View], int]:
    """A view for each partition that the commits know, as many as a page can hold; those that are
    held up most come first."""
    gaps: dict[str, list[Row]] = {}
    for gap in sources.commits.document["gaps"]:
        gaps.setdefault(partition_name(gap), []).append(gap)
    ordered = sorted(
        (each for each in rows if each.name in parts and not _is_done(parts[each.name])),
        key=lambda each: (parts[each.name]["pending"] > 0, each.most_behind),
        reverse=True,
    )
    views: list[View] = []
    areas = 0
    for each in ordered:
        part = parts[each.name]
        areas += len(part["ranges"]) + min(part["done_ranges"], RUNS_MAX)
        if views and areas > AREAS_MAX:
            break
        views.append(_view(each, part, gaps.get(each.name, [])))
    return views, len(ordered) - len(views)


def _is_done(part: Row) -> bool:
    """Whether all key ranges have done all that was handed out: they would be one block."""
    return all(row["committed"] == part["position"] for row in part["ranges"])


def _view(each: PartitionLag, part: Row, gaps: Sequence[Row]) -> View:
    if each.log_end is not None:
        # As that of the partition beside it: a commit knows where the log ended then.
        end = each.log_end
        rows = [
            {**row, "commit_lag": offsets_behind(row["committed"], end)} for row in part["ranges"]
        ]
        part = {**part, "ranges": rows}
    ranges = part["ranges"]
    summary = (
        f"{each.name}: {counted(len(ranges), 'key range')}, committed to offset "
        f"{number(each.committed)}, handed out to {number(part['position'])}, "
        f"{counted(part['pending'], 'record')} not done."
    )
    if part["pending"] > PENDING_MAX:
        summary += f" The oldest {PENDING_MAX:,} of them are marked one by one."
    worst = sorted(ranges, key=lambda row: (row["committed"], row["range"]))
    shown = table(f"The key ranges of {each.name}", _OF_RANGE, worst, "keyrange commits show")
    pending = counted(part["pending"], "record")
    lag = number(each.commit_lag) or "not known"
    name = f"{each.name}, commit lag {lag}, {pending} not done"
    return View(each.name, name, summary, ranges_figure(each, part, gaps), shown)


def _oldest(row: Row) -> str:
    return rounded_span(row["oldest_pending"]["age_ms"]) if row["oldest_pending"] else ""


_OF_RANGE: Final[Columns] = {
    "keys": lambda row: keys_text(row["range"]),
    "committed": lambda row: number(row["committed"]),
    "handed out to": lambda row: number(row["scanned"]),
    "not done": lambda row: number(row["pending"]),
    "oldest": _oldest,
    "tries": lambda row: number(row["deliveries_max"]),
    "commit lag": lambda row: number(row["commit_lag"]),
    "hashes": lambda row: "{} to {}".format(*row["range"]),
}


def keys_text(bounds: Sequence[int]) -> str:
    """Where in the hash space a key range lies."""
    begin, end = percent_of_hashes(bounds)
    return f"{begin:.2f} to {end:.2f} %"


def ranges_figure(each: PartitionLag, part: Row, gaps: Sequence[Row]) -> dict[str, Any]:
    """Offsets to the right, the hash space of the keys upwards; areas for each class of a range."""
    ranges = sorted(part["ranges"], key=lambda row: row["range"])
    position, top = part["position"], max(each.planned, part["position"])
    end = max(each.log_end or 0, top)
    paths = {kind: Path() for kind in (COMMITTED, DONE, NOT_DONE, BEHIND, IN_FLIGHT, TO_COME)}
    spans = [_percent(row["range"]) for row in ranges]
    both = list(zip(ranges, spans, strict=True))
    paths[COMMITTED].band([(0, row["committed"], *y) for row, y in both])
    # What is not done lies upon it.
    paths[DONE].band([(row["committed"], row["scanned"], *y) for row, y in both])
    runs = max(RUNS_MAX // max(len(ranges), 1), 1)
    for row, y in both:
        for run in runs_not_done(row, runs):
            paths[NOT_DONE].rectangle((*run, *y))
    paths[BEHIND].band([(row["scanned"], position, *y) for row, y in both])
    paths[IN_FLIGHT].rectangle((position, top, 0.0, 100.0))
    paths[TO_COME].rectangle((top, end, 0.0, 100.0))
    data = [area(path, *kind) for kind, path in paths.items() if path]
    for trace in data:
        if trace["name"] == NOT_DONE[0]:
            # The style sheet gives it an edge: one offset among a million has no width.
            trace["uid"] = "notdone"
            del trace["fillpattern"]
    data += [_frontier(both), *_marks(gaps)]
    begin = part["committed"]
    shown = [begin - max((position - begin) // 16, 1), _until(begin, top, end)]
    return plot(
        data,
        460,
        xaxis=axis("offset", tickformat=",", range=shown),
        yaxis=axis("hash of the key, % of the space", range=[0, 100]),
        hovermode="y",
        meta="xy",
    )


def _until(begin: int, top: int, end: int) -> int:
    """How far to the right is shown at first: what is to come may be much longer than the rest."""
    inside = max(top - begin, 1)
    return min(end, top + inside // 3) + max(inside // 50, 1) if top > begin else max(end, top + 1)


def _percent(bounds: Sequence[int]) -> tuple[float, float]:
    begin, end = percent_of_hashes(bounds)
    return round(begin, 5), round(end, 5)


Run = tuple[int, int]


def runs_not_done(row: Row, most: int) -> list[Run]:
    """The offsets of a range between committed and scanned that are not done, in at most `most`
    runs; what is left behind them counts as one."""
    done = row["done_above"][:most]
    borders = [row["committed"], *(border for run in done for border in run), row["scanned"]]
    found = zip(borders[::2], borders[1::2], strict=True)
    return [(begin, until) for begin, until in found if begin < until]


def _frontier(both: Sequence[tuple[Row, tuple[float, float]]]) -> dict[str, Any]:
    """The committed offset of each range as a stair; pointing at a height tells of its range."""
    # Of very many ranges a line would hide what it runs through: only what it tells is left.
    stairs = len(both) <= STAIRS_MAX
    x: list[int] = []
    y: list[float] = []
    texts: list[list[str]] = []
    for row, (low, high) in both:
        facts = [keys_text(row["range"]), number(row["committed"]), number(row["scanned"])]
        facts += [number(row["pending"]), number(row["commit_lag"]) or "not known"]
        for height in (low, high) if stairs else ((low + high) / 2,):
            x.append(row["committed"])
            y.append(height)
            texts.append(facts)
    return {
        "type": "scatter",
        "mode": "lines",
        "x": x,
        "y": y,
        "name": "committed, by key range",
        "line": {"width": 2 if stairs else 0, "color": "--ink"},
        "showlegend": stairs,
        "customdata": texts,
        "hovertemplate": "keys %{customdata[0]}<br>committed %{customdata[1]}"
        "<br>handed out to %{customdata[2]}<br>not done %{customdata[3]}"
        "<br>commit lag %{customdata[4]}<extra></extra>",
    }


def _marks(gaps: Sequence[Row]) -> Iterator[dict[str, Any]]:
    """The records that are not done, each where its offset and its key are."""
    oldest = sorted(gaps, key=lambda row: -row["age_ms"])[:PENDING_MAX]
    if not oldest:
        return
    yield {
        "type": "scatter",
        "mode": "markers",
        "x": [row["offset"] for row in oldest],
        "y": [round(percent_of_hashes([row["key_hash"]] * 2)[0], 5) for row in oldest],
        "name": "a record that is not done",
        "marker": {
            "symbol": "x",
            "size": 7,
            "color": "--pending",
            "line": {"width": 1, "color": "--paper"},
        },
        "customdata": [
            [row["cause"].replace("_", " "), row["deliveries"], rounded_span(row["age_ms"])]
            for row in oldest
        ],
        "hovertemplate": "offset %{x:,d}: %{customdata[0]}<br>%{customdata[1]} tries, since "
        "%{customdata[2]}<extra></extra>",
    }
