"""A process that changes the state of keys as the tasks of a query do, and commits it, until its
standard input ends: a line for each commit.

Without Spark: what a reader sees of a query are its files and its commits.
"""

from __future__ import annotations

import select
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from keyrange.individual_commits.model.commit import Commit, CommitKind
from keyrange.individual_commits.model.partition_progress import fresh
from keyrange.individual_commits.table.commit_table import LAYOUT, DeltaCommitTable
from keyrange.keyed_state.model.state_runs import StateRun, after_batch
from keyrange.keyed_state.sorted_blocks import Keys
from keyrange.keyed_state.states_of_task import PartitionRuns, StateSettings, TaskStates
from keyrange.keyed_state.variables import StateForm, ValueState, variables_of
from keyrange.model.key_ranges import SPACE, hash_of
from keyrange.model.offsets import TopicPartition
from keyrange.storage.delta_store import DeltaStore
from keyrange.storage.directory import Directory

PARTITIONS: Final = 4
_SOURCE: Final = "bench"
_FORM: Final = StateForm(variables_of({"total": ValueState("n long, last string")}))
_STEP: Final = 50_000


def key_of(number: int) -> bytes:
    return b"customer-%09d" % number


class StateWriter:
    """The state of so many keys, as of the last commit. `home`: of the commit table."""

    def __init__(self, home: str) -> None:
        self._directory = f"{home}_state"
        self._copies = Path(f"{home}_copies")
        self._table = DeltaCommitTable(DeltaStore(home, LAYOUT, {}), _SOURCE)
        self._runs: dict[TopicPartition, list[StateRun]] = {
            TopicPartition("orders", number): [] for number in range(PARTITIONS)
        }
        self.seq = 0

    @property
    def runs(self) -> dict[TopicPartition, tuple[StateRun, ...]]:
        """Where the state is after the last commit."""
        return {at: tuple(each) for at, each in self._runs.items()}

    @property
    def directory(self) -> Directory:
        """Where the files of the state are."""
        return Directory(self._directory, {})

    def change(self, numbers: Sequence[int]) -> None:
        """Change some keys, each in the partition of its number, in a commit."""
        made = {}
        for partition, runs in self._runs.items():
            own = [each for each in numbers if each % PARTITIONS == partition.partition]
            settings = StateSettings(self._directory, _SOURCE, self.seq, 1, self._copies)
            states = TaskStates(_FORM, settings)
            place = str(partition.partition)
            states.begin({partition: PartitionRuns((SPACE,), tuple(runs), True, place)})
            for first in range(0, len(own), _STEP):
                self._change(states, partition, own[first : first + _STEP])
            made[partition] = [run for _, run in states.finish()]
        self.seq += 1
        for partition, found in made.items():
            self._runs[partition] = after_batch(self._runs[partition], found, self.seq)
        runs = {at: tuple(each) for at, each in self._runs.items()}
        places = {at: fresh("id", self.seq) for at in runs}
        now_ms = time.time_ns() // 1_000_000
        named = ("bench", _SOURCE, "query", "run", self.seq, now_ms)
        commit = Commit(self.seq, CommitKind.BATCH, *named, states=places, runs=runs)
        self._table.append(commit)

    def _change(
        self, states: TaskStates, partition: TopicPartition, numbers: Sequence[int]
    ) -> None:
        hashed = sorted((hash_of(key_of(each)), key_of(each)) for each in numbers)
        if not hashed:
            return
        hashes, keys = zip(*hashed, strict=True)
        wanted = Keys(np.array(hashes, np.int64), pa.array(keys, pa.binary()))
        states.look_up(partition, wanted)
        total = pa.array([{"n": self.seq, "last": "2026-05-01"}] * len(keys), _FORM.schema[2].type)
        columns = [pa.array(wanted.hashes), wanted.keys, total]
        states.change(partition, pa.RecordBatch.from_arrays(columns, schema=_FORM.schema))


def main(home: str, keys: int, changed: int, every_s: float) -> None:
    writer, random = StateWriter(home), np.random.default_rng(7)
    writer.change(range(keys))
    print(writer.seq, flush=True)
    while not select.select([sys.stdin], [], [], every_s)[0]:
        writer.change(sorted(set(random.integers(0, keys, changed).tolist())))
        print(writer.seq, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
