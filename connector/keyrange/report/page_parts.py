"""What a page is made of: sections, pictures that have several views, and tables.

Every view of a picture has a table with the same facts: for screen readers, for keyboards, and
where nothing can be drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from keyrange.text.formats import moment

# A figure in plotly's form: data and layout.
Figure = Mapping[str, Any]
# What of a row is in each column.
Columns = Mapping[str, Callable[[Any], str]]

ROWS_MAX: Final = 1_000


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of texts under columns. `left_out` counts the rows that are not here, and `where` says
    which command has them."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    left_out: int = 0
    where: str = ""


@dataclass(frozen=True, slots=True)
class View:
    """One way to look at a picture: a label for the choice, what it shows in a sentence, the figure
    and its table. `key` is the same when the page is made anew."""

    key: str
    label: str
    summary: str
    figure: Figure
    table: Table


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture. `choice` names what is chosen where there are several views, as they have labels
    then; `zooms` says along which axes it may be looked at more closely: "x", "xy" or "", for
    none."""

    name: str
    title: str
    views: Sequence[View]
    choice: str = ""
    zooms: str = "x"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryState:
    """In which state a query is, as `keyrange watch` says it.

    `level` is "good", "warning", "bad" or "unknown". `causes` say why, the weightiest first.
    `advice` is what to do, in a sentence or two, and `command` the command for it, "" for none.
    `facts` are the lines of `watch`: a name, and what is known.
    """

    text: str
    level: str
    causes: Sequence[str]
    advice: str
    command: str = ""
    facts: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True, slots=True)
class Section:
    """A chapter of the page. `missing` says which option brings what is not here, `failures` why
    something could not be read. `state` is of the chapter that begins with it."""

    name: str
    title: str
    facts: Sequence[tuple[str, str]] = ()
    pictures: Sequence[Picture] = ()
    tables: Sequence[Table] = ()
    notes: Sequence[str] = ()
    missing: Sequence[str] = ()
    failures: Sequence[str] = ()
    state: QueryState | None = None


@dataclass(frozen=True, slots=True)
class Source:
    """A document that a section is made of, or why it is not there.

    `missing` is the option that brings it. `failure` says why it could not be read, `since` from
    when on; the document is then the last one that could be, or None. `remarks` are on what could.
    `outdated`: it is of an earlier time, and says nothing of where the query is.
    """

    document: Any = None
    missing: str = ""
    failure: str = ""
    since: str = ""
    remarks: tuple[str, ...] = ()
    outdated: bool = False

    @property
    def wanted(self) -> list[str]:
        """The option that brings it, where it is not there."""
        return [self.missing] if self.missing else []

    @property
    def notes(self) -> tuple[str, ...]:
        """Why it is not there, or not up to date, in a sentence; and what else is to be said."""
        if not self.failure:
            return self.remarks
        kept = "" if self.document is None else "What is shown is what was read before. "
        since = f" (since {moment(self.since)} UTC)" if self.since else ""
        return (f"{kept}Not read{since}: {self.failure}",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """All that a page is made of.

    `query` is how the checkpoint was named, `at` when the documents were read (ISO 8601), `state`
    what follows from them for the query as a whole. `checkpoint` is the document of `keyrange
    checkpoint show`, `history` the offsets of each of its batches. The others may not be there: the
    events of a progress file, where the logs end by Kafka, plans of batches by their number, and
    what `keyrange commits`, `members`, `deadletters` and `volumes` print.
    """

    query: str
    at: str
    state: QueryState
    checkpoint: Mapping[str, Any]
    history: Sequence[Mapping[str, Any]]
    progress: Source
    ends: Source
    plans: Source
    commits: Source
    members: Source
    letters: Source
    volumes: Source


def picture(
    name: str, title: str, summary: str, figure: Figure, shown: Table, zooms: str = "x"
) -> Picture:
    """A picture with one view."""
    return Picture(name, title, [View("all", "", summary, figure, shown)], zooms=zooms)


def table(caption: str, columns: Columns, rows: Sequence[Any], where: str = "") -> Table:
    """A table of the first rows."""
    cells = [[text(row) for text in columns.values()] for row in rows[:ROWS_MAX]]
    return Table(caption, list(columns), cells, max(len(rows) - ROWS_MAX, 0), where)


def partition_name(row: Mapping[str, Any]) -> str:
    """The name of the topic-partition that a row is about."""
    return f"{row['topic']}-{row['partition']}"
