"""What functions with state have in common, record by record or many keys at once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final, Protocol

import numpy as np
import pyarrow as pa

from keyrange.keyed_state.model.figures import StateFigures
from keyrange.keyed_state.sorted_blocks import Keys, Numbers
from keyrange.keyed_state.states_of_task import Firing
from keyrange.keyed_state.variables import StateForm
from keyrange.model.offsets import TopicPartition
from keyrange.model.timers import Retries, SeenTimers
from keyrange.model.watermarks import PartitionClock
from keyrange.work.record_stretches import RecordStretch
from keyrange.work.user_errors import said

NO_KEY: Final = said("it has no key, and state is kept for keys")


class States(Protocol):
    """Where states come from and go to: `keyrange.keyed_state.states_of_task.TaskStates`."""

    @property
    def form(self) -> StateForm: ...

    @property
    def time_ms(self) -> int: ...

    @property
    def retries(self) -> Retries: ...

    @property
    def figures(self) -> StateFigures: ...

    def look_up(self, partition: TopicPartition, wanted: Keys) -> pa.RecordBatch: ...

    def change(self, partition: TopicPartition, rows: pa.RecordBatch) -> None: ...

    def clock(self, partition: TopicPartition) -> PartitionClock: ...

    def firing(self, waiting: Callable[[TopicPartition], Collection[int]]) -> Iterator[Firing]: ...

    def timers(
        self, waiting: Mapping[TopicPartition, Collection[int]]
    ) -> Iterator[tuple[TopicPartition, SeenTimers]]: ...


def clock_of(states: States, stretch: RecordStretch) -> int:
    """What the keys of records go by, which have one clock, in microseconds since 1970."""
    return states.clock(stretch.partition).of(int(stretch.key_hashes[0]))


def numbered(keys: pa.Array, hashes: Numbers) -> tuple[pa.Array, Keys]:
    """Of each of some rows the number of its key among the distinct ones, and these: they are
    sorted by hash, as states are looked up and kept, so that nothing has to be put in order."""
    encoded = keys.dictionary_encode()
    rows = encoded.indices.to_numpy()
    own = hashes[first_rows(rows, len(encoded.dictionary))]
    by_hash = np.argsort(own, kind="stable")
    numbers = np.empty(len(own), np.int32)
    numbers[by_hash] = np.arange(len(own))
    distinct = Keys(own[by_hash], encoded.dictionary.take(pa.array(by_hash)))
    return pa.array(numbers[rows]), distinct


def first_rows(numbers: Numbers, count: int) -> Numbers:
    """Of each number below `count` the first row that has it. Each must be there."""
    first = np.empty(count, np.int64)
    # The last one that is written stays.
    first[numbers[::-1]] = np.arange(len(numbers))[::-1]
    return first
