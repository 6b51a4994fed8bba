"""`keyrange commits verify`: do the commits agree with themselves, with the sink, with the log?

Rule of this file: it reads and compares. Exit code 1 where something differs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from keyrange.cli.commits.commit_source import (
    Chosen,
    LettersOption,
    OfSourceShown,
    ask,
    first_commits,
    known_at,
    letters_table,
)
from keyrange.cli.exit_codes import ExitCode
from keyrange.cli.render import (
    Columns,
    Waiting,
    note,
    print_as,
    print_table,
    print_text,
    print_words,
    table_of,
    waiting,
)
from keyrange.cli.source_options import LiveOption, ServersOption, check_live, storage_of
from keyrange.errors import invalid_options
from keyrange.individual_commits.model.commit import Commit, Snapshot
from keyrange.model.commit_settings import OFFSET_HASH, CommitSettings
from keyrange.model.offset_splits import Split
from keyrange.model.offsets import OffsetRange, TopicPartition
from keyrange.report.page_parts import partition_name
from keyrange.text.formats import number

if TYPE_CHECKING:
    import pyarrow as pa

    from keyrange.cli.commits.recount import Log, Numbers, Recount
    from keyrange.individual_commits.table.commit_admin import Commits

_IDS = "topic,partition,offset"
_NOWHERE: Final[Mapping[str, Any]] = {"topic": None, "partition": None}


def verify(
    chosen: Chosen,
    sink: Annotated[
        str,
        typer.Option(metavar="PATH", help="The Delta table that the query writes: count it again."),
    ] = "",
    columns: Annotated[
        str, typer.Option(help="The sink's columns of topic, partition and offset.")
    ] = _IDS,
    begin: Annotated[
        int | None,
        typer.Option("--from", min=0, help="The offset that the query began at, if it is known."),
    ] = None,
    may_miss: Annotated[
        bool,
        typer.Option(
            "--may-miss",
            help="The job leaves records out: what the sink has not is counted, and no fault.",
        ),
    ] = False,
    dead_letters: LettersOption = "",
    last: Annotated[
        int, typer.Option(min=1, help="How many of the last commits are held against one another.")
    ] = 1000,
    live: LiveOption = False,
    bootstrap_servers: ServersOption = "",
    *,
    of: OfSourceShown,
) -> None:
    """Check the commits, and with --sink the records in the sink.

    The sink has to hold exactly the records that are done. Without --live the command takes every
    offset for a record; with it, it reads the log, so that offsets without a record (compaction,
    transactions) are not missed. Exit code 1: something differs.
    """
    from keyrange.individual_commits.table.record_ids import read_record_ids

    if len(columns.split(",")) != 3:
        raise typer.BadParameter(f"--columns takes three names, such as {_IDS}")
    commits, named = of.open(chosen.table, bootstrap_servers)
    known = chosen.of(known_at(commits, None))
    _check_sink(sink, live, commits, known)
    with waiting(of.output) as bars:
        findings = _contradictions(commits, known, last, bars)
        recounts: dict[TopicPartition, Recount] = {}
        if sink:
            dead = _dead(chosen.table, dead_letters, commits, known, named)
            names = [name.strip() for name in columns.split(",")]
            with bars.step("counting the rows of the sink") as advance:
                in_sink = read_record_ids(sink, names, storage_of(named), advance)
            logs = _logs(known, named, bars) if live else {}
            recounts = _recount(commits, known, in_sink, begin, dead, logs)
    agrees = not findings and all(each.agrees(may_miss) for each in recounts.values())
    document = {
        "table": chosen.table,
        "sink": sink or None,
        "source_id": commits.source_id,
        "seq": known.seq,
        "agrees": agrees,
        "commits": findings,
        "partitions": [_partition(partition, each) for partition, each in recounts.items()],
    }
    print_as(of.output, "commits.verify/1", document, lambda it: _print(it, live, may_miss))
    if not agrees:
        raise typer.Exit(ExitCode.FINDING)


def _check_sink(sink: str, live: bool, commits: Commits, known: Snapshot) -> None:
    """Raises typer.BadParameter (exit code 2) where there is none to read the log for, and
    INVALID_OPTIONS where nothing is known of what it should hold."""
    if live and not sink:
        raise typer.BadParameter("--live reads the log for a recount of --sink: name the sink")
    if sink and not known.states:
        text = f"committed no batch yet: there is nothing to hold {sink} against"
        raise invalid_options(f"source {commits.source_id} has {text}")


def _contradictions(
    commits: Commits, known: Snapshot, last: int, bars: Waiting
) -> list[dict[str, Any]]:
    """What the last commits say of the chosen partitions that cannot be."""
    from keyrange.individual_commits.model.auditing import Handovers, audit
    from keyrange.individual_commits.model.range_claims import is_of_consumer

    if known.seq > last:
        note(f"of {known.seq:,} commits the last {last:,} are looked at; --last takes more")
    history = commits.table.history(max(known.seq - last + 1, 1))
    shown = bars.over("reading the commits", history, min(known.seq, last))
    others: dict[str, list[Commit]] = {}
    for source, table in commits.of_group.items() if is_of_consumer(commits.source_id) else ():
        others[source] = list(table.history(max(table.known().seq - last + 1, 1)))
    found = audit(shown, Handovers(others))
    return [
        {
            "seq": each.seq,
            **(each.partition._asdict() if each.partition else _NOWHERE),
            "said": each.said,
        }
        for each in found
        if each.partition is None or each.partition in known.states
    ]


def _logs(known: Snapshot, named: Mapping[str, str], bars: Waiting) -> dict[TopicPartition, Log]:
    """The offsets of the records below the positions, and where their keys lie."""
    import numpy as np

    from keyrange.cli.commits.recount import Log
    from keyrange.kafka.fetching.fetch import SplitReader
    from keyrange.kafka.fetching.read_settings import read_settings

    check_live(True, named)
    terms = known.terms or CommitSettings()
    wanted = {"nullKeys": terms.null_keys, "columns": "topic,partition,offset,keyHash"}
    wanted |= {name: value for name, value in named.items() if name.lower() == "failondataloss"}
    found: dict[TopicPartition, Log] = {}
    with ask(named, known.states, wanted) as live:
        settings = read_settings(live.options, terms.hash == OFFSET_HASH)
        reader = SplitReader(live.cluster, live.view, settings)
        for partition, held in sorted(live.logs().items()):
            until = max(min(known.states[partition].position, held.until_offset), held.from_offset)
            span = OffsetRange(held.from_offset, until)
            pieces = [(np.empty(0, np.int64), np.empty(0, np.int64))]
            if span.size:
                split = Split(partition, span.from_offset, span.until_offset, bytes_estimate=0)
                with bars.step(f"reading {partition}", span.size) as advance:
                    for batch in reader.read([split]):
                        pieces.append(_columns(batch))
                        advance(batch.num_rows)
            offsets, key_hashes = map(np.concatenate, zip(*pieces, strict=True))
            found[partition] = Log(span, offsets, key_hashes)
            note(f"{partition}: {len(offsets):,} records in {span} of the log")
    return found


def _columns(batch: pa.RecordBatch) -> tuple[Numbers, Numbers]:
    # Copied: a batch's buffers may be filled anew.
    offsets = batch.column("offset").to_numpy(zero_copy_only=False).copy()
    return offsets, batch.column("keyHash").to_numpy(zero_copy_only=False).copy()


def _begins(commits: Commits, known: Snapshot) -> dict[TopicPartition, int]:
    """Where each partition began: by its first commit, and of a group as its consumers say."""
    from keyrange.individual_commits.table.consumer_group import consumer_group

    if (group := consumer_group(commits)) is not None:
        return {each: group.begun(each) for each in known.states}
    first = first_commits(commits, known.seq, known.states)
    return {each: _began_at(first[each], each) for each in known.states}


def _began_at(commit: Commit, partition: TopicPartition) -> int:
    """Where the first commit of a partition began: it counts what lies behind that."""
    state = commit.states[partition]
    counts = commit.counts.get(partition)
    if counts is None:
        return state.committed
    handed_out = counts.done + counts.rejected + counts.held_back + counts.dead
    return max(min(state.position - handed_out, state.committed), 0)


def _recount(
    commits: Commits,
    known: Snapshot,
    in_sink: Mapping[TopicPartition, Numbers],
    given: int | None,
    dead: Mapping[TopicPartition, Numbers],
    logs: Mapping[TopicPartition, Log],
) -> dict[TopicPartition, Recount]:
    """Each partition from where the query began to read it: as it is given, or by its first commit
    and the first row in the sink."""
    import numpy as np

    from keyrange.cli.commits.recount import recount

    nothing = np.empty(0, np.int64)
    transactional = known.terms is not None and known.terms.isolation == "transactional"
    begins = _begins(commits, known)
    found: dict[TopicPartition, Recount] = {}
    for partition, state in sorted(known.states.items()):
        rows = in_sink.get(partition, nothing)
        begin = given
        if begin is None:
            begin = min([begins[partition], *map(int, rows[:1])])
        letters, log = dead.get(partition, nothing), logs.get(partition)
        found[partition] = recount(state, rows, begin, letters, transactional, log)
    topics = {partition.topic for partition in known.states}
    for partition in sorted(in_sink.keys() - known.states.keys()):
        if partition.topic in topics:
            note(
                f"the sink holds {len(in_sink[partition]):,} rows of {partition}, which is not "
                "looked at"
            )
    return found


def _dead(
    table: str, dead_letters: str, commits: Commits, known: Snapshot, named: Mapping[str, str]
) -> dict[TopicPartition, Numbers]:
    """The offsets that lie in the dead letters of the group, those aside that were handed out again
    since. A source that was started afresh goes on with what those before it gave up."""
    import numpy as np

    from keyrange.individual_commits.table.dead_letter_replay import chosen_letters, open_letters

    last = commits.last(known.seq)
    place = letters_table(named, dead_letters)
    letters = open_letters(table, place, storage_of(named)).read()
    of_group = chosen_letters(letters, last.group if last is not None else "")
    found: dict[TopicPartition, dict[int, bool]] = {}
    for letter in sorted(of_group, key=lambda each: (each.written_at_ms, each.batch_id)):
        partition = TopicPartition(letter.topic, letter.partition)
        state = known.states.get(partition)
        if state is None or not letter.topic_id or letter.topic_id == state.topic_id:
            found.setdefault(partition, {})[letter.offset] = letter.replayed_by is None
    return {
        partition: np.array(sorted(at for at, dead in offsets.items() if dead), np.int64)
        for partition, offsets in found.items()
    }


def _partition(partition: TopicPartition, found: Recount) -> dict[str, Any]:
    document = asdict(found)
    return {**partition._asdict(), **document.pop("judged"), **document}


_CONTRADICTIONS: Final[Columns] = {
    "seq": "seq",
    "partition": lambda row: partition_name(row) if row["topic"] else None,
    "what": "said",
}
_RECOUNT: Final[Columns] = {
    "partition": partition_name,
    "offsets": lambda row: f"[{row['from_offset']}, {row['until_offset']})",
    "in the sink": lambda row: number(row["in_sink"]),
    "missing": lambda row: number(row["missing"]["count"]),
    "doubled": lambda row: number(row["doubled"]["count"]),
    "unexpected": lambda row: number(sum(each["count"] for each in row["unexpected"].values())),
}


def _print(document: Mapping[str, Any], live: bool, may_miss: bool) -> None:
    if document["commits"]:
        said = table_of(_CONTRADICTIONS, document["commits"])
        print_table("The commits contradict each other", *said)
    rows = document["partitions"]
    if rows:
        print_table(f"Recount of {document['sink']}", *table_of(_RECOUNT, rows))
    for row in rows:
        for what in ("missing", "doubled"):
            _examples(f"{partition_name(row)} {what}", row[what])
        for why, offsets in row["unexpected"].items():
            _examples(f"{partition_name(row)} unexpected ({why})", offsets)
        if row["unsure"]:
            note(f"{partition_name(row)}: {row['unsure']:,} rows cannot be judged without --live")
    if not live and not may_miss and any(row["missing"]["count"] for row in rows):
        note("what is missing may be no record at all: --live asks the log")
    print_text("everything agrees" if document["agrees"] else "there are differences")


def _examples(what: str, offsets: Mapping[str, Any]) -> None:
    if offsets["count"]:
        left = offsets["count"] - len(offsets["offsets"])
        more = f" and {left:,} more" if left else ""
        print_words(f"{what}: {', '.join(map(str, offsets['offsets']))}{more}")
