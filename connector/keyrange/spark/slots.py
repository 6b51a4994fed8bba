"""A place for state that stays with its key ranges: a directory for each slot, on its host.

Tasks of any kind ask for it, also those that Spark runs behind the source's. A directory belongs to
a slot and to a set of key ranges: when an assignment gives the slot other ranges it gets a new one,
and the one before is there to take over from until the next change.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from keyrange.core.key_ranges import KeyRange, read_ranges
from keyrange.core.offsets import TopicPartition
from keyrange.errors import error
from keyrange.host.directory import locked, make_private, name_of, put_in_place
from keyrange.members.launch import executor_directory
from keyrange.members.names import user_state
from keyrange.spark.executor import task_property

_NOTE: Final = "slot.json"
_STATE: Final = "state-"
_RUN_CHARACTERS: Final = 12

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
    return task_property("sql.streaming.queryId") or ""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a slot is noted: `name` is its own, `executor` the directory of the executor that has
    it, `base` where slots have theirs."""

    query: str
    group: str
    name: str
    base: Path
    executor: Path


def note_slot(place: Place, run: str, epoch: int, ranges: Ranges) -> None:
    """Say in an executor's directory which slot it has in a query's group, with which ranges, as of
    an epoch of a run. What is known of a later epoch stays; another run's epochs say nothing, as
    the table that they were counted in may have been lost. Raises OSError.
    """
    base = place.base
    base.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    make_private(base)
    home = base / name_of(place.group, place.name)
    make_private(home)
    with locked(home / "lock"):
        before = _stored(home)
        if before is not None and before["run"] == run and before["epoch"] > epoch:
            return
        if before is None or before["ranges"] != ranges:
            state = home / f"{_STATE}{run[:_RUN_CHARACTERS]}-{epoch}"
            state.mkdir(mode=0o700, exist_ok=True)
            previous = before["directory"] if before is not None else None
            _sweep(home, {str(state), previous})
        else:
            state, previous = Path(before["directory"]), before["previous"]
            # Somebody may have cleared it.
            state.mkdir(mode=0o700, exist_ok=True)
        document = {
            "name": place.name,
            "run": run,
            "epoch": epoch,
            "ranges": ranges,
            "directory": str(state),
            "previous": previous,
        }
        put_in_place(home / _NOTE, json.dumps(document))
        put_in_place(place.executor / _note_name(place.query, place.group), json.dumps(document))


def slots_directory(chosen: str) -> Path:
    """Where slots have their directories: `chosen`, or "" for the user's own on this host."""
    return Path(chosen) if chosen else user_state(os.environ) / "slots"


def noted_epoch(place: Place, run: str) -> int:
    """The epoch that a run has noted a slot with, 0 where it has not."""
    path = place.executor / _note_name(place.query, place.group)
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return 0
    is_known = (document["name"], document["run"]) == (place.name, run)
    return int(document["epoch"]) if is_known else 0


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
    return document if isinstance(document, dict) and "run" in document else None


def _sweep(home: Path, kept: set[str | None]) -> None:
    for path in home.glob(f"{_STATE}*"):
        if str(path) not in kept:
            shutil.rmtree(path, ignore_errors=True)
