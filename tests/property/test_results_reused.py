"""Files of results that are used again: what somebody holds never changes, and the budget holds."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keyrange.ranges.sharing import shared_directory
from keyrange.ranges.sharing.chunk_results import ResultWriter, read_results
from keyrange.ranges.sharing.shared_directory import ExecutorDirectory, HostSettings
from project.forms import by_form

SCHEMA = pa.schema([("offset", pa.int64()), ("value", pa.binary())])
MEMORY_BYTES = 100_000
READERS = 3

# What happens next: a chunk of so many rows is made, or half of it and its maker dies; a reader
# maps one of those that are there and keeps its rows; one is dropped; somebody lets go of rows.
STEPS = st.one_of(
    st.tuples(st.sampled_from(["make", "make", "make", "die"]), st.integers(0, 300)),
    st.tuples(st.sampled_from(["take", "drop", "drop", "let_go"]), st.integers(0, 100)),
)


class Batch:
    """A batch of a plan, its results by number, and the rows that readers hold."""

    def __init__(self, home: Path) -> None:
        for name in ("memory", "spill"):
            (home / name).mkdir()
        self.directory = ExecutorDirectory(
            HostSettings(MEMORY_BYTES, 0, home / "memory", home / "spill")
        )
        (self.directory.path / "batch").mkdir()
        self.made = 0
        self.there: list[int] = []
        self.held: list[tuple[pa.RecordBatch, list[dict[str, object]]]] = []

    def path(self, number: int) -> Path:
        return self.directory.result("batch", f"{number}-1", spill=False)

    def rows(self, number: int, count: int) -> pa.RecordBatch:
        offsets = range(number * 1_000, number * 1_000 + count)
        values = [b"%d " % at * 5 for at in offsets]
        return pa.record_batch([pa.array(offsets, pa.int64()), values], schema=SCHEMA)

    def make(self, count: int, dies: bool) -> None:
        number, self.made = self.made, self.made + 1
        path = self.path(number)

        def enlarge(size: int) -> bool:
            return self.directory.reserve(path, size)

        if not enlarge(1_000):
            return
        writer = ResultWriter(path, SCHEMA, enlarge)
        try:
            with writer:
                for half in (count // 2, count - count // 2):
                    writer.write(self.rows(number, half), [0, half // 3, half // 2, half], None)
                    if dies:
                        raise KeyboardInterrupt
            self.there.append(number)
        except (OSError, KeyboardInterrupt):
            # By who finds that its maker died.
            path.unlink()

    def take(self, which: int) -> None:
        if self.there:
            number = self.there[which % len(self.there)]
            for rows in read_results(self.path(number), which % READERS):
                found = rows.to_pylist()
                assert {int(row["offset"]) // 1_000 for row in found} == {number}
                self.held.append((rows, found))

    def drop(self, which: int) -> None:
        if self.there:
            self.directory.drop(self.path(self.there.pop(which % len(self.there))))

    def let_go(self, which: int) -> None:
        if self.held:
            self.held.pop(which % len(self.held))

    def check(self) -> None:
        for rows, found in self.held:
            assert rows.to_pylist() == found
        names = os.listdir(self.directory.path / "batch")
        assert (
            len([name for name in names if name.startswith("free-")]) <= shared_directory._FREE_MAX
        )
        assert shared_directory._used(self.directory.path) <= MEMORY_BYTES


@pytest.mark.ordinary
@settings(deadline=None, max_examples=by_form(15, 30, 600))
@given(st.lists(STEPS, min_size=20, max_size=120))
def test_rows_that_are_held_stay_as_they_are(steps: list[tuple[str, int]]) -> None:
    with tempfile.TemporaryDirectory() as home:
        batch = Batch(Path(home))
        for what, number in steps:
            if what in ("make", "die"):
                batch.make(number, what == "die")
            else:
                getattr(batch, what)(number)
            batch.check()
