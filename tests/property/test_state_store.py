"""States in files and copies of them against a dictionary: any cut into key ranges, tasks that come
to nothing, copies that are lost, damaged or on another host."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from keyrange.errors import KeyrangeError
from keyrange.keyed_state import cache, sorted_blocks
from keyrange.keyed_state.model.state_runs import StateRun, after_batch
from keyrange.keyed_state.sorted_blocks import Keys
from keyrange.keyed_state.states_of_task import PartitionRuns, StateSettings, TaskStates
from keyrange.keyed_state.variables import StateForm
from keyrange.model.key_ranges import SPACE
from project.forms import by_form
from simulation.state_world import AT, FORM, KEYS, StateWorld, hash_of


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sorted_blocks, "BLOCK_ROWS", 4)
    cache._MAPPED.clear()
    yield
    cache._MAPPED.clear()


@pytest.mark.parametrize("seed", range(by_form(1, 5, 100)))
def test_states_are_what_a_dictionary_says(tmp_path: Path, seed: int) -> None:
    world = StateWorld(tmp_path, seed)
    for _ in range(25):
        world.batch()
    assert world.truth


def test_nothing_is_read_again_on_the_same_host(tmp_path: Path) -> None:
    settings = StateSettings(str(tmp_path / "state"), "source", 0, 1, tmp_path / "host")
    runs: list[StateRun] = []
    keys = sorted(KEYS, key=hash_of)
    wanted = Keys(np.array([*map(hash_of, keys)]), pa.array(keys, pa.binary()))
    for seq in range(12):
        cache._MAPPED.clear()
        own = StateSettings(settings.directory, "source", seq, 1, settings.cache)
        states = TaskStates(FORM, own)
        states.begin({AT: PartitionRuns((SPACE,), tuple(runs), True, "p")})
        states.look_up(AT, wanted)
        rows = [
            {"key_hash": hash_of(key), "key": key, "n": {"n": seq}} for key in keys[seq : seq + 9]
        ]
        states.change(AT, pa.RecordBatch.from_pylist(rows, FORM.schema))
        runs = after_batch(runs, [run for _, run in states.finish()], seq + 1)
        assert states.figures.restored_bytes == 0
    elsewhere = TaskStates(FORM, StateSettings(settings.directory, "s", 12, 1, tmp_path / "other"))
    elsewhere.begin({AT: PartitionRuns((SPACE,), tuple(runs), True, "p")})
    elsewhere.look_up(AT, wanted)
    assert elsewhere.figures.restored_bytes == sum(run.size_bytes for run in runs)


@pytest.mark.parametrize("name", ["n", "soon"])
def test_a_variable_that_is_left_out_is_refused(tmp_path: Path, name: str) -> None:
    states = TaskStates(FORM, StateSettings(str(tmp_path / "state"), "source", 0, 1))
    states.begin({AT: PartitionRuns((SPACE,), (), True, "p")})
    key = KEYS[0]
    row = {"key_hash": hash_of(key), "key": key, "n": {"n": 1}}
    states.change(AT, pa.RecordBatch.from_pylist([row], FORM.schema))
    runs = after_batch([], [run for _, run in states.finish()], 1)
    left = StateForm(tuple(each for each in FORM.variables if each.name != name))
    other = TaskStates(left, StateSettings(str(tmp_path / "state"), "source", 1, 1))
    other.begin({AT: PartitionRuns((SPACE,), tuple(runs), True, "p")})
    with pytest.raises(Exception, match=rf"STATE_SCHEMA_CHANGED.*'{name}'"):
        other.look_up(AT, Keys(np.array([hash_of(key)]), pa.array([key], pa.binary())))


@pytest.mark.parametrize("column", ["key", "n"])
def test_more_than_a_column_takes_is_refused(monkeypatch: pytest.MonkeyPatch, column: str) -> None:
    """Arrow makes pieces of keys, of which the first alone would count, and fails with values."""
    rows = pa.RecordBatch.from_pylist([{"key_hash": 1, "key": b"a"}], FORM.schema)

    class Whole:
        def combine_chunks(self) -> Any:
            if column == "n":
                raise pa.ArrowInvalid("offset overflow while concatenating arrays")
            return pa.Table.from_batches([rows, rows])

    whole = SimpleNamespace(from_batches=lambda *_: Whole())
    arrow = SimpleNamespace(Table=whole, ArrowInvalid=pa.ArrowInvalid)
    monkeypatch.setattr(sorted_blocks, "pa", arrow)
    with pytest.raises(KeyrangeError, match="STATE_TOO_LARGE"):
        sorted_blocks.joined([rows, rows], FORM.schema)
