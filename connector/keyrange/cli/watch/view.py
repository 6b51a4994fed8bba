"""How `keyrange watch` looks: a screen that fits the terminal, or a line for each interval.

Rule of this file: a document comes in, and what is drawn of it goes out. Everything that others
wrote is plain text: no markup, nothing that moves a cursor.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from keyrange.report.words import state_of_keys_text
from keyrange.text.formats import clock, moment, number, short, short_span, span
from keyrange.text.plain import one_line

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table
    from rich.text import Text

_STYLES: Final = {
    "working": "bold green",
    "caught up": "bold green",
    "idle": "bold",
    "stuck": "bold white on red",
    "unknown": "bold yellow",
}
_BAR: Final = 16
# Of the terminal, the lines below the head that are no partition's: the columns' names, and the
# last one, where the cursor is.
_TABLE_LINES: Final = 2
LIVE_HELP: Final = ", Ctrl-C ends the view"


def line(document: Mapping[str, Any]) -> str:
    """One look in one line."""
    words = [clock(document["at"]), state_text(document), batch_text(document["batch"])]
    words += [
        f"{rate_text(document['rate'])}",
        f"lag {lag_text(document['lag'], _is_asked(document))}",
    ]
    words.append(caught_up_text(document["lag"]))
    words += [text for _, text in _more(document)]
    words += [f"{each['source']}: {each['text']}" for each in document["failures"]]
    return one_line(", ".join(filter(None, words)))


def state_text(document: Mapping[str, Any]) -> str:
    since = document["stuck_since"]
    return f"stuck since {moment(since)} UTC" if since else str(document["state"])


def batch_text(batch: Mapping[str, Any]) -> str:
    name = f"batch {batch['last_planned']}"
    if batch["planned_not_committed"]:
        return f"{name} under way for {span(batch['for_ms'])}"
    return f"{name} done, planned {span(batch['for_ms'])} ago"


def rate_text(rate: Mapping[str, Any]) -> str:
    """What is read a second, and over how long that is told."""
    words = []
    if rate["records_per_s"] is not None:
        words.append(f"{rate['records_per_s']:,.0f} records/s")
        if rate["bytes_per_s"]:
            words.append(f"about {short(rate['bytes_per_s'])}B/s")
    elif rate["offsets_per_s"] is not None:
        words.append(f"{rate['offsets_per_s']:,.0f} offsets/s")
    else:
        return "rate not known"
    return f"{', '.join(words)} over {span(rate['over_ms'])}"


def _is_asked(document: Mapping[str, Any]) -> bool:
    """Whether somebody who would know the lag was asked, and did not say it."""
    return any(each["source"] in ("broker", "progress") for each in document["failures"])


def lag_text(lag: Mapping[str, Any], is_asked: bool = False) -> str:
    if lag["offsets"] is None:
        return "not known" if is_asked else "not known: --bootstrap-servers or --progress"
    as_of = "now" if lag["known_by"] == "now" else "as of the last batch"
    if lag["age_ms"] is not None and lag["age_ms"] > 5_000:
        as_of = f"{span(lag['age_ms'])} ago"
    return f"{lag['offsets']:,} ({as_of})"


def caught_up_text(lag: Mapping[str, Any]) -> str:
    """When there will be no lag, with how sure that is; "-" while it does not shrink."""
    if lag["offsets"] is None:
        return ""
    if lag["offsets"] == 0:
        return "caught up"
    shrinks = lag["shrinks_per_s"]
    if shrinks is None:
        return "caught up in: not known yet"
    if lag["caught_up_in_ms"] is None:
        grows = f"grows by {-shrinks:,.0f}/s" if shrinks < 0 else "does not shrink"
        return f"caught up in: - (the lag {grows})"
    about, least = span(lag["caught_up_in_ms"]), span(lag["least_ms"])
    most = "never" if lag["most_ms"] is None else span(lag["most_ms"])
    sure = f" ({least} to {most})" if least != most else ""
    return f"caught up in about {about}{sure}"


def _more(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What there is beside rate and lag: its name, and how it stands."""
    if commits := document["commits"]:
        pending = commits["pending"]
        yield "pending", f"{pending:,} pending" if pending else "none pending"
    if state := document["state_of_keys"]:
        yield "state", state_of_keys_text(state)
    if members := document["members"]:
        text = f"{members['there']} of {members['members']} members, epoch {members['epoch']}"
        if due := members["next"]:
            text += f", key ranges anew in {span(due['in_ms'])}"
        yield "members", text
    if throttle := document["throttle"]:
        as_of = "" if throttle["known_by"] == "now" else " (last batch)"
        yield "volumes", f"factor {throttle['factor']:g}{as_of}"


