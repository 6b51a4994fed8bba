"""`keyrange deadletters`: records that were given up, and how they are handed out again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from keyrange.cli.commits.commit_source import (
    GroupOption,
    LettersOption,
    SourceOption,
    TableArgument,
    ask,
    open_commits,
)
from keyrange.cli.commits.reset import (
    CheckpointOption,
    ConfirmOption,
    WhoOption,
    WhyOption,
    check_no_batch_is_open,
    say_what_is_next,
)
from keyrange.cli.deadletters.document import document, fields_of, located, print_letters
from keyrange.cli.render import (
    LimitOption,
    OutputFormat,
    OutputOption,
    note,
    print_document,
    print_record,
    print_words,
)
from keyrange.cli.source_options import (
    LiveOption,
    PartitionOption,
    ServersOption,
    SourceOptionsOption,
    TopicOption,
    check_live,
    check_partition,
    named_options,
    read_record_id,
    storage_of,
)
from keyrange.cli.times import SinceOption, now, read_since
from keyrange.cli.waiting import Waiting, waiting
from keyrange.errors import invalid_options
from keyrange.individual_commits.model.commit import Snapshot
from keyrange.kafka.model.offsets import TopicPartition

if TYPE_CHECKING:
    from keyrange.individual_commits.table.dead_letters import DeadLetter, DeadLetters

ErrorOption = Annotated[
    str, typer.Option("--error", help="Only those whose error holds this text.")
]

app = typer.Typer(
    no_args_is_help=True, help="Show and replay dead letters: records that were given up."
)


class Status(StrEnum):
    DEAD = "dead"
    REPLAYED = "replayed"
    ALL = "all"


@app.command("list")
def list_letters(
    table: TableArgument,
    topic: TopicOption = "",
    partition: PartitionOption = None,
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
    group: GroupOption = "",
    source: SourceOption = "",
    option: SourceOptionsOption = None,
    output: OutputOption = OutputFormat.TEXT,
) -> None:
    """List the dead letters, by topic, partition and offset.

    JSON has keys, values and headers too.
    """
    from keyrange.individual_commits.table.dead_letter_replay import chosen_letters, open_letters

    check_partition(topic, partition)
    since_ms = read_since(since, now())
    letters = open_letters(table, dead_letters, storage_of(named_options("", "", option)))
    replayed = None if status is Status.ALL else status is Status.REPLAYED
    all_of = letters.read(topic=topic or None, partition=partition, replayed=replayed)
    found = chosen_letters(all_of, group, source, error, since_ms)
    if output is OutputFormat.JSON:
        letters_found = [document(each) for each in found[:limit]]
        print_document("deadletters.list/1", {"table": table, "dead_letters": letters_found})
    else:
        print_letters(found[:limit])
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
    group: GroupOption = "",
    source: SourceOption = "",
    option: SourceOptionsOption = None,
    output: OutputOption = OutputFormat.TEXT,
) -> None:
    """Show one dead letter in full.

    The command prints it once for each time that it was given up.
    """
    from keyrange.individual_commits.table.dead_letter_replay import chosen_letters, open_letters

    name, number, at = read_record_id(record, "the record")
    letters = open_letters(table, dead_letters, storage_of(named_options("", "", option)))
    of_record = letters.read(topic=name, partition=number, offset=at)
    found = chosen_letters(of_record, group, source, "", 0)
    if not found:
        raise invalid_options([f"offset {at} of {name}-{number} is no dead letter"])
    if output is OutputFormat.JSON:
        letters_found = [document(each) for each in found]
        print_document("deadletters.show/1", {"table": table, "dead_letters": letters_found})
        return
    for each in found:
        print_record(f"{name}-{number}, offset {at}", fields_of(each, characters))


@app.command()
def replay(
    table: TableArgument,
    topic: TopicOption = "",
    partition: PartitionOption = None,
    offset: Annotated[
        list[int] | None, typer.Option("--offset", min=0, help="Only this one; several times.")
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
    group: GroupOption = "",
    source: SourceOption = "",
    option: SourceOptionsOption = None,
    output: OutputOption = OutputFormat.TEXT,
) -> None:
    """Deliver dead letters again, in the next batch of the query.

    The query works on them as if they came for the first time. It reads them from Kafka: with
    --live the command checks that Kafka still has them. Stop the query first: one that runs fails
    with COMMITS_FENCED at its next commit.
    """
    from keyrange.individual_commits.table import dead_letter_replay
    from keyrange.individual_commits.table.commit_admin import check_current, user_name

    check_partition(topic, partition)
    if offset and partition is None:
        raise typer.BadParameter("--offset needs --topic and --partition")
    if not (everything or topic or since or error):
        raise typer.BadParameter("say which: --topic, --since, --error, or --all")
    named = named_options(bootstrap_servers, "", option)
    check_live(live, named)
    since_ms = read_since(since, now())
    letters = dead_letter_replay.open_letters(table, dead_letters, storage_of(named))
    commits = open_commits(table, group, source, named)
    known = commits.table.known()
    own = check_current(commits, known)
    having = {"topic": topic or None, "partition": partition}
    with waiting(output) as bars:
        found = _read(letters, having, own, error, since_ms, bars)
        found = [each for each in found if not offset or each.offset in offset]
        cuts = dead_letter_replay.cuts_since(commits, found)
        gone = _gone(found, known, named) if live else {}
        wanted = [each for each in found if _name(each) not in gone]
        planning = bars.over("planning", wanted, len(wanted))
        plan = dead_letter_replay.plan_replay(known, planning, now(), commits.source_id, cuts)
        if checkpoint:
            check_no_batch_is_open(checkpoint, storage_of(named))
        seq, by = None, who or user_name()
        if confirm and plan.taken:
            with bars.step("writing what comes again", len(plan.taken)):
                seq = dead_letter_replay.replay(commits, letters, known, plan, by, why, now())
    left = [*plan.left, *((each, gone[_name(each)]) for each in found if _name(each) in gone)]
    if output is OutputFormat.JSON:
        rest = [{**located(each), "why": said} for each, said in left]
        values = {"written": seq, "replayed": [located(each) for each in plan.taken], "left": rest}
        print_document("deadletters.replay/1", {"table": table, **values})
        return
    _print_replay(len(plan.taken), len(found), left, confirm)
    if confirm and plan.taken and seq is None:
        note("they were handed out again already; that is noted")
    else:
        say_what_is_next(commits, known, bool(plan.taken), seq)


def _read(
    letters: DeadLetters,
    having: Mapping[str, Any],
    group: str,
    error: str,
    since_ms: int,
    bars: Waiting,
) -> list[DeadLetter]:
    from keyrange.individual_commits.table.dead_letter_replay import chosen_letters

    with bars.step("reading the dead letters") as advance:
        found = chosen_letters(letters.read(replayed=False, **having), group, "", error, since_ms)
        advance(len(found))
    return found


def _print_replay(
    taken: int, found: int, left: Sequence[tuple[DeadLetter, str]], confirm: bool
) -> None:
    would = "are" if confirm else "would be"
    print_words(f"{taken:,} of {found:,} dead letters {would} handed out again")
    for each, said in left:
        print_words(f"{each.topic}-{each.partition}, offset {each.offset} is not: {said}")


def _name(letter: DeadLetter) -> tuple[str, int, int]:
    return letter.topic, letter.partition, letter.offset


def _gone(
    letters: Sequence[DeadLetter], known: Snapshot, named: Mapping[str, str]
) -> dict[tuple[str, int, int], str]:
    """Why Kafka cannot hand out some of the records any more."""
    partitions = {TopicPartition(each.topic, each.partition) for each in letters}
    states = {
        partition: state for partition, state in known.states.items() if partition in partitions
    }
    with ask(named, states) as asked:
        logs = asked.logs()
    gone = {}
    for each in letters:
        log = logs.get(TopicPartition(each.topic, each.partition))
        if log is None:
            gone[_name(each)] = "Kafka does not have its partition any more"
        elif not log.from_offset <= each.offset < log.until_offset:
            gone[_name(each)] = f"the log holds {log}"
    return gone
