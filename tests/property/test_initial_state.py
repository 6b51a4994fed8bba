"""State that is imported against a dictionary: whatever form rows have, and however they are cut
into batches, parts and runs, what is read back is what was given, in the partitions of producers.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from keyrange.errors import KeyrangeError
from keyrange.individual_commits.table.initial_import import Import, import_rows
from keyrange.individual_commits.table.initial_state import (
    InitialState,
    InitialTopic,
    import_source,
)
from keyrange.individual_commits.table.keyed_state_rows import StoredState
from keyrange.kafka.messages.produce import partition_of
from keyrange.keyed_state import initial_runs, initial_spill, sorted_blocks
from keyrange.keyed_state.initial_rows import InitialRows
from keyrange.keyed_state.variables import (
    ListState,
    MapState,
    StateForm,
    ValueState,
    timer_variables,
    variables_of,
)
from keyrange.model.key_ranges import hash_of
from keyrange.model.offsets import TopicPartition
from keyrange.model.timers import earliest
from keyrange.storage.given_rows import GivenRows
from keyrange.wire.key_places import hashes_of_keys, partitions_of_keys
from samples import strategies  # noqa: F401  registers the hypothesis profiles
from tables.commit_tables import MemoryCommitTable

NOW_MS = 1_700_000_000_000
BEGAN = datetime(2024, 1, 1, tzinfo=UTC)
DECLARED = {
    "n": ValueState("n long"),
    "soon": ValueState("n long", ttl="1d"),
    "many": ListState("text string"),
    "seen": MapState("id string", "n int"),
}
FORM = StateForm((*variables_of(DECLARED), *timer_variables()))
TIMES = st.integers(0, 500).map(lambda minutes: BEGAN + timedelta(minutes=minutes))
ROW = st.fixed_dictionaries(
    {
        "n": st.none() | st.integers(-5, 5),
        "soon": st.none() | st.integers(-5, 5),
        "many": st.none() | st.lists(st.text(max_size=3), max_size=3),
        "seen": st.none()
        | st.dictionaries(st.text(max_size=3), st.integers(0, 9), max_size=3).map(
            lambda each: [*each.items()]
        ),
        "timers": st.none() | st.lists(TIMES, max_size=3),
    }
)
KEYS = st.binary(max_size=9) | st.integers(0, 50).map(lambda n: b"k%d" % n)


def columns_of(plain: bool) -> dict[str, pa.DataType]:
    """Of variables with one column that column, or the rows that the state has."""
    if not plain:
        kept = {each.name: each.type for each in FORM.variables}
        return {name: kept[name] for name in (*DECLARED, "timers")}
    types: list[pa.DataType] = [
        *(pa.int32(), pa.int64(), pa.large_list(pa.string())),
        *(pa.map_(pa.string(), pa.int64()), pa.list_(pa.timestamp("ms", "Europe/Berlin"))),
    ]
    return dict(zip((*DECLARED, "timers"), types, strict=True))


def in_structs(row: dict[str, Any]) -> dict[str, Any]:
    n, soon, many, seen = (row[name] for name in DECLARED)
    return {
        "n": None if n is None else {"n": n},
        "soon": None if soon is None else {"n": soon},
        "many": None if many is None else [{"text": each} for each in many],
        "seen": None if seen is None else [({"id": key}, {"n": each}) for key, each in seen],
        "timers": row["timers"],
    }


def as_kept(row: dict[str, Any]) -> dict[str, Any]:
    """What is read back of a row."""
    found = in_structs(row)
    for name in ("many", "seen", "timers"):
        found[name] = found[name] or None
    if found["timers"]:
        found["timers"] = sorted({*found["timers"]})
    return {**found, "timer_retry": None}


def stored(table: MemoryCommitTable, home: Path) -> dict[TopicPartition, dict[bytes, Any]]:
    known = table.known()
    state = StoredState(str(home), known.runs, NOW_MS)
    found: dict[TopicPartition, dict[bytes, Any]] = {}
    for partition in known.runs:
        rows = [row for block in state.table_rows(partition) for row in block.to_pylist()]
        assert [hash_of(row["key"]) for row in rows] == sorted(hash_of(row["key"]) for row in rows)
        found[partition] = {row["key"]: {each: row[each] for each in FORM.names} for row in rows}
    return {partition: rows for partition, rows in found.items() if rows}


@given(
    rows=st.dictionaries(KEYS, ROW, min_size=1, max_size=60),
    plain=st.booleans(),
    named=st.booleans(),
    cuts=st.integers(1, 20),
    run_rows=st.integers(1, 12),
    part_rows=st.integers(1, 12),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_what_is_imported_is_read_back(
    tmp_path_factory: Any,
    rows: dict[bytes, Any],
    plain: bool,
    named: bool,
    cuts: int,
    run_rows: int,
    part_rows: int,
) -> None:
    home = tmp_path_factory.mktemp("state")
    topics = {"a": InitialTopic("id", 3), **({"b": InitialTopic("", 1)} if named else {})}
    types = {"key": pa.binary(), **columns_of(plain)}
    given_rows: list[dict[str, Any]] = []
    expected: dict[TopicPartition, dict[bytes, Any]] = {}
    for at, (key, row) in enumerate(rows.items()):
        place = TopicPartition("a", partition_of(key, 3))
        told = {"key": key, **(row if plain else in_structs(row))}
        if named:
            # A topic and a partition that are named count.
            place = TopicPartition("b", 0) if at % 3 == 0 else TopicPartition("a", at % 3)
            told |= place._asdict()
        given_rows.append(told)
        kept = as_kept(row)
        if any(each is not None for each in kept.values()):
            expected.setdefault(place, {})[key] = kept
    if named:
        types |= {"topic": pa.string(), "partition": pa.int64()}
    batches = [
        pa.RecordBatch.from_pylist(given_rows[at : at + cuts], pa.schema(list(types.items())))
        for at in range(0, len(given_rows), cuts)
    ]
    table: list[Any] = []
    state = InitialState("g", MemoryCommitTable(import_source("g"), table), str(home), {})
    reader = InitialRows(
        FORM, batches[0].schema, {name: each.partitions for name, each in topics.items()}, NOW_MS
    )
    whole = GivenRows(batches[0].schema, len(rows), 0, lambda: iter(batches))
    with (
        patch.object(initial_runs, "RUN_ROWS", run_rows),
        patch.object(initial_spill, "RUN_ROWS", run_rows),
        patch.object(initial_spill, "_PART_ROWS", part_rows),
        patch.object(sorted_blocks, "BLOCK_ROWS", 4),
    ):
        said = Import("me", "rows", NOW_MS)
        state.begin()
        if not expected:
            with pytest.raises(KeyrangeError, match="INITIAL_STATE_UNFIT"):
                import_rows(state, reader, topics, whole, said)
            return
        done = import_rows(state, reader, topics, whole, said)
    kept_keys = sum(map(len, expected.values()))
    assert (done.keys, done.empty) == (kept_keys, len(rows) - kept_keys)
    commits = MemoryCommitTable(state.source_id, table)
    assert stored(commits, home) == expected
    known = commits.known()
    for partition, kept in expected.items():
        due = [each["timers"][0] for each in kept.values() if each["timers"]]
        timer_us, _ = earliest(known.time_of(partition, "").timers)
        first = min(due, default=None)
        assert timer_us == (2**63 - 1 if first is None else int(first.timestamp() * 1e6))


@given(keys=st.lists(st.binary(max_size=40), max_size=30), count=st.integers(1, 1000))
def test_keys_lie_where_hash_and_partitioner_of_single_keys_say(
    keys: list[bytes], count: int
) -> None:
    column = pa.array([b"before", *keys], pa.binary()).slice(1)
    assert hashes_of_keys(column).tolist() == [hash_of(key) for key in keys]
    assert partitions_of_keys(column, count).tolist() == [partition_of(key, count) for key in keys]
