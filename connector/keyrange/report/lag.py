"""How far each partition is behind the end of its log, batch by batch and now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from keyrange.report.parts import Picture, Section, Sources, Table, View, partition_name, table
from keyrange.report.shapes import axis, layout, plot_time
from keyrange.report.words import label, short_label
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
    """Where a partition stands: `known_by` says how its log's end is known."""

    name: str
    committed: int | None
    planned: int
    log_end: int | None
    known_by: str

    @property
    def lag(self) -> int | None:
        """Offsets that are not committed; a batch that never was leaves nothing to count from."""
        if self.log_end is None or self.committed is None:
            return None
        return max(self.log_end - self.committed, 0)


def standings(sources: Sources) -> list[PartitionLag]:
    """Each partition of the checkpoint as it is known last, those that are behind most first."""
    ends = _ends(sources)
    committed = _committed(sources)
    found = []
    for row in sources.checkpoint["positions"]:
        name = partition_name(row)
        log_end, known_by = ends.get(name, (None, ""))
        at = committed.get(name, row["committed"])
        # Nothing of it is committed yet: where it began is what is next.
        at = row["from_offset"] if at is None else at
        found.append(PartitionLag(name, at, row["planned"], log_end, known_by))
    return sorted(found, key=lambda each: -1 if each.lag is None else each.lag, reverse=True)


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
    """The lag of each partition over time, by the progress of batches, else by what a checkpoint
    with individual commits says; and now, where Kafka was asked."""
    found: dict[str, list[tuple[str, int]]] = {}
    batches = sources.progress.document or sources.history
    for batch in batches:
        for row in batch["positions"]:
            if row["log_end"] is not None:
                behind = max(row["log_end"] - row["offset"], 0)
                found.setdefault(partition_name(row), []).append((batch["at"], behind))
    asked = sources.ends.document
    if asked is not None:
        # From what was read to, as all others here, also where individual commits know of less.
        read_to = {
            partition_name(row): row["from_offset"]
            if row["committed"] is None
            else row["committed"]
            for row in sources.checkpoint["positions"]
        }
        for each in standings(sources):
            at = read_to[each.name]
            if each.log_end is not None and at is not None and each.known_by == "Kafka":
                behind = max(each.log_end - at, 0)
                found.setdefault(each.name, []).append((asked["at"], behind))
    return found


def lag_section(sources: Sources) -> Section:
    """The chapter about lag."""
    rows = standings(sources)
    known = [each.lag for each in rows if each.lag is not None]
    facts = []
    if known:
        facts = [
            ("offsets behind, all partitions", number(sum(known))),
            ("the partition that is behind most", f"{rows[0].name}: {number(rows[0].lag)}"),
        ]
    found = series(sources)
    return Section(
        "lag",
        "Lag",
        facts,
        [_picture(found, rows, sources.commits.document is not None)] if found else [],
        [] if found else [_table(rows)],
        missing=sources.progress.wanted + sources.ends.wanted,
        failures=(*sources.progress.notes, *sources.ends.notes),
    )


def _picture(found: Series, rows: Sequence[PartitionLag], is_individual: bool) -> Picture:
    times = [at for points in found.values() for at, _ in points]
    summary = (
        f"Offsets behind the end of the log, of {counted(len(found), 'partition')}, "
        f"from {moment(min(times))} to {moment(max(times))} UTC."
    )
    if len(found) > LINES_MAX:
        summary += f" Drawn are the {LINES_MAX} that are behind most now, and the sum of all."
    if is_individual:
        summary += " The lines count from where batches ended, the table from what is committed."
    view = View("all", "all partitions", summary, figure(found), _table(rows))
    return Picture("lag-lines", "Offsets behind, by time", [view])


def _table(rows: Sequence[PartitionLag]) -> Table:
    return table(
        "Where each partition stands",
        ["partition", "committed", "planned", "log end", "log end by", "lag"],
        [
            [
                each.name,
                number(each.committed),
                number(each.planned),
                number(each.log_end),
                each.known_by,
                number(each.lag),
            ]
            for each in rows
        ],
        "keyrange checkpoint show",
    )


def figure(found: Series) -> dict[str, Any]:
    """A line for each of the partitions that are behind most at the end, and one of their sum."""
    most = sorted(found, key=lambda name: (-found[name][-1][1], name))[:LINES_MAX]
    data = [_line(name, found[name], at) for at, name in enumerate(most)]
    if len(found) > 1:
        data.insert(0, _sum(found))
    return {
        "data": data,
        "layout": layout(
            380,
            xaxis=axis("time (UTC)", type="date"),
            yaxis=axis("offsets behind", rangemode="tozero", tickformat=","),
            hovermode="closest",
            showlegend=True,
        ),
    }


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
        "hovertemplate": "%{y:,d} offsets behind<br>%{x|%Y-%m-%d %H:%M:%S} UTC"
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
