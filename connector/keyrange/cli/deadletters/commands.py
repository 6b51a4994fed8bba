"""`keyrange deadletters`: records that were given up, and how they are handed out again.

Rule of this file: what a record holds is shown as text where a terminal can show it, and never more
of it than was asked for.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from keyrange.cli.commits.commit_source import (
    Chosen,
    LettersOption,
    OfSourceShown,
    TableArgument,
    ask,
)
from keyrange.cli.commits.reset import (
    CheckpointOption,
    ConfirmOption,
    WhoOption,
    WhyOption,
    check_no_batch_is_open,
    say_what_is_next,
)
from keyrange.cli.render import (
    Columns,
    LimitOption,
    OutputFormat,
    note,
    print_as,
    print_by,
    print_document,
    print_record,
    print_words,
    table_of,
    waiting,
)
from keyrange.cli.source_options import (
    LiveOption,
    ServersOption,
    check_live,
    named_options,
    read_record_id,
    storage_of,
)
from keyrange.cli.values import SinceOption, cut, in_json, iso, now, read_since, short_key, shown
from keyrange.errors import invalid_options
from keyrange.individual_commits.model.commit import Snapshot
from keyrange.model.offsets import TopicPartition
from keyrange.text.escaping import one_line, plain
from keyrange.text.formats import moment

if TYPE_CHECKING:
    from keyrange.individual_commits.table.dead_letters import DeadLetter

# What a list shows of an error where it does not go to a terminal.
_ERROR_CHARACTERS: Final = 500
_VALUE_CHARACTERS: Final = 40


def document(letter: DeadLetter) -> dict[str, Any]:
    """A dead letter as JSON."""
    return {
        "group": letter.group,
        "source_id": letter.source_id,
        "query_id": letter.query_id,
        "batch_id": letter.batch_id,
        **located(letter),
        "topic_id": letter.topic_id or None,
        "timestamp": iso(letter.timestamp_ms),
        "key": in_json(letter.key),
        "value": in_json(letter.value),
        "headers": [[name, in_json(value)] for name, value in letter.headers],
        "error": letter.error,
        "frames": list(letter.frames),
        "cause": letter.cause.name.lower(),
        "attempts": letter.attempts,
        "first_at": iso(letter.first_at_ms),
        "last_at": iso(letter.last_at_ms),
        "written_at": iso(letter.written_at_ms),
        "status": letter.status,
        "replayed_by": letter.replayed_by,
        "replayed_to": letter.replayed_to,
    }


def located(letter: DeadLetter) -> dict[str, Any]:
    return {"topic": letter.topic, "partition": letter.partition, "offset": letter.offset}


_LETTERS: Final[Columns] = {
    "offset": lambda each: each.offset,
    "tries": lambda each: each.attempts,
    "cause": lambda each: each.cause.name.lower().replace("_", " "),
    "given up (UTC)": lambda each: moment(iso(each.written_at_ms)),
    "state": lambda each: each.status,
    "key": lambda each: short_key(each.key),
}


def print_letters(letters: Sequence[DeadLetter]) -> None:
    """Three lines for each: what it is, its error, and how its value begins."""
    wide = shutil.get_terminal_size().columns if sys.stdout.isatty() else _ERROR_CHARACTERS
    below = [
        [
            cut(one_line(" ".join(each.error.split())), wide - 4),
            f"value {cut(' '.join(shown(each.value).split()), _VALUE_CHARACTERS)}",
        ]
        for each in letters
    ]
    names = [f"{each.topic}-{each.partition}" for each in letters]
    print_by(names, *table_of(_LETTERS, letters), below, "no dead letters")


def fields_of(letter: DeadLetter, characters: int) -> dict[str, Any]:
    fields = {
        "state": letter.status
        if letter.replayed_by is None
        else f"replayed by {letter.replayed_by}, {letter.replayed_to}",
        "error": plain(letter.error),
        "cause": letter.cause.name.lower().replace("_", " "),
        "attempts": letter.attempts,
        "first at": iso(letter.first_at_ms),
        "last at": iso(letter.last_at_ms),
        "batch": letter.batch_id,
        "query": letter.query_id,
        "timestamp": iso(letter.timestamp_ms),
        "key": _bounded(letter.key, characters),
        "value": _bounded(letter.value, characters),
    }
    if letter.frames:
        fields["raised at"] = plain("\n".join(letter.frames))
    for name, value in letter.headers:
        # Two headers may have one name.
        label = f"header {shown(name.encode())}"
        while label in fields:
            label += "'"
        fields[label] = _bounded(value, characters)
    return fields


def _bounded(content: bytes | None, most: int) -> str:
    text = shown(content)
    if content is None or len(content) <= most:
        return text
    # A character may be cut in two at the bound: what is left of it is left out.
    is_text = text != f"hex:{content.hex()}"
    begin = content[:most].decode("utf-8", "ignore") if is_text else f"hex:{content[:most].hex()}"
    return f"{begin}... ({len(content):,} bytes)"


ErrorOption = Annotated[str, typer.Option(help="Only those whose error holds this text.")]

app = typer.Typer(
    no_args_is_help=True, help="Show and replay dead letters: records that were given up."
)


class Status(StrEnum):
    DEAD = "dead"
    REPLAYED = "replayed"
    ALL = "all"


@app.command("list")
def list_letters(
    chosen: Chosen,
    since: SinceOption = "",
    error: ErrorOption = "",
    status: Annotated[
        Status,
        typer.Option(
            help="Those whose record is given up, those whose record was handed out again, or all."
        ),
    ] = Status.ALL,
    limit: LimitOption = 50,
    dead_letters: LettersOption = "",
    *,
    of: OfSourceShown,
) -> None:
    """List the dead letters, by topic, partition and offset.

    JSON has keys, values and headers too.
    """
    from keyrange.individual_commits.table.dead_letter_replay import chosen_letters

    since_ms = read_since(since, now())
    replayed = None if status is Status.ALL else status is Status.REPLAYED
    having = {"topic": chosen.topic or None, "partition": chosen.partition}
    letters = _read(chosen.table, dead_letters, of, replayed, **having)
    found = chosen_letters(letters, of.group, of.source, error, since_ms)
    values = {"table": chosen.table, "dead_letters": [document(each) for each in found[:limit]]}
    print_as(of.output, "deadletters.list/1", values, lambda _: print_letters(found[:limit]))
    if len(found) > limit:
        note(f"the first {limit:,} of {len(found):,} dead letters; --limit shows more")


@app.command()
def show(
    table: TableArgument,
    record: Annotated[
        str,
        typer.Argument(
            metavar="TOPIC-PARTITION:OFFSET", help="The record, such as orders-3:41207."
        ),
    ],
    characters: Annotated[
        int,
        typer.Option(
            "--bytes", min=1, help="How many bytes of key, value and each header to print."
        ),
    ] = 4096,
    dead_letters: LettersOption = "",
    *,
    of: OfSourceShown,
) -> None:
    """Show one dead letter in full.

    The command prints it once for each time that it was given up.
    """
    from keyrange.individual_commits.table.dead_letter_replay import chosen_letters

    name, number, at = read_record_id(record, "the record")
    letters = _read(table, dead_letters, of, topic=name, partition=number, offset=at)
    found = chosen_letters(letters, of.group, of.source, "", 0)
    if not found:
        raise invalid_options([f"offset {at} of {name}-{number} is no dead letter"])
    if of.output is OutputFormat.JSON:
        letters_found = [document(each) for each in found]
        print_document("deadletters.show/1", {"table": table, "dead_letters": letters_found})
        return
    for each in found:
        print_record(f"{name}-{number}, offset {at}", fields_of(each, characters))


def _read(
    table: str,
    path: str,
    of: OfSourceShown,
    replayed: bool | None = None,
    **having: Any,
) -> list[DeadLetter]:
    from keyrange.individual_commits.table.dead_letter_replay import open_letters

    letters = open_letters(table, path, storage_of(named_options("", "", of.option)))
    return letters.read(replayed=replayed, **having)


@app.command()
def replay(
    chosen: Chosen,
    offset: Annotated[
        list[int] | None, typer.Option(min=0, help="Only this one; several times.")
    ] = None,
    since: SinceOption = "",
    error: ErrorOption = "",
    everything: Annotated[bool, typer.Option("--all", help="All that nobody replayed.")] = False,
    why: WhyOption = "replay",
    who: WhoOption = "",
    confirm: ConfirmOption = False,
    checkpoint: CheckpointOption = "",
    live: LiveOption = False,
    bootstrap_servers: ServersOption = "",
    dead_letters: LettersOption = "",
    *,
    of: OfSourceShown,
) -> None:
    """Deliver dead letters again, in the next batch of the query.

    The query works on them as if they came for the first time. It reads them from Kafka: with
    --live the command checks that Kafka still has them. Stop the query first: one that runs fails
    with COMMITS_FENCED at its next commit.
    """
    from keyrange.individual_commits.table import dead_letter_replay as replaying
    from keyrange.individual_commits.table.commit_admin import check_current, user_name

    if offset and chosen.partition is None:
        raise typer.BadParameter("--offset needs --topic and --partition")
    if not (everything or chosen.topic or since or error):
        raise typer.BadParameter("say which: --topic, --since, --error, or --all")
    named = named_options(bootstrap_servers, "", of.option)
    check_live(live, named)
    since_ms = read_since(since, now())
    letters = replaying.open_letters(chosen.table, dead_letters, storage_of(named), replays=True)
    commits, _ = of.open(chosen.table, bootstrap_servers)
    known = commits.table.known()
    own = check_current(commits, known)
    having: dict[str, Any] = {"topic": chosen.topic or None, "partition": chosen.partition}
    with waiting(of.output) as bars:
        with bars.step("reading the dead letters") as advance:
            not_yet = letters.read(replayed=False, **having)
            found = replaying.chosen_letters(not_yet, own, "", error, since_ms)
            advance(len(found))
        found = [each for each in found if not offset or each.offset in offset]
        cuts = replaying.cuts_since(commits, found)
        gone = _gone(found, known, named) if live else [""] * len(found)
        wanted = [each for each, why_gone in zip(found, gone, strict=True) if not why_gone]
        planning = bars.over("planning", wanted, len(wanted))
        plan = replaying.plan_replay(known, planning, now(), commits.source_id, cuts)
        if checkpoint:
            check_no_batch_is_open(checkpoint, storage_of(named))
        seq, by = None, who or user_name()
        if confirm and plan.taken:
            with bars.step("writing what comes again", len(plan.taken)):
                seq = replaying.replay(commits, letters, known, plan, by, why, now())
    left = [*plan.left, *((each, said) for each, said in zip(found, gone, strict=True) if said)]
    if of.output is OutputFormat.JSON:
        rest = [{**located(each), "why": said} for each, said in left]
        values = {"written": seq, "replayed": list(map(located, plan.taken)), "left": rest}
        print_document("deadletters.replay/1", {"table": chosen.table, **values})
        return
    would = "are" if confirm else "would be"
    print_words(f"{len(plan.taken):,} of {len(found):,} dead letters {would} handed out again")
    for each, said in left:
        print_words(f"{each.topic}-{each.partition}, offset {each.offset} is not: {said}")
    if confirm and plan.taken and seq is None:
        note("they were handed out again already; that is noted")
    else:
        say_what_is_next(commits, known, bool(plan.taken), seq)


def _gone(letters: Sequence[DeadLetter], known: Snapshot, named: Mapping[str, str]) -> list[str]:
    """Why Kafka cannot hand out each of the records any more; "" where it can."""
    places = [TopicPartition(each.topic, each.partition) for each in letters]
    states = {at: known.states[at] for at in {*places} & known.states.keys()}
    with ask(named, states) as asked:
        logs = asked.logs()
    gone = []
    for each, place in zip(letters, places, strict=True):
        log = logs.get(place)
        if log is None:
            gone.append("Kafka does not have its partition any more")
        else:
            is_there = log.from_offset <= each.offset < log.until_offset
            gone.append("" if is_there else f"the log holds {log}")
    return gone
