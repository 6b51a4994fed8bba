"""Staged rows into a table by the session's own Delta, which merges them by keys or appends them:
its executors read and write, and Delta keeps the transaction of the batch in its commit, which it
writes once."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import tempfile
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from keyrange.errors import error
from keyrange.storage.as_written import AS_WRITTEN, INFERRED_AS_WRITTEN
from keyrange.storage.delta_log import DeltaLog
from keyrange.storage.last_rows import CHANGE
from keyrange.storage.model.merged_rows import Merged
from keyrange.storage.model.writer_rules import SPARK
from keyrange.storage.refused_rows import is_refusal, quoted, refused
from keyrange.storage.sink_history import NOTE_IN_SPARK
from keyrange.storage.staged import Staged
from keyrange.storage.table_store import Conflict
from keyrange.text.packages import unfit_delta

_log = logging.getLogger(__name__)

# As many values of a partition column are named in the condition of a merge.
_VALUES_MAX: Final = 1_000

_told: Final[set[str]] = set()
# Where a session says which jars it was given.
_JARS: Final = ("spark.jars.packages", "spark.jars")
_EXTENSIONS: Final = "spark.sql.extensions"
_CATALOG: Final = "spark.sql.catalog.spark_catalog"
_APPLICATION: Final = "spark.databricks.delta.write.txnAppId"
_VERSION: Final = "spark.databricks.delta.write.txnVersion"
# Of Delta's errors those that name another writer.
_CONFLICTS: Final = ("DELTA_CONCURRENT", "Concurrent", "MetadataChanged", "ProtocolChanged")


def has_delta(session: Any) -> bool:
    """Whether a session of Spark has Delta, to write tables: jars for another Spark are none."""
    named = [session.conf.get(name, None) or "" for name in (_EXTENSIONS, _CATALOG)]
    if not all("delta" in each.lower() for each in named):
        return False
    jars = ",".join(session.conf.get(name, None) or "" for name in _JARS)
    unfit = unfit_delta(jars, session.version)
    if unfit is not None and unfit not in _told:
        # It is asked with each batch.
        _told.add(unfit)
        _log.warning("Spark writes no table: %s", unfit)
    return unfit is None


class SparkWriter:
    """Writes in a session, in which the table at a URI is called `name`."""

    rules = SPARK
    evolves = True

    def __init__(self, session: Any, name: str) -> None:
        self._session, self._name = session, name

    def write(self, log: DeltaLog, staged: Staged) -> Merged:
        table = log.current()
        with self._views(staged) as rows:
            try:
                if staged.keys:
                    return self._merge(table, staged, rows)
                self._append(staged, rows)
            except Exception as failure:
                # Behind it are classes of the JVM, which may be called anything.
                text = str(failure).partition("\n\tat ")[0]
                if is_refusal(text):
                    raise refused(self._session, table, staged, rows, text) from None
                if any(each in text for each in _CONFLICTS):
                    raise Conflict from None
                if type(failure).__name__ == "AnalysisException":
                    # Nothing was begun: Delta does not take such rows into such a table.
                    raise error("SINK_UNSUITABLE", text[:1000], table=table.table_uri) from None
                raise
        return Merged()

    def _append(self, staged: Staged, rows: str) -> None:
        application, version = next(iter(staged.transactions.items()))
        given = {
            "txnAppId": application,
            "txnVersion": str(version),
            "mergeSchema": str(staged.evolves).lower(),
        }
        if staged.note:
            given["userMetadata"] = json.dumps(dict(staged.note))
        output = self._session.table(rows).drop(CHANGE)
        output.write.format("delta").mode("append").options(**given).save(self._name)

    def _merge(self, table: Any, staged: Staged, rows: str) -> Merged:
        application, version = next(iter(staged.transactions.items()))
        settings = {_APPLICATION: application, _VERSION: str(version)}
        if staged.note:
            settings[NOTE_IN_SPARK] = json.dumps(dict(staged.note))
        with self._settings(settings):
            values = {name: self._values(rows, name) for name in staged.pruning}
            known = {name: found for name, found in values.items() if found is not None}
            text = self._statement(table, staged, rows, _condition(staged, known))
            counts = self._session.sql(text).collect()
        if not counts:
            # Delta has passed it over, as one that was done before. Whether it was this one is for
            # the table's log to say: queries of one session of Spark Connect share its settings.
            raise Conflict
        told = counts[0].asDict()
        names = ("num_updated_rows", "num_inserted_rows", "num_deleted_rows")
        return Merged(*(int(told.get(name) or 0) for name in names))

    def _statement(self, table: Any, staged: Staged, rows: str, on: str) -> str:
        names = list(map(quoted, staged.columns))
        deleted = f"s.`{CHANGE}`.deleted"
        new = _updates(table, staged)
        sets = ", ".join(f"{each} = {value}" for each, value in new.items())
        evolving = " WITH SCHEMA EVOLUTION" if staged.evolves else ""
        return (
            f"MERGE{evolving} INTO delta.{quoted(self._name)} AS t USING {rows} AS s ON {on} "
            f"WHEN MATCHED AND {deleted} THEN DELETE "
            f"WHEN MATCHED THEN UPDATE SET {sets} "
            f"WHEN NOT MATCHED AND NOT {deleted} THEN INSERT ({', '.join(names)}) "
            f"VALUES ({', '.join(f's.{each}' for each in names)})"
        )

    @contextmanager
    def _views(self, staged: Staged) -> Iterator[str]:
        """A view of the rows; of those of keys, of the last row of each."""
        name = f"keyrange_{uuid.uuid4().hex}"
        paths = [f"{staged.location}/{each.name}" for each in staged.files]
        with self._settings(INFERRED_AS_WRITTEN):
            rows = self._session.read.options(**AS_WRITTEN).parquet(*paths)
            rows.createOrReplaceTempView(name)
        last = f"{name}_last"
        try:
            if not staged.keys:
                yield name
                return
            self._session.sql(_last_rows(staged, name)).createOrReplaceTempView(last)
            yield last
        finally:
            for each in (name, last):
                self._session.catalog.dropTempView(each)

    @contextmanager
    def _settings(self, settings: Mapping[str, str]) -> Iterator[None]:
        conf = self._session.conf
        with _alone(self._session):
            before = {name: conf.get(name, None) for name in settings}
            try:
                for name, value in settings.items():
                    conf.set(name, value)
                yield
            finally:
                for name, value in before.items():
                    if value is None:
                        conf.unset(name)
                    else:
                        conf.set(name, value)

    def _values(self, rows: str, column: str) -> list[str] | None:
        """The values of a column as SQL has them; None where there are many, or a null."""
        name = quoted(column)
        # Python has no days behind the year 9999.
        value = f"CAST({name} AS STRING) AS value"
        text = f"SELECT DISTINCT {value}, typeof({name}) AS kind FROM {rows}"
        found = self._session.sql(f"{text} LIMIT {_VALUES_MAX + 1}").collect()
        values = [_literal(row["value"], row["kind"]) for row in found]
        if len(values) > _VALUES_MAX or None in values:
            return None
        return [each for each in values if each is not None]


@contextmanager
def _alone(session: Any) -> Iterator[None]:
    """Queries of one client of Spark Connect have one session, and each a process beside its
    server. By settings of that session Delta knows whose batch a merge is of: they take turns."""
    shared = getattr(session, "session_id", None)
    if shared is None:
        yield
        return
    path = Path(tempfile.gettempdir()) / f"keyrange-{os.getuid()}-{shared}.lock"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _last_rows(staged: Staged, rows: str) -> str:
    """The query that `keyrange.storage.last_rows.last_rows` is. By windows: an aggregate of whole
    rows sorts these for each of its steps. Of each column that rows leave as it is, `said` is what
    the latest row that says it has, and whether that row deletes."""
    change, kept = f"`{CHANGE}`", [*staged.kept]
    keys = ", ".join(map(quoted, staged.keys))
    within = _window(
        f"{keys}, {change}.topic, {change}.partition", f"{change}.offset", f"{change}.row"
    )
    across = _window(keys, *(f"{change}.{name}" for name in ("timestamp_ms", "topic", "partition")))
    own = [f"row_number() OVER ({within}) AS _keyrange_place"]
    found = [f"row_number() OVER ({across}) AS _keyrange_place"]
    for number, name in enumerate(kept):
        said = f"struct({quoted(name)} AS value, {change}.deleted AS deleted)"
        said = f"CASE WHEN NOT {_keeps(change, name)} THEN {said} END"
        own.append(f"{_first(said, within)} AS _keyrange_said{number}")
        found.append(f"{_first(f'_keyrange_said{number}', across)} AS _keyrange_answer{number}")
    # All rows of a key come together once, for both windows.
    inner = f"SELECT *, {', '.join(own)} FROM (SELECT * FROM {rows} DISTRIBUTE BY {keys})"
    of_partitions = f"SELECT * EXCEPT (_keyrange_place) FROM ({inner}) WHERE _keyrange_place = 1"
    last = f"SELECT *, {', '.join(found)} FROM ({of_partitions})"
    columns = [quoted(name) for name in staged.columns if name not in kept]
    for number, (name, flag) in enumerate(staged.kept.items()):
        asks, answer = _keeps(change, name), f"_keyrange_answer{number}"
        columns.append(
            f"CASE WHEN {asks} AND NOT coalesce({answer}.deleted, true) THEN {answer}.value "
            f"ELSE {quoted(name)} END AS {quoted(name)}"
        )
        columns.append(f"({asks} AND {answer} IS NULL) AS {quoted(flag)}")
    return f"SELECT {', '.join(columns)}, {change} FROM ({last}) WHERE _keyrange_place = 1"


def _updates(table: Any, staged: Staged) -> dict[str, str]:
    """What the columns of a row t of delta-rs's `table` become of a row s with its key. A column
    that the table is about to get is null in its rows."""
    there = {each.name for each in table.schema().fields}
    kept = staged.kept
    return {
        quoted(name): f"CASE WHEN s.{quoted(kept[name])} "
        f"THEN {f't.{quoted(name)}' if name in there else 'NULL'} ELSE s.{quoted(name)} END"
        if name in kept
        else f"s.{quoted(name)}"
        for name in staged.columns
    }


def _condition(staged: Staged, values: Mapping[str, Iterable[str]]) -> str:
    """Which rows t of the table have the key of a row s. `values`: of partition columns."""
    empty = staged.may_be_null
    found = [
        f"coalesce(t.{quoted(name)}, '') = s.{quoted(name)}"
        if name in empty
        else f"t.{quoted(name)} = s.{quoted(name)}"
        for name in staged.keys
    ]
    for name, (least, greatest) in staged.bounds().items():
        found.append(f"t.{quoted(name)} BETWEEN {least} AND {greatest}")
    for name, each in values.items():
        among = f"t.{quoted(name)} IN ({', '.join(each)})"
        found.append(f"({among} OR t.{quoted(name)} IS NULL)" if name in empty else among)
    return " AND ".join(found)


def _window(by: str, *order: str) -> str:
    """Rows of a group, the last one first. Nulls are the earliest."""
    return f"PARTITION BY {by} ORDER BY {', '.join(f'{each} DESC' for each in order)}"


def _first(value: str, window: str) -> str:
    """The first value of a group that is not null."""
    whole = "ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING"
    return f"first_value({value}) IGNORE NULLS OVER ({window} {whole})"


def _keeps(change: str, name: str) -> str:
    """Whether a row leaves a column as it is."""
    return f"coalesce(array_contains({change}.kept, {_literal(name, 'string')}), false)"


def _literal(value: Any, kind: str) -> str | None:
    if value is None or kind in ("binary", "timestamp", "timestamp_ntz"):
        return None
    if kind == "string":
        # By its bytes: how a text is escaped is a setting of the session.
        return f"CAST(X'{value.encode().hex()}' AS STRING)"
    return f"CAST('{value}' AS {kind.upper()})"
