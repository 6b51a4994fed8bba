"""`keyrange state`: what a job keeps for keys, as the commits of its query name it.

Rule of this file: it reads a commit table and files of states, and prints; no Spark and no broker.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from keyrange.cli.commits.commit_source import AtOption, Chosen, OfSource, OfSourceShown, known_at
from keyrange.cli.exit_codes import ExitCode
from keyrange.cli.render import (
    Columns,
    LimitOption,
    OutputFormat,
    OutputOption,
    by_name,
    note,
    print_as,
    print_document,
    print_table,
    print_text,
    print_words,
    table_of,
    waiting,
)
from keyrange.cli.source_options import ServersOption, folded, named_options, storage_of
from keyrange.cli.state.importing import import_state
from keyrange.cli.state.serve import serve
from keyrange.cli.state.verify import (
    KEYED_MODES,
    described,
    differ,
    differences,
    find_function,
    jsonable,
    print_fold,
    print_states,
    state_row,
    verify_fold,
)
from keyrange.cli.values import KeyOption, in_json, iso, now, read_key, short_key
from keyrange.errors import KeyrangeError, invalid_options
from keyrange.individual_commits.model.commit import Snapshot
from keyrange.report.page_parts import partition_name
from keyrange.text.formats import counted, exact_span, number, size_text

if TYPE_CHECKING:
    from keyrange.individual_commits.table.commit_admin import Commits
    from keyrange.individual_commits.table.keyed_state_rows import StoredState

app = typer.Typer(
    no_args_is_help=True,
    help="Show and check the state that a job keeps for keys.",
)


@app.command()
def show(
    chosen: Chosen,
    count: Annotated[
        bool, typer.Option("--count/--no-count", help="Count the keys, which reads all of them.")
    ] = True,
    at: AtOption = None,
    *,
    of: OfSourceShown,
) -> None:
    """Show how many keys each partition keeps state for, and its size.

    JSON has the files that the state lies in too.
    """
    from keyrange.keyed_state.cache import copies_of
    from keyrange.keyed_state.variables import OWN
    from keyrange.members.slot_directories import slots_directory

    known, stored, commits = _opened(chosen, at, of)
    slots = slots_directory(folded(named_options("", "", of.option)).get("slot.directory", ""))
    groups = known.scope.groups(known.states)
    with waiting(of.output) as bars:
        partitions = [
            described(
                *(stored, each, sum(b.num_rows for b in stored.rows(each)) if count else None),
                *(known, groups[each]),
            )
            for each in bars.over("reading the state", sorted(stored.runs), len(stored.runs))
        ]
    document = {
        "table": chosen.table,
        "directory": stored.directory,
        "copies": str(copies_of(slots, commits.source_id)),
        "seq": known.seq,
        "batch_id": known.batch_id if known.batch_id >= 0 else None,
        "variables": [
            {"name": each.name, "kind": each.kind, "type": each.ddl, "ttl_ms": each.ttl_ms}
            | {"made_by": each.definition or None, "own": OWN.get(each.name)}
            for each in stored.form.variables
        ],
        "partitions": partitions,
    }
    print_as(of.output, "state.show/1", document, _show)


def _show(document: Mapping[str, Any]) -> None:
    seq, batch = document["seq"], document["batch_id"]
    print_words(f"State at commit {seq}, batch {batch}, in {document['directory']}")
    for each in document["variables"]:
        ttl = f", for {exact_span(each['ttl_ms'])}" if each["ttl_ms"] else ""
        told = f"{each['kind']} of {each['type']}{ttl}"
        told = f"keyrange's own, {each['own']}" if each["own"] else told
        made_by = f", made by {each['made_by']}" if each["made_by"] else ""
        print_words(f"  {each['name']}: {told}{made_by}")
    columns: Columns = {
        "partition": partition_name,
        "keys": lambda row: number(row["keys"]),
        "size": lambda row: size_text(row["bytes"]),
    }
    of_time = ("watermark", "late", "next_timer", "next_retry")
    if any(row[name] for name in of_time for row in document["partitions"]):
        columns = {**columns, **by_name(*of_time, "pending")}
    print_table("Partitions", *table_of(columns, document["partitions"]))


@app.command("list")
def list_keys(
    chosen: Chosen, at: AtOption = None, limit: LimitOption = 20, *, of: OfSourceShown
) -> None:
    """List keys with their state, by partition and by the hash of the key."""
    from keyrange.individual_commits.table.keyed_state_rows import plain_rows

    known, stored, _ = _opened(chosen, at, of)
    rows: list[dict[str, Any]] = []
    keys = 0
    for each in sorted(stored.runs):
        for block in stored.rows(each):
            keys += block.num_rows
            first = block.slice(0, limit - len(rows))
            rows += (state_row(each, key, state=it) for key, it in plain_rows(first, stored.form))
    document = {"table": chosen.table, "seq": known.seq, "keys": keys, "rows": rows}
    title = f"at commit {known.seq}"
    print_as(of.output, "state.list/1", document, lambda it: print_states(it["rows"], state=title))
    if keys > len(rows):
        note(f"{counted(keys - len(rows), 'more key')}; --limit shows more")


@app.command()
def get(key: KeyOption, chosen: Chosen, at: AtOption = None, *, of: OfSourceShown) -> None:
    """Show the state of a key, in each partition that has it."""
    known, stored, _ = _opened(chosen, at, of)
    wanted = _key(key)
    found = [
        {**each._asdict(), "state": jsonable(values)}
        for each in sorted(stored.runs)
        if (values := stored.of_key(each, wanted)) is not None
    ]
    document = {"table": chosen.table, "seq": known.seq, "key": in_json(wanted), "states": found}
    print_as(of.output, "state.get/1", document, lambda _: _show_key(found, wanted, known.seq))


def _show_key(states: Sequence[Mapping[str, Any]], key: bytes, seq: int) -> None:
    for row in states:
        print_text(partition_name(row))
        for name, value in row["state"].items():
            print_text(f"  {name} = {value}")
    if not states:
        note(f"no partition keeps anything for {short_key(key)} at commit {seq}")


@app.command()
def history(key: KeyOption, chosen: Chosen, limit: LimitOption = 20, *, of: OfSourceShown) -> None:
    """List the state of a key after each commit that changed it.

    The newest comes first.
    """
    known, stored, commits = _opened(chosen, None, of)
    wanted = _key(key)
    rows = list(islice(_changes(commits, known, stored, wanted), limit))
    document = {"table": chosen.table, "key": in_json(wanted), "rows": rows}
    title, shown = f"State of {short_key(wanted)}", table_of(_HISTORY, rows)
    print_as(of.output, "state.history/1", document, lambda _: print_table(title, *shown))


_HISTORY: Final[Columns] = {
    "commit": "seq",
    "batch": "batch_id",
    "at": "committed_at",
    "partition": partition_name,
    "state": lambda row: "none" if row["state"] is None else row["state"],
}


def _changes(
    commits: Commits, known: Snapshot, stored: StoredState, key: bytes
) -> Iterator[dict[str, Any]]:
    """Back through the commits until files are not kept any more."""
    for commit in commits.table.backwards(known.seq):
        before = commits.table.known(commit.seq - 1)
        for at in sorted(commit.runs.keys() & known.states.keys()):
            topic_id = known.states[at].topic_id
            runs = before.runs_of(at, topic_id), commit.runs[at]
            # What an earlier topic of that name had is not its own.
            is_other = topic_id and commit.states[at].topic_id not in ("", topic_id)
            if is_other or runs[0] == runs[1]:
                continue
            try:
                # What had expired by then is no change of this commit's.
                was, is_now = (
                    stored.at({at: each}, commit.committed_at_ms).of_key(at, key) for each in runs
                )
            except KeyrangeError as failure:
                note(f"earlier commits are not shown: {failure}")
                return
            if differ(was, is_now):
                yield {
                    "seq": commit.seq,
                    "batch_id": commit.batch_id if commit.batch_id >= 0 else None,
                    "committed_at": iso(commit.committed_at_ms),
                    **at._asdict(),
                    "state": None if is_now is None else jsonable(is_now),
                }


@app.command()
def diff(
    since: Annotated[
        int, typer.Option("--from", metavar="SEQ", min=1, help="As of this commit before.")
    ],
    chosen: Chosen,
    at: AtOption = None,
    limit: LimitOption = 20,
    *,
    of: OfSourceShown,
) -> None:
    """List the keys whose state differs between two commits."""
    known, stored, commits = _opened(chosen, at, of)
    then, last = known_at(commits, since, "--from").runs, commits.last(since)
    assert last is not None
    # Also those whose state is gone, as a reset takes it back to before there was any.
    runs = {each: then.get(each, ()) for each in known.states}
    before = stored.at(runs, last.committed_at_ms)
    counts = {"new": 0, "changed": 0, "gone": 0}
    rows: list[dict[str, Any]] = []
    for each in sorted(before.runs):
        for key, was, is_now in differences(before, stored, each):
            what = "new" if was is None else "gone" if is_now is None else "changed"
            counts[what] += 1
            if len(rows) < limit:
                rows.append(state_row(each, key, before=was, after=is_now))
    seqs = {"table": chosen.table, "from_seq": since, "seq": known.seq}
    if of.output is OutputFormat.JSON:
        print_document("state.diff/1", {**seqs, **counts, "rows": rows})
        return
    print_words(", ".join(f"{number(found)} keys {what}" for what, found in counts.items()))
    print_states(rows, before=f"at commit {since}", after=f"at {known.seq}")


@app.command()
def export(
    to: Annotated[str, typer.Option(help="A Parquet file that is not there yet: a path or URI.")],
    chosen: Chosen,
    at: AtOption = None,
    *,
    of: OfSource,
) -> None:
    """Write the state to a Parquet file.

    Its columns are topic, partition, key, and one for each variable. `state import` reads it.
    """
    import pyarrow.parquet as pq

    from keyrange.storage.directory import file_at

    known, stored, _ = _opened(chosen, at, of)
    try:
        directory, name = file_at(to, stored.storage)
    except ValueError as failure:
        raise invalid_options(f"--to {failure}") from None
    if directory.size(name) is not None:
        raise invalid_options(f"--to {to} is there already")
    rows, file = 0, directory.create(name)
    try:
        with file, pq.ParquetWriter(file, stored.columns, compression="zstd") as writer:
            for each in sorted(stored.runs):
                for block in stored.table_rows(each):
                    writer.write_batch(block)
                    rows += block.num_rows
    except BaseException:
        # The writer has closed it: it would look whole, and `state import` would take it.
        with suppress(OSError):
            directory.remove_files([name])
        raise
    note(f"{rows:,} keys at commit {known.seq} are in {to}")


app.command("import")(import_state)
app.command()(serve)


@app.command()
def verify(
    chosen: Chosen,
    at: AtOption = None,
    *,
    of: OfSource,
    function: Annotated[
        str,
        typer.Option(
            metavar="MODULE:NAME",
            help="The job's function: read the log once more, and say which keys' state is not "
            "what it makes of the records. Needs --bootstrap-servers.",
        ),
    ] = "",
    mode: Annotated[str, typer.Option(help="record or arrow, as of the job.")] = "record",
    since: Annotated[
        int | None,
        typer.Option(
            "--from",
            metavar="SEQ",
            min=1,
            help="With --function: begin with the state at this commit, not at the first one that "
            "is kept.",
        ),
    ] = None,
    bootstrap_servers: ServersOption = "",
    output: OutputOption = OutputFormat.TEXT,
) -> None:
    """Check the files of the state that a commit names.

    The command reads every file, and checks checksums, order and hashes of keys. With --function it
    computes the state once more from the log. Exit code 1: something is wrong.
    """
    if mode not in KEYED_MODES:
        raise typer.BadParameter("--mode: it is record or arrow")
    found_function = find_function(function) if function else None
    known, stored, commits = _opened(chosen, at, of)
    checked = list(stored.check())
    rows, files = sum(read for _, read, _ in checked), {file for file, _, _ in checked}
    wrong = [failure for _, _, failure in checked if failure]
    made = None
    if found_function is not None and not wrong:
        named = named_options(bootstrap_servers, "", of.option)
        made = verify_fold(commits, known, stored, found_function, mode, since, named)
    if output is OutputFormat.JSON:
        document = {"table": chosen.table, "seq": known.seq, "files": len(files), "rows": rows}
        print_document("state.verify/1", {**document, "failures": wrong, "fold": made})
    else:
        print_words(f"{number(len(files))} files, {number(rows)} rows at commit {known.seq}")
        for failure in wrong:
            print_words(f"  {failure}")
        print_text("all is as it was written" if not wrong else f"{len(wrong)} are not")
        if made is not None:
            print_fold(made)
    if wrong or (made is not None and (made["differing"] or made["failed"])):
        raise typer.Exit(ExitCode.FINDING)


def _opened(chosen: Chosen, at: int | None, of: OfSource) -> tuple[Snapshot, StoredState, Commits]:
    from keyrange.individual_commits.table.keyed_state_rows import (
        StoredState,
        no_state,
        state_directory,
    )

    commits, named = of.open(chosen.table)
    whole = known_at(commits, at)
    known = chosen.of(whole)
    runs = {each: runs for each, runs in whole.runs_there.items() if each in known.states}
    then = None if at is None else commits.last(at)
    time_ms = now() if then is None else then.committed_at_ms
    if not runs:
        raise no_state(known.seq, chosen.table)
    directory = state_directory(chosen.table, named)
    return known, StoredState(directory, runs, time_ms, storage_of(named)), commits


def _key(text: str) -> bytes:
    if (key := read_key(text)) is None:
        raise typer.BadParameter("--key: records without a key have no state")
    return key
