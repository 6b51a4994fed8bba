"""What a run's tables and checkpoint hold, while it runs and afterwards."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import pyarrow.parquet as pq
from deltalake import DeltaTable

from brokers.committed_records import PATIENCE_MS, committed_records, wait_until_all_are_over
from brokers.java import hanging
from keyrange.individual_commits.model.commit import Commit, CommitKind, CommitTable
from keyrange.individual_commits.table.commit_table import open_commit_table
from keyrange.members.table.assignments import open_assignments
from keyrange.options.commits import CommitOptions
from nemesis.facts import Batch, Letter, Place, Position, ResetCommit, Row, Version
from nemesis.windows import PLACES
from nemesis.work import Content, content
from nemesis.world import PARTITIONS, World
from spark.sources import committed, planned_offsets

_LETTER = ("source_id", "batch_id", "topic", "partition", "offset")


def commit_tables(world: World) -> Iterator[CommitTable]:
    """The commits of every source of the run: one for each checkpoint."""
    path = world.store.seen("commits")
    if not _is_table(path):
        return
    ids = DeltaTable(str(path)).to_pyarrow_table(columns=["source_id"]).column(0)
    for source in sorted(set(ids.to_pylist())):
        yield open_commit_table(CommitOptions(table=str(path)), source)


def committed_offsets(world: World) -> dict[int, int]:
    """Up to where each partition is done, of the topic as it is now: what was committed of one that
    was made anew since says nothing of its records."""
    topic_id = world.topics.topic_id(world.topic)
    if world.mode.individual:
        return {
            partition.partition: state.committed
            for table in commit_tables(world)
            for partition, state in table.known().states.items()
            if state.topic_id == topic_id
        }
    checkpoint = world.store.seen("checkpoint")
    last = max(committed(checkpoint), default=None)
    if last is None:
        return {}
    offset = planned_offsets(checkpoint, last)
    if _topic_id(offset, world.topic) != topic_id:
        return {}
    return {int(number): end for number, end in offset.get(world.topic, {}).items()}


def worked_on(world: World) -> set[Place]:
    """What is done of what the feeder has sent, by the commits, whatever topic they are of."""
    done = {
        at.partition: state.committed
        for table in commit_tables(world)
        for at, state in table.known().states.items()
    }
    return {each for each in dict(world.feeder.sent) if each.offset < done.get(each.partition, 0)}


class PlannedBatch(NamedTuple):
    """A batch of the checkpoint: the last commit that its plan knew, and its ends by partition."""

    source_id: str
    seq: int
    ends: dict[int, int]


def last_reset(world: World) -> ResetCommit:
    """The newest one of the source that has begun last."""
    found = [
        (commit.committed_at_ms, ResetCommit(commit.source_id, commit.seq))
        for table in commit_tables(world)
        for seq in table.by_hand(1)
        for commit in table.history(seq, seq + 1)
        if commit.kind is CommitKind.RESET
    ]
    return max(found)[1]


def planned_batches(world: World) -> Iterator[PlannedBatch]:
    """The batches that the checkpoint still has."""
    checkpoint = world.store.seen("checkpoint")
    for path in (checkpoint / "offsets").glob("[0-9]*"):
        try:
            offset = planned_offsets(checkpoint, int(path.name))
        except FileNotFoundError:
            # Spark has removed it meanwhile, as it does with old ones.
            continue
        mark = offset["@keyrange"]["commits"]
        ends = {int(number): end for number, end in offset.get(world.topic, {}).items()}
        yield PlannedBatch(mark["sourceId"], mark["seq"], ends)


def _topic_id(offset: dict[str, Any], topic: str) -> str:
    return str(offset.get("@keyrange", {}).get("topicIds", {}).get(topic, ""))


def is_assigned(world: World) -> bool:
    """Whether the key ranges of a pinned query have owners."""
    path = world.store.seen("members")
    if not _is_table(path):
        return False
    stored = open_assignments(str(path), world.run, {}).last()
    return stored is not None and stored.assignment is not None


def _is_table(path: Path) -> bool:
    return any((path / "_delta_log").glob("*.json"))


def letters(world: World) -> list[Letter]:
    """The dead letters that nobody replayed."""
    return [letter for letter, is_replayed in _letters(world) if not is_replayed]


def replayed(world: World) -> set[Letter]:
    """The dead letters that were handed out again, by what the table says of that: a replay takes
    what is there when it runs."""
    return {letter for letter, is_replayed in _letters(world) if is_replayed}


def _letters(world: World) -> Iterator[tuple[Letter, bool]]:
    """Each with whether it was replayed."""
    path = world.store.seen("commits_dead_letters")
    if not _is_table(path):
        return
    columns = ["kind", *_LETTER, "key", "value", "attempts", "cause"]
    rows = DeltaTable(str(path)).to_pyarrow_table(columns=columns).to_pylist()
    names = {_name(row) for row in rows if row["kind"] == "replayed"}
    for row in rows:
        if row["kind"] == "dead":
            letter = Letter(
                Place(row["partition"], row["offset"], world.values.content(row["value"]).n),
                row["key"].decode(),
                row["attempts"],
                row["cause"],
                Batch(row["source_id"], row["batch_id"]),
            )
            yield letter, _name(row) in names


def _name(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in _LETTER)


class SinkRows:
    """Every row of a table to which rows are appended, with the version that brought its file."""

    def __init__(self, world: World, name: str = "table") -> None:
        self._world, self._name = world, name
        self._rows: list[Row] = []
        self._read_count = 0

    def rows(self) -> list[Row]:
        """Reads the files that came since it was asked last."""
        path = self._world.store.seen(self._name)
        for version, name in list(files_of(path))[self._read_count :]:
            table = pq.read_table(path / name, partitioning=None).to_pylist()
            if not self._world.mode.has_rows:
                self._rows += [each for row in table for each in _in_window(row, self._world.run)]
            elif self._world.mode.individual:
                own = (row for row in table if row.get("window_start") is None)
                self._rows += [_worked_on(row, version) for row in own]
            else:
                at = (version, self._read_count)
                self._rows += [_read(row, (*at, number)) for number, row in enumerate(table)]
            self._read_count += 1
        return self._rows


def last_rows(world: World) -> list[Row] | None:
    """The table that holds the last row of each key; None of a mode without it."""
    if "last" not in world.mode.tables:
        return None
    path = world.store.seen("last")
    if not _is_table(path):
        return []
    rows = DeltaTable(str(path)).to_pyarrow_table().to_pylist()
    return [_worked_on(row, 0) for row in rows]


def copied_rows(world: World) -> list[Row] | None:
    """The table or the topic that holds those of some records; None of a mode without it."""
    if world.copies_topic:
        return list(sent_rows(world)) if world.mode.table else None
    if "copies" not in world.mode.tables:
        return None
    return SinkRows(world, "copies").rows()


def sent_rows(world: World, patience_ms: int = PATIENCE_MS) -> Iterator[Row]:
    """Those in the topic that a mode writes, with their offsets as versions."""
    for records in committed_records(world.topics, world.copies_topic, PARTITIONS, patience_ms):
        for each in records:
            yield _worked_on(json.loads(each.value), each.offset)


def open_transactions(world: World) -> Iterator[str]:
    """Those for which readers of committed records wait in the topic, and those that hang on any
    broker, of any topic: those of the marks too."""
    try:
        wait_until_all_are_over(world.topics, world.copies_topic)
    except AssertionError:
        yield world.copies_topic
    for node in world.cluster.nodes:
        yield from map(" ".join, hanging(world.cluster.bootstrap_servers, node.node_id))


def newest_version(path: Path) -> int:
    """-1 where there is no table."""
    stems = [log.stem for log in (path / "_delta_log").glob("*.json")]
    return max((int(stem) for stem in stems if stem.isdigit()), default=-1)


def versions(world: World, name: str) -> Iterator[Version]:
    """Those of a table to which rows are appended, in their order."""
    path = world.store.seen(name)
    fields = 0
    for version, actions in actions_of(path):
        for action in actions:
            if "metaData" in action:
                schema = json.loads(action["metaData"]["schemaString"])
                fields = sum(map(_is_added, (each["name"] for each in schema["fields"])))
        files = [action["add"]["path"] for action in actions if "add" in action]
        schemas = [pq.read_schema(path / unquote(file)) for file in files]
        written = max((sum(map(_is_added, each.names)) for each in schemas), default=None)
        yield Version(version, fields, written)


def actions_of(path: Path) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """What each version of a table does, in their order."""
    for log in sorted((path / "_delta_log").glob("*.json")):
        if log.stem.isdigit():
            yield int(log.stem), [json.loads(line) for line in log.read_text().splitlines()]


def files_of(path: Path) -> Iterator[tuple[int, str]]:
    """Version and path of every file of a table, in the order in which they came."""
    for version, actions in actions_of(path):
        assert not any("remove" in action for action in actions), f"{version} takes rows away"
        yield from ((version, unquote(each["add"]["path"])) for each in actions if "add" in each)


def _is_added(name: str) -> bool:
    return re.fullmatch(r"f\d+", name) is not None


def _worked_on(row: dict[str, Any], version: int) -> Row:
    place = Place(row["partition"], row["offset"], row["n"])
    at = (row["at"],)
    fields, late = _fields(row), bool(row.get("late"))
    return Row(place, row["key"], row["run"], at, version, row.get("seen"), *fields, late)


def _in_window(row: dict[str, Any], run: str) -> Iterator[Row]:
    """The records of a window. They have no order: windows of a key are written by their ends."""
    for number, partition, offset in zip(*(row[name] for name in PLACES), strict=True):
        yield Row(Place(partition, offset, number), row["key"].decode(), run, ())


def _read(row: dict[str, Any], at: tuple[int, ...]) -> Row:
    said = Content(row["run"], row["n"], row["mark"]) if "n" in row else content(row["value"])
    place = Place(row["partition"], row["offset"], said.n)
    return Row(place, row["key"].decode(), said.run, at, at[0], None, *_fields(row))


def _fields(row: dict[str, Any]) -> tuple[int, tuple[int | None, ...]]:
    """How many added fields the writer of a value knew, and what its row has of them. Columns are
    counted from the first one on: where one is left out, the next ones have values of others."""
    names = sorted(filter(_is_added, row), key=lambda name: int(name[1:]))
    return row.get("writer", 0), tuple(row[name] for name in names)


def positions(world: World) -> list[Position]:
    """Where partitions stood, by the checkpoint and by the commit table."""
    found = []
    checkpoint = world.store.seen("checkpoint")
    for batch_id in sorted(int(p.name) for p in (checkpoint / "offsets").glob("[0-9]*")):
        offset = planned_offsets(checkpoint, batch_id)
        topic_id = _topic_id(offset, world.topic)
        for number, end in offset.get(world.topic, {}).items():
            found.append(Position("checkpoint", batch_id, int(number), topic_id, end))
    for at, table in enumerate(commit_tables(world)):
        for commit in table.history():
            found += _of_commit(f"commits {at}", commit)
    return found


def _of_commit(of: str, commit: Commit) -> Iterator[Position]:
    by_hand = commit.kind is CommitKind.RESET
    for place, state in commit.states.items():
        name = (commit.seq, place.partition, state.topic_id)
        yield Position(of, *name, state.committed, by_hand)
        yield Position(f"{of}, read", *name, state.position, by_hand)