class Screen:
    """Draws documents for a console, cut to its height."""

    def __init__(self, console: Console, help_text: str = "") -> None:
        self._console = console
        self._help = help_text

    def draw(self, document: Mapping[str, Any]) -> RenderableType:
        from rich.console import Group

        head = [*self._head(document), *self._trouble(document)]
        width = self._console.width
        used = sum(max(1, -(-each.cell_len // max(width, 1))) for each in head)
        room = max(self._console.height - used - _TABLE_LINES, 1)
        return Group(*head, *_partitions(document["partitions"], room, width))

    def _head(self, document: Mapping[str, Any]) -> list[Text]:
        from rich.text import Text

        title = Text(overflow="fold")
        title.append(f" {state_text(document)} ", style=_STYLES[document["state"]])
        title.append("  ")
        title.append(one_line(document["name"] or document["query_id"]), style="bold")
        title.append(f"  {one_line(document['checkpoint'])}", style="dim")
        rows = [
            ("batch", _batch_line(document["batch"])),
            ("rate", rate_text(document["rate"])),
            ("lag", ", ".join(filter(None, _lag_words(document)))),
            *_more(document),
        ]
        lines = [title]
        for name, text in rows:
            row = Text(f"{name:>8}  ", style="dim", overflow="fold")
            row.append(one_line(text), style="default not dim")
            lines.append(row)
        lines.append(Text(f"{'at':>8}  {clock(document['at'])} UTC{self._help}", style="dim"))
        return lines

    def _trouble(self, document: Mapping[str, Any]) -> list[Text]:
        from rich.text import Text

        lines = []
        for text in document["why"]:
            row = Text("     why  ", style="bold yellow", overflow="fold")
            row.append(one_line(text), style="default not bold")
            lines.append(row)
        for each in document["failures"]:
            row = Text(f"{each['source']:>8}  ", style="bold red", overflow="fold")
            row.append(one_line(failure_text(each)), style="default not bold")
            lines.append(row)
        return [*lines, Text("")]


def _batch_line(batch: Mapping[str, Any]) -> str:
    usual = batch["usual_ms"]
    return batch_text(batch) + (f"; usually {short_span(usual)}" if usual is not None else "")


def _lag_words(document: Mapping[str, Any]) -> Sequence[str]:
    lag = document["lag"]
    return lag_text(lag, _is_asked(document)), caught_up_text(lag)


def failure_text(failure: Mapping[str, Any]) -> str:
    kept = "" if failure["age_ms"] is None else f"; shown is what was {span(failure['age_ms'])} ago"
    waiting = failure["waiting_ms"]
    asked = f"; asked again for {span(waiting)}" if waiting > 5_000 else ""
    return f"{failure['text']}{kept}{asked}"


def _partitions(
    rows: Sequence[Mapping[str, Any]], room: int, width: int
) -> Iterator[RenderableType]:
    """The partitions that are farthest behind, as many as there is room for."""
    from rich.table import Table
    from rich.text import Text

    shown = rows[:room] if len(rows) <= room else rows[: max(room - 1, 1)]
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), expand=False)
    has_commits = any(row["done_until"] is not None for row in rows)
    is_wide = width >= 72
    table.add_column("partition", overflow="ellipsis", no_wrap=True, style="bold")
    for name in ("read to", "end", *(("all done to", "pending") if has_commits else ()), "lag"):
        table.add_column(name, justify="right", no_wrap=True)
    if is_wide:
        table.add_column("", no_wrap=True)
    most = max((row["lag"] or 0 for row in rows), default=0)
    for row in shown:
        _add(table, row, has_commits, most if is_wide else None)
    yield table
    if len(shown) < len(rows):
        yield Text(f"... and {len(rows) - len(shown):,} that are less behind", style="dim")


def _add(table: Table, row: Mapping[str, Any], has_commits: bool, most: int | None) -> None:
    from rich.text import Text

    cells = [f"{row['topic']}-{row['partition']}", number(row["committed"])]
    cells.append("gone" if row["gone"] else number(row["end"]))
    if has_commits:
        cells += [number(row["done_until"]), number(row["pending"])]
    cells.append(number(row["lag"]))
    texts = [Text(one_line(each)) for each in cells]
    if most is not None:
        filled = round(_BAR * (row["lag"] or 0) / most) if most else 0
        # The least that is left shows too.
        filled = max(filled, 1) if row["lag"] else 0
        texts.append(Text("#" * filled, style="yellow"))
    table.add_row(*texts)
