"""How far each partition is behind the end of its log, batch by batch and now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from keyrange.observing.model.lag import offsets_behind, total_behind
from keyrange.report.chart_shapes import count_axis, plot, plot_time, time_axis
from keyrange.report.page_parts import (
    Picture,
    Section,
    Sources,
    Table,
    partition_name,
    picture,
    table,
)
from keyrange.report.wording import label, short_label
from keyrange.text.formats import counted, moment, number

# So many partitions have a line of their own; all have a row in the table.
LINES_MAX: Final = 20
_DASHES: Final = ("solid", "dot", "dash", "dashdot")
_SYMBOLS: Final = ("circle", "square", "diamond", "triangle-up", "x", "star")
COLOURS: Final = 8

# Of a partition: when, and how many offsets it was behind.
Series = Mapping[str, Sequence[tuple[str, int]]]


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """Where a partition stands: `known_by` says how its log's end is known. `read_to` is the read
    position, `committed` the committed offset; None where they are not known."""

    name: str
    read_to: int | None
    committed: int | None
    planned: int
    log_end: int | None
    known_by: str

    @property
    def read_lag(self) -> int | None:
        return offsets_behind(self.read_to, self.log_end)

    @property
    def commit_lag(self) -> int | None:
        return offsets_behind(self.committed, self.log_end)

    @property
    def most_behind(self) -> int:
        """The larger lag; -1 where none is known."""
        known = [each for each in (self.read_lag, self.commit_lag) if each is not None]
        return max(known, default=-1)


def standings(sources: Sources) -> list[PartitionLag]:
    """Each partition of the checkpoint as it is known last, those that are behind most first."""
    ends = _ends(sources)
    committed = _committed(sources)
    individual = {
        each["source"]
        for each in sources.checkpoint["sources"]
        if each["commit_mode"] == "individual"
    }
    found = []
    for row in sources.checkpoint["positions"]:
        name = partition_name(row)
        log_end, known_by = ends.get(name, (None, ""))
        # Nothing of it is committed yet: where it began is what is next.
        read_to = row["from_offset"] if row["committed"] is None else row["committed"]
        unknown = row["source"] in individual and sources.commits.document is None
        at = committed.get(name, None if unknown else read_to)
        found.append(PartitionLag(name, read_to, at, row["planned"], log_end, known_by))
    return sorted(found, key=lambda each: each.most_behind, reverse=True)


def lag_facts(rows: Sequence[PartitionLag]) -> list[tuple[str, str]]:
    """Both lags over all partitions."""
    lags = {
        "read lag": total_behind(each.read_lag for each in rows),
        "commit lag": total_behind(each.commit_lag for each in rows),
    }
    return [(name, number(lag) or "not known") for name, lag in lags.items()]


def _ends(sources: Sources) -> dict[str, tuple[int, str]]:
    """Where the logs end, by who said so last: a batch, or Kafka."""
    found: dict[str, tuple[int, str]] = {}
    told = () if sources.progress.outdated else sources.progress.document
    for batch in told or sources.history:
        for row in batch["positions"]:
            if row["log_end"] is not None:
                found[partition_name(row)] = (row["log_end"], f"batch {batch['batch']}")
    for row in (sources.ends.document or {}).get("ends", ()):
        found[partition_name(row)] = (row["offset"], "Kafka")
    return found


def _committed(sources: Sources) -> dict[str, int]:
    """The committed offsets by the commit table, where there is one: with individual commits those
    of the checkpoint say only what was handed out."""
    if sources.commits.document is None:
        return {}
    return {
        partition_name(row): row["committed"]
        for row in sources.commits.document["show"]["partitions"]
    }


def series(sources: Sources) -> dict[str, list[tuple[str, int]]]:
    """The read lag of each partition over time, by the progress of batches, else by what a
    checkpoint with individual commits says; and now, where Kafka was asked."""
    found: dict[str, list[tuple[str, int]]] = {}
    rows = standings(sources)
    read_to = {each.name: each.read_to for each in rows}
    for batch in sources.progress.document or sources.history:
        for row in batch["positions"]:
            name = partition_name(row)
            # What is planned is not read.
            at = read_to.get(name) if batch["state"] == "planned" else row["offset"]
            behind = offsets_behind(at, row["log_end"])
            if behind is not None:
                found.setdefault(name, []).append((batch["at"], behind))
    asked = sources.ends.document
    if asked is not None:
        for each in rows:
            if each.known_by == "Kafka" and each.read_lag is not None:
                found.setdefault(each.name, []).append((asked["at"], each.read_lag))
    return found


def lag_section(sources: Sources) -> Section:
    """The chapter about lag."""
    rows = standings(sources)
    facts = []
    if rows and rows[0].most_behind >= 0:
        most = f"{rows[0].name}: {number(rows[0].most_behind)}"
        facts = [*lag_facts(rows), ("the partition that is behind most", most)]
    found = series(sources)
    pictures = []
    notes = []
    if not is_over_time(found):
        if found:
            notes.append("The lag is known of one time, so there is no line to draw.")
    elif not any(behind for points in found.values() for _, behind in points):
        notes.append("No partition had a read lag at any time that is known.")
    else:
        pictures.append(_picture(found, rows))
    return Section(
        "lag",
        "Lag",
        facts,
        pictures,
        [] if pictures else [_table(rows)],
        notes,
        missing=sources.progress.wanted + sources.ends.wanted,
        failures=(*sources.progress.notes, *sources.ends.notes),
    )


def is_over_time(found: Series) -> bool:
    """Whether there are two times at least, between which a line can be drawn."""
    return len({at for points in found.values() for at, _ in points}) > 1


def _picture(found: Series, rows: Sequence[PartitionLag]) -> Picture:
    times = [at for points in found.values() for at, _ in points]
    summary = (
        f"The read lag of {counted(len(found), 'partition')}, in offsets from the end of the batch "
        f"to the end of the log, from {moment(min(times))} to {moment(max(times))} UTC."
    )
    if len(found) > LINES_MAX:
        summary += f" Drawn are the {LINES_MAX} that are behind most now, and the sum of all."
    if any(each.commit_lag != each.read_lag for each in rows):
        summary += " The table has the commit lag too, which counts from the committed offset."
    return picture("lag-lines", "Read lag, by time", summary, figure(found), _table(rows))


def _table(rows: Sequence[PartitionLag]) -> Table:
    columns = {
        "partition": lambda each: each.name,
        "read to": lambda each: number(each.read_to),
        "committed": lambda each: number(each.committed),
        "planned": lambda each: number(each.planned),
        "log end": lambda each: number(each.log_end),
        "log end by": lambda each: each.known_by,
        "read lag": lambda each: number(each.read_lag),
        "commit lag": lambda each: number(each.commit_lag),
    }
    return table("Where each partition stands", columns, rows, "keyrange checkpoint show")


def figure(found: Series) -> dict[str, Any]:
    """A line for each of the partitions that are behind most at the end, and one of their sum."""
    most = sorted(found, key=lambda name: (-found[name][-1][1], name))[:LINES_MAX]
    data = [_line(name, found[name], at) for at, name in enumerate(most)]
    if len(found) > 1:
        data.insert(0, _sum(found))
    top = max(behind for trace in data for behind in trace["y"])
    return plot(
        data,
        380,
        xaxis=time_axis(),
        yaxis=count_axis("read lag, in offsets", top, fixedrange=True),
        hovermode="closest",
        showlegend=True,
    )


def _line(name: str, points: Sequence[tuple[str, int]], at: int) -> dict[str, Any]:
    colour = f"--line{at % COLOURS}"
    return {
        "type": "scatter",
        "mode": "lines+markers" if len(points) < 60 else "lines",
        "x": [plot_time(when) for when, _ in points],
        "y": [behind for _, behind in points],
        "name": short_label(name),
        "line": {"width": 2, "color": colour, "dash": _DASHES[at // COLOURS % len(_DASHES)]},
        "marker": {"symbol": _SYMBOLS[at % len(_SYMBOLS)], "size": 7, "color": colour},
        "hovertemplate": "read lag %{y:,d}<br>%{x|%Y-%m-%d %H:%M:%S} UTC"
        f"<extra>{label(name)}</extra>",
    }


def _sum(found: Series) -> dict[str, Any]:
    """The sum at each time; a partition counts with what was known of it last."""
    at_time: dict[str, list[tuple[str, int]]] = {}
    for name, points in found.items():
        for when, behind in points:
            at_time.setdefault(when, []).append((name, behind))
    last: dict[str, int] = {}
    total = 0
    points = []
    for when in sorted(at_time):
        for name, behind in at_time[when]:
            total += behind - last.get(name, 0)
            last[name] = behind
        points.append((when, total))
    line = _line("all partitions together", points, 0)
    return line | {
        "mode": "lines",
        "line": {"width": 4, "color": "--total", "dash": "solid"},
        "visible": True if len(found) <= LINES_MAX else "legendonly",
    }
