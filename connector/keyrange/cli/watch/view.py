"""How `keyrange watch` looks: a screen that fits the terminal, or a line for each interval.

Rule of this file: a document comes in, and what is drawn of it goes out. Everything that others
wrote is plain text: no markup, nothing that moves a cursor.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from keyrange.cli.commits.document import kinds_of
from keyrange.cli.watch.document import most_behind
from keyrange.individual_commits.model.batch_results import kinds_text
from keyrange.report.wording import state_of_keys_text
from keyrange.text.escaping import one_line
from keyrange.text.formats import clock, counted, moment, number, short, short_span, span

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

_STYLES: Final = {
    "working": "bold green",
    "caught up": "bold green",
    "all read": "bold",
    "idle": "bold",
    "stuck": "bold white on red",
    "unknown": "bold yellow",
}
_BAR: Final = 16
_NAME_WIDTH: Final = 10
# Of the terminal, the lines below the head that are no partition's: the columns' names, and the
# last one, where the cursor is.
_TABLE_LINES: Final = 2
# Between two columns; how much of a partition's name is kept at the least, and which columns go
# where there is no room.
_BETWEEN: Final = 2
_PARTITION_MIN: Final = 24
_DROPPED_FIRST: Final = ("bar", "committed", "read to", "log end", "pending")
# Columns that say nothing new where they are the same as another one in every row.
_SAME: Final = (("committed", "read to"), ("commit lag", "read lag"))
# A source that is asked for longer is said to be.
_WAITING_MS: Final = 5_000
LIVE_HELP: Final = ", Ctrl-C ends the view"


def line(document: Mapping[str, Any]) -> str:
    """One look in one line."""
    words = [clock(document["at"]), state_text(document), batch_text(document["batch"])]
    words.append(rate_text(document["rate"]))
    words += [f"{name} {text}" for name, text in _lags(document)]
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
    """What is read a second, and over how long that is told; or since when there is nothing."""
    if rate["not_moving_since"] is not None:
        return f"not moving since {moment(rate['not_moving_since'])} UTC"
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


def _lags(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Both lags: their names, and how they stand."""
    lag = document["lag"]
    # Somebody who would know the lag was asked, and did not say it.
    is_asked = any(each["source"] in ("broker", "progress") for each in document["failures"])
    words = [read_lag_text(lag, is_asked), all_read_text(lag)]
    yield "read lag", ", ".join(filter(None, words))
    yield "commit lag", commit_lag_text(lag)


def read_lag_text(lag: Mapping[str, Any], is_asked: bool = False) -> str:
    if lag["read"] is None:
        return "not known" if is_asked else "not known: --bootstrap-servers or --progress"
    as_of = "now" if lag["known_by"] == "now" else "as of the last batch"
    if lag["age_ms"] is not None and lag["age_ms"] > 5_000:
        as_of = f"{span(lag['age_ms'])} ago"
    return f"{lag['read']:,} ({as_of})"


def commit_lag_text(lag: Mapping[str, Any]) -> str:
    if lag["commit"] is not None:
        return f"{lag['commit']:,}"
    # With an end of the log what is missing is the committed offset.
    return "not known" if lag["read"] is None else "not known: --commits"


def all_read_text(lag: Mapping[str, Any]) -> str:
    """When there will be no read lag, with how sure that is; "-" while it does not shrink."""
    if not lag["read"]:
        return ""
    shrinks = lag["shrinks_per_s"]
    if shrinks is None:
        return "all read in: not known yet"
    if lag["all_read_in_ms"] is None:
        grows = f"grows by {-shrinks:,.0f}/s" if shrinks < 0 else "does not shrink"
        return f"all read in: - (the lag {grows})"
    about, least = span(lag["all_read_in_ms"]), span(lag["least_ms"])
    most = "never" if lag["most_ms"] is None else span(lag["most_ms"])
    sure = f" ({least} to {most})" if least != most else ""
    return f"all read in about {about}{sure}"


