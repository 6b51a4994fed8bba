"""A place for state that stays with its key ranges: a directory for each slot of a query, on its
host.

Tasks of any kind ask for it, also those that Spark runs behind the source's. A directory belongs to
a slot for as long as it has its key ranges without a break: when an assignment gives the slot other
ranges, or the same ones again that others had in between, it gets a new one, and the one before is
there to take over from until the next change.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from keyrange.errors import error
from keyrange.members.executor import executor_directory, task_attempt, task_property
from keyrange.members.executor_names import user_state
from keyrange.members.model.read_batches import ReadBatches
from keyrange.members.model.task_greeting import SlotRanges
from keyrange.model.key_ranges import KeyRange, read_ranges
from keyrange.model.offsets import TopicPartition, by_partition
from keyrange.ranges.sharing.shared_directory import (
    locked,
    name_of,
    private_name,
    put_in_place,
    take_private,
)

_NOTE: Final = "slot.json"
_STATE: Final = "state-"
_RECORD: Final = ".keyrange-batches.json"
_RECORD_LOCK: Final = ".keyrange-batches.lock"
_BATCH: Final = "streaming.sql.batchId"
_NO_BATCH: Final = -1
# A task that reads writes to its slot's directory.
_UNUSED_S: Final = 30 * 86_400.0

OWN: Final = "own"
STANDBY: Final = "standby"
FOREIGN: Final = "foreign"

# Whose the portion is that this process reads.
_portion: str = ""


@dataclass(frozen=True, slots=True)
class Slot:
    """The slot of the executor that a task runs in.

    `epoch` is that of the assignment, `key_ranges` what it gives the slot, and `since_epoch` the
    one since which the slot has had them without a break. `directory` belongs to the slot for that
    time and outlives the executor; `previous` is the one that it had before, None where there is
    none.

    `read_batches` are the batches [start, stop), by Spark's numbers, all of whose records of these
    key ranges were handed over to tasks of this slot beside this directory. While the slot was away
    others read for it, and anybody reads a batch that is not bound: then it begins anew behind the
    gap. So what is kept in `directory` has missed nothing since `read_batches.start` where
    `read_batches.stop >= batch_id`; where it is `batch_id + 1`, all of this batch was read here
    before, as by an attempt before this one. It says what tasks were given, and not what they made
    of it: what is written to `directory` needs the number of its batch beside it.
    `previous_read_batches` says the same of `previous`, until its key ranges changed.

    `batch_id` and `attempt` are Spark's, of the task that asks. `portion` says whose key ranges the
    rows are of that the task reads now: "own", "foreign" for those of another slot, which is away
    or late, "standby" for those of one that is away whose state this slot has copies of, and ""
    where it cannot be told: in a batch that is not bound, and in a function that Spark runs in
    another process than the source. There the record's key says whose it is.
    """

    name: str
    epoch: int
    key_ranges: Mapping[TopicPartition, tuple[KeyRange, ...]]
    directory: Path
    previous: Path | None
    since_epoch: int
    read_batches: range
    previous_read_batches: range
    batch_id: int
    attempt: int
    portion: str


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
    return _read(documents[0], query)


def query_of_task() -> str:
    """The id of the query that this task belongs to, "" where there is none."""
    return task_property("sql.streaming.queryId") or ""


def batch_of_task() -> int:
    """The number of the batch that this task belongs to, -1 where there is none."""
    text = task_property(_BATCH) or ""
    return int(text) if text.isdecimal() else _NO_BATCH


def portion_of_process() -> str:
    """Whose the portion is that this process reads, "" where it reads none."""
    return _portion


@contextmanager
def reading(portion: str) -> Iterator[None]:
    """While this process reads a portion, "own" or "foreign"."""
    global _portion
    _portion = portion
    try:
        yield
    finally:
        _portion = ""


@dataclass(frozen=True, slots=True)
class ReadRecord:
    """What a slot's directory says of the batches whose records were read beside it, for one query:
    another's batches have other numbers.

    The record lies in the directory itself: who removes the directory removes it too.
    """

    directory: Path
    query: str

    def read(self) -> ReadBatches | None:
        """None where there is none, or another query's."""
        try:
            document = json.loads((self.directory / _RECORD).read_bytes())
            if document["version"] != 1 or document["query"] != self.query:
                return None
            start, stop, plan = document["start"], document["stop"], document["plan"]
            portions = frozenset(document["portions"])
        except (OSError, ValueError, KeyError, TypeError):
            return None
        if not (type(start) is type(stop) is int and start <= stop and isinstance(plan, str)):
            return None
        return ReadBatches(start, stop, plan, portions)

    def begin(self, batch: int, last: int) -> None:
        """Note that a task of a batch begins; `last` as in `ReadBatches.reaches`. Raises OSError
        where the directory is gone or full."""
        none = ReadBatches(batch, batch)
        self._change(none, lambda known: known.reaches(batch, last))

    def finish(self, batch: int, plan: str, portion: int, count: int) -> None:
        """Note that a portion was handed over whole. Raises OSError."""
        none = ReadBatches(batch, batch)
        self._change(none, lambda known: known.with_portion(batch, plan, portion, count))

    def _change(self, none: ReadBatches, change: Callable[[ReadBatches], ReadBatches]) -> None:
        with locked(self.directory / _RECORD_LOCK):
            before = self.read()
            after = change(before or none)
            if after != before:
                document = {"version": 1, "query": self.query} | asdict(after)
                document |= {"portions": sorted(after.portions)}
                put_in_place(self.directory / _RECORD, json.dumps(document))


