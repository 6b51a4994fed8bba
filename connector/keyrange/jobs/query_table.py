"""Which table a query has written to so far, and who else writes there."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from keyrange.errors import error
from keyrange.individual_commits.batch_in_checkpoint import LastRead, Planned, read_offsets
from keyrange.individual_commits.model.verdict_manifest import Manifest, topic_text
from keyrange.individual_commits.verdict_store import VerdictStore
from keyrange.storage.directory import Directory
from keyrange.storage.sink_history import history_of, made_again, restored_at, rows_in, writers_of

if TYPE_CHECKING:
    from keyrange.sending.topic_address import TopicAddress
    from keyrange.storage.sink_table import SinkTable

_log = logging.getLogger(__name__)


def warn_of_history(sink: SinkTable, at: Planned) -> None:
    """Once in a run: of what others have done to the table, also where rows of this query went with
    a version that was restored."""
    history = sink.look(history_of)
    at_ms = restored_at(history, at.query_id) if at.batch_id else None
    if at_ms is not None:
        _log.warning(
            "table %s was restored to an older version at %s. The query goes on behind what it has "
            "read, without the rows that went: keyrange errors TABLE_RESTORED says how to have "
            "them again",
            *(sink.uri, datetime.fromtimestamp(at_ms // 1000, UTC)),
        )
    _warn_of_others(sink, at, history)


def check_checkpoint(
    checkpoint: str,
    verdicts: str,
    sinks: Mapping[str, SinkTable],
    moved_from: Mapping[str, str],
    storage: Mapping[str, str],
    topics: Mapping[str, TopicAddress],
) -> None:
    """As `check_places`, by the last batches of a checkpoint, before a table is made.
    `verdicts`: where the manifests of a query are that commits individually."""
    last = max(Directory(checkpoint, storage).numbered("offsets"), default=None)
    if last is None:
        return
    for at in read_offsets(checkpoint, last, LastRead(storage)):
        if at.end.commits is not None:
            store = VerdictStore(verdicts, at.end.commits.source_id, storage) if verdicts else None
        else:
            source = at.end.source_id
            store = store_of_whole_batches(checkpoint, source, storage) if source else None
        if store is not None:
            # Of older ones the files may be on their way out.
            last_made = store.manifest_of(last) or store.manifest_of(last - 1)
            check_places(last_made, sinks, moved_from, topics)


def check_places(
    manifest: Manifest | None,
    sinks: Mapping[str, SinkTable],
    moved_from: Mapping[str, str],
    topics: Mapping[str, TopicAddress],
) -> None:
    """Raises OTHER_TABLE where a batch has its output in other tables, or in one of these paths
    that was deleted or made again, OTHER_KEYS where it was written by other keys, OTHER_TOPIC."""
    # One without either is of a job that Spark wrote for (`keyrange.process`).
    if manifest is None or not manifest.is_of_job:
        return
    refused = partial(error, batch=manifest.batch_id)
    were, are = ({n: each.topic for n, each in of.items()} for of in (manifest.topics, topics))
    if were != are:
        was, now = (
            ", ".join(map(topic_text, sorted(each.values()))) or "no topic" for each in (were, are)
        )
        raise refused("OTHER_TOPIC", f"the query has written to {was}, and is to write to {now}")
    for name, address in topics.items():
        ids = {manifest.topics[name].topic_id, address.topic_id} - {""}
        if len(ids) > 1:
            text = f"topic {address.topic or address.mark_topic} was deleted and made again"
            message = f"{text}, or is on another cluster: what the query has sent is not there"
            raise refused("OTHER_TOPIC", message)
    if manifest.tables.keys() != sinks.keys():
        was, now = (", ".join(map(repr, sorted(each))) for each in (manifest.tables, sinks))
        text = f"the query has written to tables {was}, and is to write to {now}"
        raise refused("OTHER_TABLE", text)
    for name, made in manifest.tables.items():
        sink = sinks[name]
        if made.uri not in (sink.uri, moved_from.get(name, "").rstrip("/")):
            text = f"the query has written to {made.uri}, and is to write to {sink.uri}"
            raise refused("OTHER_TABLE", text)
        if set(made.keys) != set(sink.keys):
            was, now = map(_keys_text, (made.keys, sink.keys))
            text = f"the query has written to {sink.uri} {was}, and is to write there {now}"
            raise refused("OTHER_KEYS", text)
        if made.uri == sink.uri and made.table_id not in ("", sink.table_id()):
            raise made_again(sink.uri, manifest.batch_id)


def _keys_text(keys: Sequence[str]) -> str:
    return f"by keys {', '.join(keys)}" if keys else "without keys"


def store_of_whole_batches(
    checkpoint: str, source_id: str, storage: Mapping[str, str]
) -> VerdictStore:
    """The manifests of a query that does not commit individually."""
    # The transaction of the table decides between two drivers.
    location = manifests_of_whole_batches(checkpoint)
    return VerdictStore(location, source_id, storage, decides=False)


def manifests_of_whole_batches(checkpoint: str) -> str:
    return f"{checkpoint.rstrip('/')}/keyrange"


def _warn_of_others(sink: SinkTable, at: Planned, history: Sequence[Mapping[str, Any]]) -> None:
    """Of other queries that write records of the same topics to the table. What both read is in the
    table twice, from which nothing keeps them."""
    commits = at.end.commits
    if at.batch_id == 0 and commits is not None and commits.resumes is not None:
        # It goes on from what that one has done.
        return
    for each in writers_of(history):
        if each.query_id == at.query_id:
            # Whoever has not written since has ended, as far as the table tells.
            return
        shared = ", ".join(sorted(at.topics & each.topics))
        if not shared:
            continue
        last = f"batch {each.batch_id} at {datetime.fromtimestamp(each.at_ms // 1000, UTC)}"
        if at.batch_id == 0:
            _log.warning(
                "table %s has %s rows, and query %s of keyrange has written records of %s to it, "
                "last %s. This query begins with a checkpoint of its own: what both read is in the "
                "table twice. To go on where that one ended, start with its checkpoint",
                *(sink.uri, f"{sink.look(rows_in):,}", each.query_id, shared, last),
            )
        else:
            _log.warning(
                "query %s of keyrange writes records of %s to table %s too, last %s: what both "
                "read is in the table twice",
                *(each.query_id, shared, sink.uri, last),
            )
