"""`keyrange state import`: what a query's keys have before its first batch.

Rule of this file: it reads what it is given, asks the broker for topics, and with --confirm alone
writes files of states and one commit; no Spark.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from keyrange.cli.commits.commit_source import GroupOption, TableArgument
from keyrange.cli.commits.reset import ConfirmOption, WhoOption
from keyrange.cli.render import (
    Advance,
    Columns,
    OutputFormat,
    OutputOption,
    note,
    print_as,
    print_table,
    print_words,
    table_of,
    waiting,
)
from keyrange.cli.source_options import (
    GivenSource,
    connected,
    folded,
    names,
    of_kafka,
    storage_of,
)
from keyrange.cli.values import now
from keyrange.model.state_scope import StateScope
from keyrange.report.page_parts import partition_name
from keyrange.text.formats import counted, number, size_text

if TYPE_CHECKING:
    import pyarrow as pa

    from keyrange.individual_commits.table.initial_import import Imported
    from keyrange.individual_commits.table.initial_state import InitialState, InitialTopic

FromOption = Annotated[
    list[str],
    typer.Option(
        "--from",
        metavar="PATH",
        help="A Delta table, a Parquet file (may be given several times), or a directory of such "
        "files.",
    ),
]
VariableOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="VARIABLE",
        help="A variable of the job's state, as `state show` prints it: 'total: value of n long', "
        "'seen: map of id string -> at timestamp, for 30d'. May be given several times. Files of "
        "`state export` say it themselves, and so do columns that are structs.",
    ),
]


def import_state(
    table: TableArgument,
    source: FromOption,
    variable: VariableOption = None,
    group: GroupOption = "",
    who: WhoOption = "",
    confirm: ConfirmOption = False,
    *,
    given: GivenSource,
    output: OutputOption = OutputFormat.TEXT,
) -> None:
    """Import the state that a query begins with, before its first batch.

    Rows have a column key (binary, or a text) and a column for each variable. The command puts each
    key into the partition that Kafka's default partitioner chooses; a column partition says
    otherwise, and a column topic where there are several. It refuses a group that has commits.
    Without --confirm it checks all rows and prints what it would import.
    """
    from keyrange.cli.state.given_variables import form_of_rows
    from keyrange.individual_commits.table.commit_admin import user_name
    from keyrange.individual_commits.table.initial_import import Import, import_rows, try_rows
    from keyrange.keyed_state.initial_rows import InitialRows
    from keyrange.keyed_state.initial_runs import SEQ
    from keyrange.storage.given_rows import given_rows

    named = given.named()
    if not given.topic or not names(named, "kafka.bootstrap.servers"):
        raise typer.BadParameter("--topic and --bootstrap-servers say which partitions there are")
    rows = given_rows(source, storage_of(named))
    form = form_of_rows(rows.columns, variable or [])
    state = _opened(table, group, named)
    state.begin()
    topics = _topics(named)
    at = now()
    reader = InitialRows(form, rows.columns, state.homes(topics), at)
    with waiting(output) as bars, bars.step("reading", rows.count) as advance:
        counted = replace(rows, batches=lambda: _counted(rows.batches(), advance))
        if confirm:
            said = Import(who or user_name(), ", ".join(source), at)
            done = import_rows(state, reader, topics, counted, said)
        else:
            done = try_rows(state, reader, counted, at)
    variables = [
        {"name": each.name, "kind": each.kind, "type": each.ddl, "ttl_ms": each.ttl_ms}
        for each in form.variables
    ]
    document = {
        **_document(table, state, topics, done),
        "variables": variables,
        "written": SEQ if confirm else None,
    }
    print_as(output, "state.import/1", document, _show)


def _opened(table: str, group: str, named: Mapping[str, str]) -> InitialState:
    from keyrange.individual_commits.table.commit_table import LAYOUT, DeltaCommitTable
    from keyrange.individual_commits.table.initial_state import InitialState, import_source
    from keyrange.individual_commits.table.keyed_state_rows import state_directory
    from keyrange.storage.delta_store import DeltaStore

    storage, options = storage_of(named), folded(named)
    # As options of a query have it.
    group = group or options.get("commitgroup") or options.get("kafka.group.id") or "default"
    store = DeltaStore(table, LAYOUT, storage)
    return InitialState(
        group,
        DeltaCommitTable(store, import_source(group)),
        state_directory(table, named),
        storage,
        StateScope(options.get("state.topic", "")),
    )


def _topics(named: Mapping[str, str]) -> dict[str, InitialTopic]:
    from keyrange.individual_commits.table.initial_state import InitialTopic

    wanted = folded(named)["subscribe"]
    with connected({**of_kafka(named), "subscribe": wanted}) as (_, cluster):
        view = cluster.describe([each.strip() for each in wanted.split(",")])
    return {
        name: InitialTopic(each.topic_id, len(each.leaders)) for name, each in view.topics.items()
    }


def _counted(batches: Iterator[pa.RecordBatch], advance: Advance) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch
        advance(batch.num_rows)


def _document(
    table: str, state: InitialState, topics: Mapping[str, InitialTopic], done: Imported
) -> dict[str, Any]:
    partitions = [
        {
            **partition._asdict(),
            "keys": sum(each.run.rows for each in done.runs if each.partition == partition),
            "bytes": sum(each.run.size_bytes for each in done.runs if each.partition == partition),
        }
        for partition in sorted({each.partition for each in done.runs})
    ]
    return {
        "table": table,
        "group": state.group,
        "source_id": state.source_id,
        "directory": state.directory,
        "topics": [{"topic": name, "partitions": each.partitions} for name, each in topics.items()],
        "keys": done.keys,
        "without_value": done.empty,
        "partitions": partitions,
    }


_COLUMNS: Final[Columns] = {
    "partition": partition_name,
    "keys": lambda row: number(row["keys"]),
    "size": lambda row: size_text(row["bytes"]),
}


def _show(document: Mapping[str, Any]) -> None:
    keys, group = counted(document["keys"], "key"), document["group"]
    did = "Would import" if document["written"] is None else "Imported"
    print_words(f"{did} {keys} for group {group} into {document['directory']}")
    rows: Sequence[Mapping[str, Any]] = document["partitions"]
    print_table("Partitions", *table_of(_COLUMNS, rows))
    if document["without_value"]:
        note(f"{counted(document['without_value'], 'row')} had a key and no value: left out")
    if document["written"] is None:
        note("nothing was written: --confirm does it")
