"""Whether a query writes to the table that has the output of its batches so far."""

from __future__ import annotations

from typing import TYPE_CHECKING

from keyrange.errors import error
from keyrange.individual_commits.batch_in_checkpoint import Planned
from keyrange.individual_commits.model.verdict_manifest import Manifest
from keyrange.individual_commits.verdict_store import VerdictStore
from keyrange.storage.sink_history import made_again

if TYPE_CHECKING:
    from keyrange.storage.sink_table import SinkTable


def output_before(store: VerdictStore, at: Planned) -> Manifest | None:
    """The verdict of the batch before one, or the last one of the source from whose commits the
    query goes on; None where there is none any more."""
    if at.batch_id == 0 and at.mark.resumes is not None:
        return store.last_of(at.mark.resumes[0])
    return store.manifest_of(at.batch_id - 1) if at.batch_id else None


def check_table(manifest: Manifest | None, sink: SinkTable, moved_from: str) -> None:
    """Raises OTHER_TABLE where a batch has its output in another table, or in one of this path that
    was deleted or made again."""
    # One without a table is of a job that Spark wrote for (`keyrange.process`).
    if manifest is None or not manifest.table:
        return
    if manifest.table not in (sink.uri, moved_from.rstrip("/")):
        raise error(
            "OTHER_TABLE",
            f"the query has written to {manifest.table}, and is to write to {sink.uri}",
            batch=manifest.batch_id,
        )
    if manifest.table == sink.uri and manifest.table_id not in ("", sink.table_id()):
        raise made_again(sink.uri, manifest.batch_id)
