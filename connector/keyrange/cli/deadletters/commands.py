"""`keyrange deadletters`: records and timers that were given up, and how records are handed out
again."""

from __future__ import annotations

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
    letters_table,
    named_group,
)
from keyrange.cli.commits.reset import (
    CheckpointOption,
    ConfirmOption,
    WhoOption,
    WhyOption,
    check_no_batch_is_open,
    say_what_is_next,
)
from keyrange.cli.deadletters.documents import document, fields_of, located, print_letters
from keyrange.cli.render import (
    LimitOption,
    OutputFormat,
    note,
    print_as,
    print_document,
    print_record,
    print_words,
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
from keyrange.cli.values import SinceOption, now, read_key, read_since, short_key
from keyrange.errors import invalid_options
from keyrange.individual_commits.model.commit import Snapshot
from keyrange.model.offsets import TopicPartition

if TYPE_CHECKING:
    from keyrange.individual_commits.table.dead_letter_replay import Replay
    from keyrange.individual_commits.table.dead_letters import (
        DeadLetter,
        DeadLetters,
        Letter,
        TimerLetter,
    )
    from keyrange.individual_commits.table.keyed_state_rows import StoredState
    from keyrange.individual_commits.table.timer_replay import TimerReplay

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
    """List the dead letters, by topic, partition and offset, and the timers that were given up.

    JSON has keys, values and headers too.
    """
    from keyrange.individual_commits.table.dead_letter_replay import chosen_letters

    since_ms = read_since(since, now())
    replayed = None if status is Status.ALL else status is Status.REPLAYED
    having: dict[str, Any] = {"topic": chosen.topic or None, "partition": chosen.partition}
    letters, group = _opened(chosen.table, dead_letters, of)
    wanted = (group, of.source, error, since_ms)
    found = chosen_letters(letters.read(replayed=replayed, **having), *wanted)
    timers = chosen_letters(letters.timers(replayed=replayed, **having), *wanted)
    values = {
        "table": chosen.table,
        "dead_letters": [document(each) for each in found[:limit]],
        "timers": [document(each) for each in timers[:limit]],
    }

    def print_both(_: object) -> None:
        print_letters(found[:limit])
        if timers:
            print_words("Timers")
            print_letters(timers[:limit], of_timers=True)

    print_as(of.output, "deadletters.list/1", values, print_both)
    for some, named in ((found, "dead letters"), (timers, "timers")):
        if len(some) > limit:
            note(f"the first {limit:,} of {len(some):,} {named}; --limit shows more")


@app.command()
def show(
    table: TableArgument,
    record: Annotated[
        str,
        typer.Argument(
            metavar="TOPIC-PARTITION[:OFFSET]",
            help="The record, such as orders-3:41207; with --key the partition, such as orders-3.",
        ),
    ],
    key: Annotated[
        str, typer.Option(metavar="KEY", help="The key whose timers that were given up to show.")
    ] = "",
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
    """Show one dead letter in full, or the timers of a key that were given up.

    The command prints a record once for each time that it was given up.
    """
    from keyrange.individual_commits.table.dead_letter_replay import chosen_letters

    name, number, at = read_record_id(f"{record}:0" if key else record, "the record")
    place, of_key = f"{name}-{number}", read_key(key)
    letters, group = _opened(table, dead_letters, of)
    found: Sequence[Letter]
    if key:
        timers = letters.timers(topic=name, partition=number)
        found = chosen_letters((t for t in timers if t.key == of_key), group, of.source)
    else:
        records = letters.read(topic=name, partition=number, offset=at)
        found = chosen_letters(records, group, of.source)
    if not found:
        no_timer = f"no timer of this key was given up in {place}"
        raise invalid_options(no_timer if key else f"offset {at} of {place} is no dead letter")
    if of.output is OutputFormat.JSON:
        kinds: dict[str, list[Any]] = {"dead_letters": [], "timers": []}
        kinds["timers" if key else "dead_letters"] = [document(each) for each in found]
        print_document("deadletters.show/1", {"table": table, **kinds})
        return
    for each in found:
        what = f"timer {located(each)['timer_at']}" if key else f"offset {at}"
        print_record(f"{place}, {what}", fields_of(each, characters))


def _named(letter: Letter) -> str:
    """The record or the timer of a dead letter, for people."""
    what, place = located(letter), f"{letter.topic}-{letter.partition}"
    if "offset" in what:
        return f"{place}, offset {what['offset']}"
    return f"{place}, timer {what['timer_at']} of key {short_key(letter.key)}"


def _opened(table: str, path: str, of: OfSourceShown) -> tuple[DeadLetters, str]:
    """Dead letters, and the group that is named; "" for all."""
    from keyrange.individual_commits.table.dead_letter_replay import open_letters

    named = named_options("", "", of.option)
    letters = open_letters(table, letters_table(named, path), storage_of(named))
    return letters, named_group(named, of.group)


_MAY_BE_OPEN: Final = (
    "a batch that is planned and not committed takes timers away of keys that it changes: "
    "--checkpoint LOCATION refuses while there is one"
)


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

    The query works on them as if they came for the first time. It reads records from Kafka: with
    --live the command checks that Kafka still has them. Timers that were given up are set again in
    the state of their keys, unless --offset chooses records. Stop the query first: one that runs
    fails with COMMITS_FENCED at its next commit.
    """
    from keyrange.individual_commits.table import dead_letter_replay as replaying
    from keyrange.individual_commits.table import timer_replay
    from keyrange.individual_commits.table.commit_admin import check_current, user_name

    _check_chosen(chosen, bool(offset), everything or bool(since or error))
    named = named_options(bootstrap_servers, "", of.option)
    check_live(live, named)
    place, since_ms = letters_table(named, dead_letters), read_since(since, now())
    letters = replaying.open_letters(chosen.table, place, storage_of(named), replays=True)
    commits, _ = of.open(chosen.table, bootstrap_servers)
    own = check_current(commits, known := commits.table.known())
    having: dict[str, Any] = {"topic": chosen.topic or None, "partition": chosen.partition}
    with waiting(of.output) as bars:
        with bars.step("reading the dead letters") as advance:
            not_yet = letters.read(replayed=False, **having)
            found = replaying.chosen_letters(not_yet, own, "", error, since_ms)
            told = [] if offset else letters.timers(**having)
            told = replaying.chosen_letters(told, own, "", error, since_ms)
            advance(len(found) + len(told))
        found = _at(offset, found) if offset else found
        cuts = replaying.cuts_since(commits, found)
        gone = _gone(found, known, named) if live else [""] * len(found)
        wanted = [each for each, why_gone in zip(found, gone, strict=True) if not why_gone]
        planning = bars.over("planning", wanted, len(wanted))
        plan = replaying.plan_replay(known, planning, now(), commits.source_id, cuts)
        timers = timer_replay.plan_timers(commits, known, told)
        if checkpoint:
            check_no_batch_is_open(checkpoint, storage_of(named), commits.source_id)
        seq, by = None, who or user_name()
        if confirm and (count := len(plan.taken) + len(timers.taken)):
            state = (timers, _stored(chosen.table, known, named))
            with bars.step("writing what comes again", count):
                seq = replaying.replay(commits, letters, known, plan, by, why, now(), *state)
    left = [*plan.left, *((each, said) for each, said in zip(found, gone, strict=True) if said)]
    if of.output is OutputFormat.JSON:
        values = {"table": chosen.table, "written": seq, **_replayed(plan, left, timers)}
        print_document("deadletters.replay/1", values)
        return
    _print_replay((plan.taken, left), (timers.taken, timers.left), confirm)
    if confirm and plan.taken and seq is None:
        note("they were handed out again already; that is noted")
    else:
        say_what_is_next(commits, known, bool(plan.taken or timers.taken), seq)
    if timers.taken and not checkpoint:
        note(_MAY_BE_OPEN)


def _at(offsets: Sequence[int], letters: Sequence[DeadLetter]) -> list[DeadLetter]:
    """Those at some offsets; where there is none that is said."""
    found = [each for each in letters if each.offset in offsets]
    for each in sorted({*offsets} - {letter.offset for letter in found}):
        note(f"offset {each} is none of these dead letters, or came again already")
    return found


def _check_chosen(chosen: Chosen, has_offsets: bool, is_said: bool) -> None:
    if has_offsets and chosen.partition is None:
        raise typer.BadParameter("--offset needs --topic and --partition")
    if not (is_said or chosen.topic):
        raise typer.BadParameter("say which: --topic, --since, --error, or --all")


def _stored(table: str, known: Snapshot, named: Mapping[str, str]) -> StoredState:
    from keyrange.individual_commits.table.keyed_state_rows import StoredState, state_directory

    directory = state_directory(table, named)
    return StoredState(directory, known.runs_there, now(), storage_of(named))


def _replayed(
    plan: Replay, left: Sequence[tuple[DeadLetter, str]], timers: TimerReplay
) -> dict[str, Any]:
    """What is handed out again, and what is not and why, as JSON."""
    return {
        "replayed": [located(each) for each in plan.taken],
        "left": [{**located(each), "why": said} for each, said in left],
        "timers": [located(each) for each in timers.taken],
        "timers_left": [{**located(each), "why": said} for each, said in timers.left],
    }


def _print_replay(
    records: tuple[Sequence[DeadLetter], Sequence[tuple[DeadLetter, str]]],
    timers: tuple[Sequence[TimerLetter], Sequence[tuple[TimerLetter, str]]],
    confirm: bool,
) -> None:
    """What is handed out again, and what is not and why."""
    would = "are" if confirm else "would be"
    taken, left = records
    count = len(taken) + len(left)
    print_words(f"{len(taken):,} of {count:,} dead letters {would} handed out again")
    for each, said in left:
        print_words(f"{_named(each)} is not: {said}")
    if taken and not confirm:
        note(
            "a record that comes again comes behind later ones of its key: in a table with keys "
            "its row replaces theirs, and a window that is over is written once more"
        )
    set_again, not_set = timers
    if set_again or not_set:
        count = len(set_again) + len(not_set)
        print_words(f"{len(set_again):,} of {count:,} timers {would} set again")
    for timer, said in not_set:
        print_words(f"{_named(timer)} is not: {said}")


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
