"""Dead letters: by their error, and one by one. What a record holds is not shown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from keyrange.report.parts import Picture, Section, Sources, View, partition_name, table
from keyrange.report.shapes import axis, bar, layout
from keyrange.report.words import Row, label, visible
from keyrange.text.formats import moment, number

ERRORS_MAX: Final = 15
_ERROR_CHARACTERS: Final = 48
_STATES: Final = (("dead", "--pending", "x"), ("replayed", "--committed", ""))


def letters_section(sources: Sources) -> Section:
    """The chapter about dead letters."""
    rows = sources.letters.document
    failures = sources.letters.notes
    if rows is None:
        return Section("letters", "Dead letters", missing=sources.letters.wanted, failures=failures)
    states = Counter(row["status"] for row in rows)
    facts = [
        ("dead", number(states["dead"])),
        ("handed out again since", number(states["replayed"])),
    ]
    if not rows:
        facts = [("dead letters", "none")]
        return Section(
            "letters", "Dead letters", facts, missing=sources.letters.wanted, failures=failures
        )
    columns = ["partition", "offset", "given up (UTC)", "tries", "cause", "state", "key", "error"]
    newest = sorted(rows, key=lambda row: row["written_at"], reverse=True)
    cells = [
        [
            partition_name(row),
            number(row["offset"]),
            moment(row["written_at"]),
            number(row["attempts"]),
            row["cause"].replace("_", " "),
            row["status"],
            row["key"],
            row["error"],
        ]
        for row in newest
    ]
    summary = "How many records were given up with which error, the most frequent first."
    shown = table("The dead letters, newest first", columns, cells, "keyrange deadletters list")
    view = View("all", "all errors", summary, figure(rows), shown)
    picture = Picture("letters-errors", "By error", [view], zooms="")
    return Section(
        "letters",
        "Dead letters",
        facts,
        [picture],
        missing=sources.letters.wanted,
        failures=failures,
    )


def figure(rows: Sequence[Row]) -> dict[str, Any]:
    """A bar for each error, of those that are dead and of those that came again."""
    counts: Counter[tuple[str, str]] = Counter()
    for row in rows:
        counts[visible(row["error"], _ERROR_CHARACTERS) or "no text", row["status"]] += 1
    totals: Counter[str] = Counter()
    for (error, _), count in counts.items():
        totals[error] += count
    most = [error for error, _ in totals.most_common(ERRORS_MAX)]
    names = [label(error) for error in most]
    return {
        "data": [
            bar(state, kind, [counts[error, state] for error in most], names, "%{x:,d}")
            for state, *kind in _STATES
        ],
        "layout": layout(
            130 + 28 * len(most),
            barmode="stack",
            xaxis=axis("records", tickformat=",", rangemode="tozero"),
            yaxis=axis(autorange="reversed", type="category"),
        ),
    }
