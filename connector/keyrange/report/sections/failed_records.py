"""Records that fail: the pending ones by their cause, and dead letters by their error and one by
one. What a record holds is not shown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from operator import itemgetter
from typing import Any, Final

from keyrange.report.chart_shapes import axis, bar, count_axis, plot
from keyrange.report.page_parts import (
    Columns,
    Picture,
    Section,
    Sources,
    Table,
    partition_name,
    picture,
    table,
)
from keyrange.report.wording import Row, label, visible
from keyrange.text.formats import moment, number

ERRORS_MAX: Final = 15
_ERROR_CHARACTERS: Final = 48
_STATES: Final = (("dead", "--pending", "x"), ("replayed", "--committed", ""))
# Of pending records, by how often they were delivered. Those that wait behind another record of
# their key were not yet.
_TRIES: Final = (
    ("none yet", 0, 0, "--line2", "."),
    ("1 delivery", 1, 1, "--behind", ""),
    ("2 deliveries", 2, 2, "--line1", "/"),
    ("3 and more", 3, None, "--pending", "x"),
)


def letters_section(sources: Sources) -> Section:
    """The chapter about records that fail."""
    facts: list[tuple[str, str]] = []
    pictures = []
    commits, letters = sources.commits.document, sources.letters.document
    if commits is not None:
        causes = commits["causes"]
        facts.append(("pending", number(sum(row["records"] for row in causes)) or "none"))
        if causes:
            pictures.append(_pending(causes, commits["gaps"]))
    if letters is not None:
        states = Counter(row["status"] for row in letters)
        facts.append(("dead letters", number(states["dead"])))
        facts.append(("delivered again since", number(states["replayed"])))
        if letters:
            pictures.append(_dead(letters))
    return Section(
        "letters",
        "Records that fail",
        facts,
        pictures,
        missing=sources.letters.wanted,
        failures=sources.letters.notes,
    )


def _pending(causes: Sequence[Row], gaps: Sequence[Row]) -> Picture:
    summary = "How many records are pending for which cause, by how often they were delivered. "
    summary += "The commit table has no texts of errors; dead letters have them."
    figure_, shown = causes_figure(causes), _oldest(gaps)
    return picture("pending-causes", "Pending records, by cause", summary, figure_, shown, zooms="")


def causes_figure(causes: Sequence[Row]) -> dict[str, Any]:
    """A bar for each cause, the most frequent on top, cut by the number of deliveries."""
    counts: Counter[str] = Counter()
    for row in causes:
        counts[_words(row["cause"])] += row["records"]
    names = [cause for cause, _ in counts.most_common()]
    data = []
    for title, least, most, *kind in _TRIES:
        found = Counter[str]()
        for row in causes:
            if least <= row["deliveries"] and (most is None or row["deliveries"] <= most):
                found[_words(row["cause"])] += row["records"]
        if found:
            data.append(bar(title, kind, [found[name] for name in names], names, "%{x:,d}"))
    return _bars(data, names, max(counts.values()))


def _words(cause: str) -> str:
    return cause.replace("_", " ")


def _oldest(gaps: Sequence[Row]) -> Table:
    columns = {
        "partition": partition_name,
        "offset": lambda row: number(row["offset"]),
        "pending since (UTC)": lambda row: moment(row["since"]),
        "deliveries": lambda row: number(row["deliveries"]),
        "cause": lambda row: _words(row["cause"]),
        "next (UTC)": lambda row: moment(row["due"]),
    }
    rows = sorted(gaps, key=lambda row: -row["age_ms"])
    return table("The pending records, oldest first", columns, rows, "keyrange commits gaps")


def _dead(rows: Sequence[Row]) -> Picture:
    columns: Columns = {
        "partition": partition_name,
        "offset": lambda row: number(row["offset"]),
        "given up (UTC)": lambda row: moment(row["written_at"]),
        "tries": lambda row: number(row["attempts"]),
        "cause": lambda row: _words(row["cause"]),
        "state": itemgetter("status"),
        "key": itemgetter("key"),
        "error": itemgetter("error"),
    }
    newest = sorted(rows, key=itemgetter("written_at"), reverse=True)
    summary = "How many records were given up with which error, the most frequent first."
    shown = table("The dead letters, newest first", columns, newest, "keyrange deadletters list")
    return picture(
        "letters-errors", "Dead letters, by error", summary, figure(rows), shown, zooms=""
    )


def figure(rows: Sequence[Row]) -> dict[str, Any]:
    """A bar for each error, of those that are dead and of those that came again."""
    counts: Counter[tuple[str, str]] = Counter()
    for row in rows:
        counts[visible(row["error"], _ERROR_CHARACTERS) or "no text", row["status"]] += 1
    totals = Counter(error for error, _ in counts.elements())
    most = [error for error, _ in totals.most_common(ERRORS_MAX)]
    names = [label(error) for error in most]
    data = [
        bar(state, kind, [counts[error, state] for error in most], names, "%{x:,d}")
        for state, *kind in _STATES
        if any(counts[error, state] for error in most)
    ]
    return _bars(data, names, max(totals.values()))


def _bars(data: Sequence[Row], names: Sequence[str], most: int) -> dict[str, Any]:
    return plot(
        data,
        130 + 28 * len(names),
        barmode="stack",
        showlegend=True,
        # Where there is little room the start of a name is shown.
        meta="start",
        xaxis=count_axis("records", most),
        yaxis=axis(autorange="reversed", type="category"),
    )
