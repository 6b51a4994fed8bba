"""Who has written to a sink table, by its log."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from keyrange.errors import KeyrangeError, error
from keyrange.storage.log_actions import is_restore
from keyrange.storage.model.sink_driver import Writer, query_of

# What the log keeps of each batch.
_APPLICATION: Final = "keyrange.application"
_BATCH: Final = "keyrange.batchId"
_TOPICS: Final = "keyrange.topics"
_PLAN: Final = "keyrange.plan"
_VERDICT: Final = "keyrange.verdict"
# Where Spark puts a text of the user's in the log, and takes it from.
NOTE_IN_SPARK: Final = "spark.databricks.delta.commitInfo.userMetadata"
_NOTE_OF_SPARK: Final = "userMetadata"
# So many versions of the log are read, once in a run; of writers the last ones.
_VERSIONS: Final = 100
_VERSIONS_OF_WRITERS: Final = 20


def note_of(
    application: str, batch_id: int, topics: Iterable[str], plan: str, verdict: str = ""
) -> dict[str, str]:
    """What the log is to keep of a batch. `plan` tells its offsets from those of others, and
    `verdict` what became of its records, where that may be something else in another run."""
    named = {_APPLICATION: application, _BATCH: str(batch_id)}
    named |= {_TOPICS: ",".join(sorted(topics)), _PLAN: plan}
    return named | ({_VERDICT: verdict} if verdict else {})


def history_of(table: Any) -> list[dict[str, Any]]:
    """What the log says of the last versions of an open table, the latest first."""
    return list(table.history(_VERSIONS))


def batches_in(history: Iterable[Mapping[str, Any]]) -> Iterator[Writer]:
    """The batches of all queries among some versions, in their order."""
    for entry in history:
        each = {**entry, **_note_of_spark(entry)}
        if application := each.get(_APPLICATION):
            topics = frozenset(each[_TOPICS].split(","))
            batch_id, at_ms = int(each[_BATCH]), each["timestamp"]
            verdict = each.get(_VERDICT, "")
            yield Writer(application, batch_id, topics, at_ms, each[_PLAN], verdict)


def writers_of(history: Sequence[Mapping[str, Any]]) -> list[Writer]:
    """The queries that wrote the last versions, each by its last batch, the latest first."""
    found: dict[str, Writer] = {}
    for each in batches_in(history[:_VERSIONS_OF_WRITERS]):
        found.setdefault(each.application, each)
    return list(found.values())


def restored_at(history: Iterable[Mapping[str, Any]], query_id: str) -> int | None:
    """When somebody restored an older version behind the last batch of a query, in ms since 1970;
    None where nobody did, as far as the last versions tell."""
    for each in history:
        if is_restore(each):
            return int(each["timestamp"])
        note = {**each, **_note_of_spark(each)}
        if _APPLICATION in note and query_of(note[_APPLICATION]) == query_id:
            break
    return None


def _note_of_spark(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    """What `note_of` has made, of a batch that Spark has merged."""
    text = entry.get(_NOTE_OF_SPARK)
    if not isinstance(text, str) or _APPLICATION not in text:
        return {}
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def restored(table_uri: str, batch_id: int) -> KeyrangeError:
    return error(
        "TABLE_RESTORED",
        f"{table_uri} was restored to an older version while the query ran: what the query has "
        "written since that version is not there any more",
        batch=batch_id,
    )


def made_again(table_uri: str, batch_id: int) -> KeyrangeError:
    return error(
        "OTHER_TABLE",
        f"the table lacks a batch that was written to it: {table_uri} was deleted or made again, "
        "or an older copy was put in its place",
        batch=batch_id,
    )


def rows_in(table: Any) -> int:
    """How many rows a table has, as far as its log says so."""
    actions = pa.table(table.get_add_actions())
    return int(pc.sum(actions.column("num_records")).as_py() or 0)


def check_new(
    table: Any,
    application: str,
    batch_id: int,
    note: Mapping[str, str],
    version: int | None,
    is_made: bool,
) -> None:
    """Whether what the table has of an application, up to batch `version`, is before this batch or
    is this batch: it would pass over one of other offsets in silence, as it counts batches.
    `is_made`: whether this run has made the batch just now.

    A batch that runs again is the last one there; the log may not reach back to it. Raises
    CHECKPOINT_BEHIND, and UNCOMMITTED_OUTPUT where it has the batch by another verdict."""
    if version is None or version < batch_id:
        return
    wanted = application, batch_id
    last = table.history(_VERSIONS_OF_WRITERS)
    written = (each for each in batches_in(last) if (each.application, each.batch_id) == wanted)
    own = next(written, None)
    # A driver that is late finds its own batch there, by the one that has replaced it, and among
    # the last versions if it has just made it.
    is_other = is_made or version > batch_id if own is None else own.plan != note[_PLAN]
    if is_other:
        raise error(
            "CHECKPOINT_BEHIND",
            f"the table has batch {version} of this query, and its checkpoint has batch "
            f"{batch_id} with other offsets",
            table=table.table_uri,
        )
    if own is not None and own.verdict != note.get(_VERDICT, ""):
        raise error(
            "UNCOMMITTED_OUTPUT",
            f"the table has the output of batch {batch_id} by a verdict that is not there any "
            "more, and by another one other records of the batch are done",
            table=table.table_uri,
        )