def _more(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What there is beside rate and lag: its name, and how it stands."""
    if commits := document["commits"]:
        kinds = kinds_of(commits["pending_by_error"])
        dead = commits["dead_letters"] + commits["dead_timers"]
        text = f"{commits['pending']:,} pending: {kinds_text(kinds)}" if kinds else "none pending"
        yield "pending", f"{text}, {dead:,} dead letters" if dead else text
    if state := document["state_of_keys"]:
        yield "state", state_of_keys_text(state)
    if members := document["members"]:
        text = f"{members['there']} of {members['members']} members, epoch {members['epoch']}"
        if due := members["next"]:
            text += f", key ranges anew in {span(due['in_ms'])}"
        yield "members", text
    if throttle := document["throttle"]:
        as_of = "" if throttle["known_by"] == "now" else " (last batch)"
        yield "volumes", f"factor {throttle['factor']:g}{as_of}{_of_guard(throttle)}"


def _of_guard(throttle: Mapping[str, Any]) -> str:
    """What the guard looked at last, and what it has told since the run began."""
    known = {name: value for name, value in throttle.items() if value is not None}
    words = []
    if "brokers" in known and "log_dirs" in known:
        dirs = counted(int(known["log_dirs"]), "log dir")
        words.append(f"{dirs} of {counted(int(known['brokers']), 'broker')}")
    if known.get("at_limit"):
        words.append(f"{known['at_limit']:,.0f} at the limit")
    if known.get("limit_violated"):
        words.append(f"at the limit {known['limit_violated']:,.0f} times in this run")
    if known.get("fallback_applied"):
        words.append(f"fallback {known['fallback_applied']:,.0f} times in this run")
    return "".join(f", {each}" for each in words)


def facts(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    """How the query stands, in the order of the screen: a name, and what is known."""
    batch = document["batch"]
    # Without the progress only the distance between two plans is known.
    words = "usually" if batch["done_at"] is not None else "one every"
    usual = "" if batch["usual_ms"] is None else f"; {words} {short_span(batch['usual_ms'])}"
    return [
        ("batch", batch_text(batch) + usual),
        ("rate", rate_text(document["rate"])),
        *_lags(document),
        *_more(document),
    ]


def screen(console: Console, document: Mapping[str, Any], help_text: str = "") -> RenderableType:
    """The screen, cut to a console's height."""
    from rich.console import Group

    head = [*_head(document, help_text)]
    width = console.width
    used = sum(max(1, len(each.wrap(console, width))) for each in head)
    room = max(console.height - used - _TABLE_LINES, 1)
    return Group(*head, *_partitions(document["partitions"], room, width))


def _head(document: Mapping[str, Any], help_text: str) -> Iterator[Text]:
    from rich.text import Text

    title = Text()
    title.append(f" {state_text(document)} ", style=_STYLES[document["state"]])
    title.append("  ")
    title.append(one_line(document["name"] or document["query_id"]), style="bold")
    title.append(f"  {one_line(document['checkpoint'])}", style="dim")
    yield title
    for name, text in facts(document):
        yield _named(name, text, "dim", overflow="fold")
    at = f"{'at':>{_NAME_WIDTH}}  {clock(document['at'])} UTC{help_text}"
    yield Text(at, style="dim")
    for text in document["why"]:
        yield _named("why", text, "bold yellow")
    for each in document["failures"]:
        yield _named(each["source"], failure_text(each), "bold red")
    yield Text("")


def _named(name: str, text: str, style: str, **more: Any) -> Text:
    """A line with a name in a style, and a text beside it without."""
    from rich.text import Text

    line = Text(f"{name:>{_NAME_WIDTH}}  ", style=style, **more)
    line.append(one_line(text), style=f"default not {style.split()[0]}")
    return line


def failure_text(failure: Mapping[str, Any]) -> str:
    since = []
    if failure["age_ms"] is not None:
        since.append(f"shown is what was {span(failure['age_ms'])} ago")
    if failure["waiting_ms"] > _WAITING_MS:
        since.append(f"asked again for {span(failure['waiting_ms'])}")
    return f"{failure['text']} ({', '.join(since)})" if since else str(failure["text"])


def _partitions(
    rows: Sequence[Mapping[str, Any]], room: int, width: int
) -> Iterator[RenderableType]:
    """The partitions that are farthest behind, as many as there is room for."""
    from rich.table import Table
    from rich.text import Text

    shown = rows[:room] if len(rows) <= room else rows[: max(room - 1, 1)]
    most = max(map(most_behind, rows), default=0)
    cells = [_cells(row, most) for row in shown]
    table = Table(box=None, pad_edge=False, padding=(0, _BETWEEN, 0, 0), expand=False)
    table.add_column("partition", overflow="ellipsis", no_wrap=True, style="bold")
    names = _fitting(cells, width)
    for name in names:
        is_bar = name == "bar"
        table.add_column(
            "" if is_bar else name,
            justify="left" if is_bar else "right",
            style="yellow" if is_bar else None,
            no_wrap=True,
        )
    for row in cells:
        table.add_row(*(Text(row[name]) for name in ("partition", *names)))
    yield table
    if len(shown) < len(rows):
        yield Text(f"... and {len(rows) - len(shown):,} that are less behind", style="dim")


def _cells(row: Mapping[str, Any], most: int) -> dict[str, str]:
    """What there is to say of a partition, by the names of columns."""
    behind = most_behind(row)
    filled = round(_BAR * behind / most) if most else 0
    return {
        "partition": one_line(f"{row['topic']}-{row['partition']}"),
        "read to": number(row["read_to"]),
        "committed": number(row["committed"]),
        "log end": "gone" if row["gone"] else number(row["log_end"]),
        "pending": number(row["pending"]),
        "read lag": number(row["read_lag"]),
        "commit lag": number(row["commit_lag"]),
        # The least that is left shows too.
        "bar": "#" * (max(filled, 1) if behind else 0),
    }


def _fitting(cells: Sequence[Mapping[str, str]], width: int) -> list[str]:
    """The columns beside the partitions' names that have something to say and that a width has room
    for; a name may lose some of its end before a column goes."""
    told = [name for name in (cells[0] if cells else {}) if any(row[name] for row in cells)]
    for name, same in _SAME:
        if name in told and all(row[name] == row[same] for row in cells):
            told.remove(name)
    widths = {
        name: max(0 if name == "bar" else len(name), *(len(row[name]) for row in cells))
        for name in told
    }
    widths["partition"] = min(widths.get("partition", 0), _PARTITION_MIN)
    for name in _DROPPED_FIRST:
        if sum(each + _BETWEEN for each in widths.values()) > width:
            widths.pop(name, None)
    return [name for name in widths if name != "partition"]