@dataclass(frozen=True, slots=True)
class SlotLocation:
    """Where a slot is noted: `name` is its own, `executor` the directory of the executor that has
    it, `base` where slots have theirs."""

    query: str
    group: str
    name: str
    base: Path
    executor: Path


def note_slot(location: SlotLocation, holding: SlotRanges) -> None:
    """Say in an executor's directory which slot it has in a query's group, with which ranges. What
    is known of a later epoch stays; another run's epochs say nothing, as the table that they were
    counted in may have been lost. Raises OSError.
    """
    run, epoch, since = holding.run, holding.epoch, list(holding.since)
    take_private(location.base)
    # Queries may have one group, and then their slots one name.
    slot_of_all = name_of(location.group, location.name)
    home = location.base / f"{slot_of_all}.{name_of(location.query)}"
    take_private(home)
    _sweep_unused(location.base.glob(f"{slot_of_all}.*"), home)
    with locked(home / "lock"):
        before = _noted_in(home / _NOTE)
        if before is not None and before["run"] == run and before["epoch"] > epoch:
            return
        if before is None or before.get("since") != since or before["ranges"] != holding.ranges:
            state = home / f"{_STATE}{name_of(*map(str, since))}"
            state.mkdir(mode=0o700, exist_ok=True)
            previous = before["directory"] if before is not None else None
            _sweep(home, {str(state), previous})
        else:
            state, previous = Path(before["directory"]), before["previous"]
            # Somebody may have cleared it.
            state.mkdir(mode=0o700, exist_ok=True)
        document = {
            "name": location.name,
            "run": run,
            "epoch": epoch,
            "since": since,
            "ranges": holding.ranges,
            "directory": str(state),
            "previous": previous,
        }
        put_in_place(home / _NOTE, json.dumps(document))
        put_in_place(
            location.executor / _note_name(location.query, location.group), json.dumps(document)
        )


def slots_directory(chosen: str) -> Path:
    """Where slots have their directories: in a private one below `chosen`, which may be a volume's
    root, or for "" in the user's own state on this host."""
    return private_name(Path(chosen)) if chosen else user_state(os.environ) / "slots"


def made_slots_directory(chosen: str) -> Path:
    """`slots_directory`, which only this user can enter. Raises OSError where it cannot be made, or
    others were let in."""
    base = slots_directory(chosen)
    take_private(base)
    return base


def noted(location: SlotLocation, run: str) -> tuple[int, ReadRecord] | None:
    """The epoch that a run has noted a slot with, and the record of the slot's directory; None
    where it has not."""
    document = _noted_in(location.executor / _note_name(location.query, location.group))
    if document is None or (document["name"], document["run"]) != (location.name, run):
        return None
    return int(document["epoch"]), ReadRecord(Path(document["directory"]), location.query)


def _note_prefix(query: str) -> str:
    return f"slot-{name_of(query)}-"


def _note_name(query: str, group: str) -> str:
    return f"{_note_prefix(query)}{name_of(group)}.json"


def _read(document: Mapping[str, Any], query: str) -> Slot:
    directory, previous = Path(document["directory"]), document["previous"]
    before = Path(previous) if previous is not None and Path(previous).is_dir() else None
    return Slot(
        document["name"],
        document["epoch"],
        {
            partition: tuple(read_ranges(spans))
            for partition, spans in by_partition(document["ranges"])
        },
        directory,
        before,
        document["since"][1],
        _read_batches(directory, query),
        _read_batches(before, query) if before is not None else range(0),
        batch_of_task(),
        task_attempt(),
        _portion,
    )


def _read_batches(directory: Path, query: str) -> range:
    known = ReadRecord(directory, query).read()
    return known.batches if known is not None else range(0)


def _noted_in(path: Path) -> dict[str, Any] | None:
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return document if isinstance(document, dict) and "run" in document else None


def _sweep_unused(homes: Iterable[Path], own: Path) -> None:
    """Remove what queries have left that have read nothing here for long."""
    until = time.time() - _UNUSED_S
    for home in homes:
        with suppress(OSError):
            used = (home / _NOTE, *home.glob(f"{_STATE}*"))
            if home != own and all(path.stat().st_mtime < until for path in used):
                shutil.rmtree(home, ignore_errors=True)


def _sweep(home: Path, kept: set[str | None]) -> None:
    for path in home.glob(f"{_STATE}*"):
        if str(path) not in kept:
            shutil.rmtree(path, ignore_errors=True)
