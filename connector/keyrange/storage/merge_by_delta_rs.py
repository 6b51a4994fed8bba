"""A merge by delta-rs, in the process of the driver: where the session has no Delta."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from keyrange.storage.delta_log import load_deltalake
from keyrange.storage.directory import Directory
from keyrange.storage.last_rows import CHANGE, kept_columns, last_rows
from keyrange.storage.model.merged_rows import Merged
from keyrange.storage.model.writer_rules import DELTA_RS
from keyrange.storage.staged import VALUES_MAX, Staged, condition, updates
from keyrange.storage.table_store import Conflict

# Beside the rows' own columns.
_DELETED: Final = "_keyrange_deleted"


class DeltaRsMerger:
    """Merges in this process: all rows of a batch, and the files of the table that have their keys,
    go through it."""

    rules = DELTA_RS
    evolves = False

    def write(
        self,
        table: Any,
        staged: Staged,
        transactions: Mapping[str, int],
        note: Mapping[str, str],
    ) -> Merged:
        delta = load_deltalake()
        rows = _rows(staged)
        values = {name: _values(rows.column(name)) for name in staged.pruning}
        known = {name: found for name, found in values.items() if found is not None}
        names = {_quoted(name): f"s.{_quoted(name)}" for name in staged.columns}
        applications = [
            delta.transaction.Transaction(application, version)
            for application, version in transactions.items()
        ]
        try:
            told = (
                table.merge(
                    rows,
                    condition(staged, _quoted, known),
                    source_alias="s",
                    target_alias="t",
                    commit_properties=delta.CommitProperties(
                        custom_metadata=dict(note),
                        app_transactions=applications,
                        max_commit_retries=0,
                    ),
                    post_commithook_properties=delta.PostCommitHookProperties(
                        create_checkpoint=False, cleanup_expired_logs=False
                    ),
                )
                .when_matched_delete(f"s.{_DELETED}")
                .when_matched_update(updates(table, staged, _quoted))
                .when_not_matched_insert(names, f"NOT s.{_DELETED}")
                .execute()
            )
        except delta.exceptions.CommitFailedError:
            raise Conflict from None
        return Merged(
            told["num_target_rows_updated"],
            told["num_target_rows_inserted"],
            told["num_target_rows_deleted"],
        )


def _rows(staged: Staged) -> pa.Table:
    directory = Directory(staged.location, staged.storage)
    tables = []
    for each in staged.files:
        with directory.open(each.name) as source:
            tables.append(pq.read_table(source))
    rows = last_rows(pa.concat_tables(tables), staged.keys)
    deleted = pc.struct_field(rows.column(CHANGE), "deleted")
    kept = kept_columns(rows)
    none = np.zeros(rows.num_rows, np.bool_)
    for name, flag in staged.kept.items():
        rows = rows.append_column(flag, pa.array(kept.get(name, none)))
    return rows.drop_columns([CHANGE]).append_column(_DELETED, deleted)


def _values(column: pa.ChunkedArray) -> list[str] | None:
    """The values of a column as SQL has them; None where there are many, or a null."""
    found = pc.unique(column)
    kind = found.type
    known = pa.types.is_string(kind) or pa.types.is_integer(kind) or pa.types.is_date(kind)
    if len(found) > VALUES_MAX or found.null_count or not known:
        return None
    if pa.types.is_integer(kind):
        return list(map(str, found.to_pylist()))
    if pa.types.is_date(kind):
        return [f"DATE '{each}'" for each in found.cast(pa.string()).to_pylist()]
    return ["'" + each.replace("'", "''") + "'" for each in found.to_pylist()]


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
