"""A place for state that stays with its key ranges: a directory for each slot, on its host.

Tasks of any kind ask for it, also those that Spark runs behind the source's. A directory belongs to
a slot and to a set of key ranges: when an assignment gives the slot other ranges it gets a new one,
and the one before is there to take over from until the next change.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from keyrange.core.key_ranges import KeyRange, read_ranges
from keyrange.core.offsets import TopicPartition
from keyrange.errors import error
from keyrange.host.directory import make_private, name_of
from keyrange.members.launch import executor_directory
from keyrange.members.names import user_state

_NOTE: Final = "slot.json"
_STATE: Final = "state-"

Ranges = Mapping[str, Mapping[str, list[list[int]]]]


@dataclass(frozen=True, slots=True)
class Slot:
    """The slot of the executor that a task runs in.

    `epoch` is that of the assignment, `key_ranges` what it gives the slot. `directory` belongs to
    the slot with these ranges and outlives the executor; `previous` is the one that it had with
    other ranges, None where there is none.
    """

    name: str
    epoch: int
    key_ranges: Mapping[TopicPartition, tuple[KeyRange, ...]]
    directory: Path
    previous: Path | None


def slot(group: str | None = None) -> Slot:
    """The slot of this executor, inside a task of a query with option `pin`.

    `group` is its memberGroup; a query with one pinned source needs to name none. Raises NO_SLOT
    where the executor has none for this query: outside of a task, in a query without `pin`, or
    before its first bound task; and where the query has several, and none was named.
    """
    query = query_of_task()
    pattern = _note_name(query, group) if group is not None else f"{_note_prefix(query)}*.json"
    try:
        paths = sorted(executor_directory().glob(pattern))
        documents = [json.loads(path.read_bytes()) for path in paths]
    except (OSError, ValueError):
        documents = []
    if len(documents) > 1:
        raise error("NO_SLOT", f"this query has {len(documents)} pinned sources: name a group")
    if not documents:
        raise error("NO_SLOT", "this process is in no executor that has a slot for this query")
    return _read(documents[0])


def query_of_task() -> str:
    """The id of the query that this task belongs to, "" where there is none."""
    from pyspark import TaskContext

    context = TaskContext.get()
    found = context.getLocalProperty("sql.streaming.queryId") if context is not None else None
    return found or ""


def note_slot(
    query: str, name: str, group: str, epoch: int, ranges: Ranges, base: Path, executor: Path
) -> None:
    """Say in an executor's directory which slot it has in a query's group, with which ranges, as of
    an epoch; what is known of a later one stays. `base` is where slots have their directories.

    Raises OSError.
    """
    base.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    make_private(base)
    home = base / name_of(group, name)
    make_private(home)
    with _locked(home):
        before = _stored(home)
        if before is not None and before["epoch"] > epoch:
            return
        if before is None or before["ranges"] != ranges:
            state = home / f"{_STATE}{epoch}"
            state.mkdir(mode=0o700, exist_ok=True)
            previous = before["directory"] if before is not None else None
            _sweep(home, {str(state), previous})
        else:
            state, previous = Path(before["directory"]), before["previous"]
            # Somebody may have cleared it.
            state.mkdir(mode=0o700, exist_ok=True)
        document = {
            "name": name,
            "epoch": epoch,
            "ranges": ranges,
            "directory": str(state),
            "previous": previous,
        }
        _write(home / _NOTE, document)
        _write(executor / _note_name(query, group), document)


def slots_directory(chosen: str) -> Path:
    """Where slots have their directories: `chosen`, or "" for the user's own on this host."""
    return Path(chosen) if chosen else user_state(os.environ) / "slots"


def noted_epoch(query: str, group: str, executor: Path, name: str) -> int:
    """The epoch that a slot was noted with, 0 where it was not."""
    try:
        document = json.loads((executor / _note_name(query, group)).read_bytes())
    except (OSError, ValueError):
        return 0
    return int(document["epoch"]) if document["name"] == name else 0


def _note_prefix(query: str) -> str:
    return f"slot-{name_of(query)}-"


def _note_name(query: str, group: str) -> str:
    return f"{_note_prefix(query)}{name_of(group)}.json"


def _read(document: Mapping[str, Any]) -> Slot:
    previous = document["previous"]
    return Slot(
        document["name"],
        document["epoch"],
        {
            TopicPartition(topic, int(number)): tuple(read_ranges(spans))
            for topic, numbers in document["ranges"].items()
            for number, spans in numbers.items()
        },
        Path(document["directory"]),
        Path(previous) if previous is not None and Path(previous).is_dir() else None,
    )


def _stored(home: Path) -> dict[str, Any] | None:
    try:
        document = json.loads((home / _NOTE).read_bytes())
    except (OSError, ValueError):
        return None
    return document if isinstance(document, dict) else None


def _sweep(home: Path, kept: set[str | None]) -> None:
    for path in home.glob(f"{_STATE}*"):
        if str(path) not in kept:
            shutil.rmtree(path, ignore_errors=True)


def _write(path: Path, document: Mapping[str, Any]) -> None:
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(json.dumps(document))
    draft.replace(path)


@contextmanager
def _locked(home: Path) -> Iterator[None]:
    with open(home / "lock", "wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
