"""Keys whose state is read ahead, for a function that is called with one record or timer after the
other."""

from __future__ import annotations

from collections import defaultdict
from typing import Final, NamedTuple

import pyarrow as pa

from keyrange.keyed_state.state_entries import Entries, Entry
from keyrange.keyed_state.state_handles import Current, KeyState, Undo, take_back
from keyrange.keyed_state.variables import KEY, KEY_HASH
from keyrange.model.offsets import TopicPartition
from keyrange.model.watermarks import BEGIN
from keyrange.work.keyed_states import States


class Settled(NamedTuple):
    """What a record in `row` has changed of its key, and how that is taken back."""

    row: int
    before: Entry
    undo: Undo


class KeysAhead:
    """The keys have numbers, and the function works on one of them.

    `state` is what the function is given of it; what it changes counts once that is settled.
    `changed`: the keys whose state goes to where states are. Timers fire up to `clock_us`, in
    microseconds since 1970.
    """

    def __init__(self, states: States, fires: bool, keeps_undo: bool) -> None:
        """`fires` as of `TimersHandle`. `keeps_undo`: what records have changed can be taken back
        when it is settled."""
        self._states: Final = states
        self._entries: Final = Entries(states.form)
        self.current: Final = Current(states.time_ms)
        self.state: Final = KeyState(self.current, self._entries, fires)
        self.partition = TopicPartition("", 0)
        self.clock_us = BEGIN
        self.keys: list[bytes] = []
        self.hashes: list[int] = []
        self.entries: list[Entry] = []
        self.changed: set[int] = set()
        self._number = 0
        self._row: int | None = None
        # Of each key in the order of its records; None where nothing settled is taken back.
        self._settled: defaultdict[int, list[Settled]] | None = (
            defaultdict(list) if keeps_undo else None
        )

    def take(self, partition: TopicPartition, clock_us: int, found: pa.RecordBatch) -> None:
        """Take in the state of some keys, when those before are finished."""
        self.partition, self.clock_us = partition, clock_us
        self.keys = found.column(KEY).to_pylist()
        self.hashes = found.column(KEY_HASH).to_pylist()
        self.entries = self._entries.read(found)

    def begin(self, number: int, row: int | None = None) -> None:
        """What is changed from now on is of this key, until that is settled or taken back: by the
        record in `row`, or by a timer."""
        current = self.current
        if current.before is not None:
            self.settle()
        self._number, self._row = number, row
        current.entry = self.entries[number]

    def settle(self) -> None:
        """What was changed for the last record or timer stays."""
        current = self.current
        if current.before is not None:
            self.changed.add(self._number)
            if self._settled is not None and self._row is not None:
                own = Settled(self._row, current.before, current.undo)
                self._settled[self._number].append(own)
            # An alarm may ring between any two lines: what is taken back is never half of it.
            current.undo = []
            current.before = None

    def take_back_since(self, row: int, number: int) -> None:
        """What the record in `row` and later ones have changed of a key is not done."""
        assert self._settled is not None
        self.settle()
        settled = self._settled[number]
        while settled and settled[-1].row >= row:
            last = settled.pop()
            take_back(self.entries[number], last.before, last.undo)

    def finish(self) -> None:
        """What was changed goes to where states are: as objects of Python it would be looked
        through again and again for circles."""
        self.settle()
        changed = sorted(self.changed)
        if changed:
            columns = [
                pa.array([self.hashes[at] for at in changed], pa.int64()),
                pa.array([self.keys[at] for at in changed], pa.binary()),
                *self._entries.columns([self.entries[at] for at in changed]),
            ]
            rows = pa.RecordBatch.from_arrays(columns, schema=self._states.form.schema)
            self._states.change(self.partition, rows)
        self.changed = set()
        if self._settled:
            self._settled.clear()
