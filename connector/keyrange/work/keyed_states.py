"""What functions with state have in common, record by record or many keys at once."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from keyrange.keyed_state.sorted_blocks import Keys, Numbers
from keyrange.keyed_state.states_of_task import TaskStates
from keyrange.work.record_stretches import RecordStretch
from keyrange.work.state_in_memory import FoldedState
from keyrange.work.user_errors import said

NO_KEY: Final = said("it has no key, and state is kept for keys")
# Where states come from and go to.
States = TaskStates | FoldedState


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
