"""Files of states that somebody changed, or put in another one's place: told apart, whatever was
changed."""

from __future__ import annotations

import random
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from keyrange import ValueState
from keyrange.errors import KeyrangeError
from keyrange.keyed_state.model.state_runs import StateRun
from keyrange.keyed_state.sorted_blocks import Keys, look_up
from keyrange.keyed_state.state_files import FileBlocks, StateFileWriter
from keyrange.keyed_state.variables import KEY, KEY_HASH, StateForm, variables_of
from keyrange.model.key_ranges import SPACE
from keyrange.model.offsets import TopicPartition
from keyrange.storage.directory import Directory

FORM = StateForm(variables_of({"total": ValueState("n long")}))
HASHES = [*range(0, 4_000, 100)]


@dataclass
class Files:
    home: Path

    def written(self, source: str, total: int) -> tuple[StateRun, Path]:
        """A run of two blocks in a file of a source."""
        writer = StateFileWriter(Directory(str(self.home)), source, FORM)
        half = len(HASHES) // 2
        blocks = (
            pa.RecordBatch.from_pylist(
                [{KEY_HASH: at, KEY: b"k%d" % at, "total": {"n": total}} for at in some],
                FORM.schema,
            )
            for some in (HASHES[:half], HASHES[half:])
        )
        assert writer.add(TopicPartition("t", 0), SPACE, 0, blocks)
        [(_, made)] = writer.finish()
        return made.committed(0), self.home / writer.name

    def totals(self, run: StateRun) -> list[int | None]:
        keys = pa.array([b"k%d" % at for at in HASHES], pa.binary())
        blocks = FileBlocks(Directory(str(self.home)), run, FORM)
        found = look_up([blocks], Keys(np.array(HASHES, np.int64), keys), FORM)
        return [each and each["n"] for each in found.column("total").to_pylist()]


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def test_a_bit_that_was_flipped_anywhere_changes_no_state(files: Files) -> None:
    run, path = files.written("s", 7)
    good, data = files.totals(run), path.read_bytes()
    assert good == [7] * len(HASHES)
    footer = int.from_bytes(data[-8:-4], "little") + 8
    chance = random.Random(5)
    # Pages have checksums of their own; what says where they are has the commit's.
    places = chance.sample(range(len(data) - footer, len(data)), 150)
    for at in places:
        changed = bytearray(data)
        changed[at] ^= 1 << chance.randrange(8)
        path.write_bytes(changed)
        with pytest.raises(KeyrangeError, match=r"\[STATE_DAMAGED\]"):
            files.totals(run)
    for at in chance.sample(range(4, len(data) - footer), 60):
        changed = bytearray(data)
        changed[at] ^= 1 << chance.randrange(8)
        path.write_bytes(changed)
        found: object = None
        try:
            found = files.totals(run)
        except KeyrangeError as failure:
            found = failure.condition.name
        assert found in (good, "STATE_DAMAGED")


@pytest.mark.parametrize("size", [0, 3, 8, 100])
def test_a_file_that_was_cut_is_damaged(files: Files, size: int) -> None:
    run, path = files.written("s", 7)
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(KeyrangeError, match=r"\[STATE_DAMAGED\]"):
        files.totals(run)


@pytest.mark.parametrize("source", ["s", "another"])
def test_another_file_in_its_place_is_told_apart(files: Files, source: str) -> None:
    """Also one with the same rows: what is known of it is its name."""
    run, path = files.written("s", 7)
    for total in (7, 8):
        _, other = files.written(source, total)
        shutil.copy(other, path)
        with pytest.raises(KeyrangeError, match=r"\[STATE_DAMAGED\] .* its end is not the one"):
            files.totals(run)
