"""The tables of a job, by what `into` is given, before its query starts.

A job has one table, which is called "", or several by the names that its function answers with. An
argument of `into` is for all of them, or a mapping from names to what it is for each.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from os import PathLike, fspath
from typing import Any, Final

from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from keyrange.errors import invalid_options
from keyrange.individual_commits.table_output import other_zone, writers_of
from keyrange.jobs.key_columns import key_columns
from keyrange.jobs.query_table import check_checkpoint
from keyrange.jobs.table_names import is_name, path_of
from keyrange.jobs.topic import Topic
from keyrange.model.value_forms import DELETED, KEPT
from keyrange.options.locations import normalized
from keyrange.sending.topic_address import TopicAddress
from keyrange.storage.model.partition_columns import PartitionColumn, partition_columns
from keyrange.storage.model.writer_rules import OWN, SPARK
from keyrange.storage.write_by_spark import has_delta
from keyrange.work.model.output_table import OutputTable

_PATH: Final = (str, PathLike)
# Arguments of tables as they are where nobody gives them.
_NOT_GIVEN: Final = (None, "", "none")

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TableArguments:
    """What `into` is given for one table, called `name` in messages."""

    name: str
    table: Any
    partition_by: Any = None
    moved_from: Any = ""
    evolve: Any = "none"
    keys: Any = None
    deletes: Any = None

    @property
    def label(self) -> str:
        """What messages call the table."""
        return f"table {self.name!r}" if self.name else "table"

    def wrong_types(self) -> Iterator[str]:
        """Of what is compared or opened before Spark sees it."""
        moved = f"moved_from of {self.label}" if self.name else "moved_from"
        for name, value in ((self.label, self.table), (moved, self.moved_from)):
            if not isinstance(value, _PATH):
                yield f"{name} must be a path or a URI, and is {value!r}"[:200]
        if self.evolve not in ("none", "add"):
            yield f"evolve must be none or add, and is {self.evolve!r}"[:200]

    @property
    def path(self) -> str:
        found: str = fspath(self.table)
        return found

    @property
    def columns(self) -> tuple[PartitionColumn, ...] | None:
        """What it is to be partitioned by; None for what it is. Raises INVALID_OPTIONS."""
        if self.partition_by is None:
            return None
        # As Spark's own partitionBy takes one name too.
        named = self.partition_by
        return partition_columns([named] if isinstance(named, str) else named)

    def output(self, schema: StructType, tombstones: bool) -> OutputTable:
        """The table, with rows of a schema. Raises INVALID_OPTIONS."""
        says = KEPT in schema.names
        if says and self.deletes is not None:
            raise invalid_options("deletes is said by the changes themselves: leave it out")
        columns = StructType([each for each in schema if each.name not in (DELETED, KEPT)])
        return OutputTable(
            self.path.rstrip("/"),
            schema.json(),
            keys=(keys := key_columns(columns, self.keys, self.deletes)),
            deletes=DELETED if says else self.deletes or "",
            keeps=KEPT if says else "",
            tombstones=bool(keys) and tombstones,
            evolves=self.evolve == "add",
            name=self.name,
        )


def arguments_of(names: list[str], table: Any, **given: Any) -> list[TableArguments]:
    """What is given for the table of each name, `names` of a job with several; "" is the name of
    the only one. Raises INVALID_OPTIONS."""
    if not names and not table:
        # All goes to topics.
        if of_tables := [name for name, value in given.items() if value not in _NOT_GIVEN]:
            raise invalid_options(f"{of_tables[0]} is for tables, and the job writes none")
        return []
    if names == [""]:
        several = [name for name, value in given.items() if isinstance(value, Mapping)]
        if isinstance(table, Mapping) or several:
            text = "table" if isinstance(table, Mapping) else several[0]
            raise invalid_options(
                f"{text} names several tables, and the schema of the job is that of one"
            )
        found = [TableArguments("", table, **given)]
    else:
        found = list(_of_several(names, table, given))
    wrong = [text for each in found for text in each.wrong_types()]
    if wrong:
        raise invalid_options(list(dict.fromkeys(wrong)))
    return found


def without_topics(names: list[str], given: Any) -> tuple[dict[str, Topic], Any]:
    """The topics of what `into` is given, by their names, and what is left. Raises
    INVALID_OPTIONS."""
    if isinstance(given, Topic):
        if names != [""]:
            named = ", ".join(map(repr, names))
            raise invalid_options(f"table must be a mapping with a place for each of {named}")
        return {"": given}, {}
    if not isinstance(given, Mapping):
        return {}, given
    topics = {name: each for name, each in given.items() if isinstance(each, Topic)}
    if wrong := [
        f"topic {str(name)[:100]!r} is not in the job's schema"
        for name in topics
        if name not in names
    ]:
        raise invalid_options(wrong)
    return topics, {name: each for name, each in given.items() if name not in topics}


def resolved(given: list[TableArguments], session: SparkSession) -> list[TableArguments]:
    """With the paths of tables that are given by their names in a catalog. Raises INVALID_OPTIONS
    also where two are one table, SINK_UNSUITABLE for a table that is not written by its path."""
    found = [
        replace(each, table=path_of(session, each.path)) if is_name(each.path) else each
        for each in given
    ]
    if twice := [
        f"tables {a.name!r} and {b.name!r} are the same path"
        for a, b in combinations(found, 2)
        if normalized(a.path) == normalized(b.path)
    ]:
        raise invalid_options(twice)
    return found


def _of_several(names: list[str], table: Any, given: Mapping[str, Any]) -> Iterator[TableArguments]:
    if not isinstance(table, Mapping):
        named = ", ".join(map(repr, names))
        raise invalid_options(f"table must be a mapping with a path for each of {named}"[:300])
    wrong = [
        f"{argument} names table {str(name)[:100]!r}, and the job's schema names "
        f"{', '.join(map(repr, names))}"
        for argument, value in (("table", table), *given.items())
        if isinstance(value, Mapping)
        for name in value
        if name not in names
    ]
    wrong += [f"table has no path for {name!r}" for name in names if name not in table]
    if wrong:
        raise invalid_options(wrong)
    for name in names:
        own = {
            argument: value[name] if isinstance(value, Mapping) else value
            for argument, value in given.items()
            if not isinstance(value, Mapping) or name in value
        }
        yield TableArguments(name, table[name], **own)


def prepared(
    given: list[TableArguments],
    outputs: list[OutputTable],
    session: SparkSession,
    checkpoint: str,
    verdicts: str,
    storage: Mapping[str, str],
    topics: Mapping[str, TopicAddress],
) -> list[OutputTable]:
    """The tables, which are made where there are none, with what they are partitioned by and who
    appends to them. Raises SINK_UNSUITABLE, SINK_UNWRITABLE, OTHER_TABLE."""
    from keyrange.storage.sink_table import SinkTable

    sinks = {}
    for each, output in zip(given, outputs, strict=True):
        rows = to_arrow_schema(StructType.fromJson(output.columns), timezone="UTC")
        sinks[each.name] = SinkTable(
            output.uri, rows, storage, each.columns, evolves=output.evolves, keys=output.keys
        )
    moved_from = {each.name: fspath(each.moved_from) for each in given}
    check_checkpoint(checkpoint, verdicts, sinks, moved_from, storage, topics)
    found = []
    # Delta computes what a table generates in the session's zone, and readers look there for it.
    files = replace(OWN, other_zone=other_zone(session)) if has_delta(session) else OWN
    for output in outputs:
        sink = sinks[output.name]
        if output.keys:
            sink.prepare(by=writers_of(session, output.uri)[-1].rules)
        else:
            sink.prepare(by=files, otherwise=SPARK if has_delta(session) else None)
        if sink.why:
            _log.info(
                "the session's Delta appends to table %s, and not the tasks that read: %s",
                *(output.uri, sink.why),
            )
        found.append(replace(output, partition_by=sink.partition_by, why_spark=sink.why))
    return found


def written_by(tables: Iterable[OutputTable], topics: Iterable[str]) -> str:
    """Who writes tables that were prepared and topics, and why."""
    told = [(each.name, _writer(each)) for each in tables]
    told += [(name, "senders, behind the manifest") for name in topics]
    return "; ".join(f"{name + ': ' if name else ''}{by}" for name, by in told)


def _writer(table: OutputTable) -> str:
    if table.why_spark:
        return f"the session's Delta ({table.why_spark})"
    return "merges by keys" if table.keys else "the tasks that read"
