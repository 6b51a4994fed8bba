"""Rows of keys' states that are sorted by hash, and how keys are found in them.

A block is a batch of at most some ten thousand rows; all rows of one hash are in one block. Keys
are told apart by their bytes: two may have one hash.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from keyrange.errors import KeyrangeError, error
from keyrange.keyed_state.variables import KEY, KEY_HASH, StateForm
from keyrange.model.key_ranges import HASH_MAX, KeyRange

BLOCK_ROWS: Final = 32_768

Numbers = NDArray[np.int64]


class Blocks(Protocol):
    """Blocks in the order of hashes; one may be empty. `bounds`: of each two hashes between which,
    both included, its own lie."""

    @property
    def bounds(self) -> tuple[Numbers, Numbers]: ...

    def block(self, at: int) -> pa.RecordBatch: ...


class LoadedBlocks:
    """Blocks that are in memory, or mapped."""

    def __init__(self, blocks: Sequence[pa.RecordBatch]) -> None:
        self._blocks = [each for each in blocks if each.num_rows]
        hashes = [hashes_of(each) for each in self._blocks]
        self.bounds = (
            np.array([each[0] for each in hashes], np.int64),
            np.array([each[-1] for each in hashes], np.int64),
        )

    def block(self, at: int) -> pa.RecordBatch:
        return self._blocks[at]


def all_in(blocks: Blocks) -> Iterator[pa.RecordBatch]:
    """The blocks in their order."""
    return map(blocks.block, range(len(blocks.bounds[0])))


class ChangedRows:
    """Rows of keys that are added bit by bit: each key's newest counts."""

    def __init__(self) -> None:
        # The newest first; each has less than half of the rows of the one behind it. So a row is
        # sorted again as often as the number of all doubles.
        self._levels: list[pa.RecordBatch] = []

    def __bool__(self) -> bool:
        return bool(self._levels)

    def add(self, rows: pa.RecordBatch) -> None:
        """Take in rows of distinct keys, sorted by hash."""
        levels = self._levels
        while levels and levels[0].num_rows <= 2 * rows.num_rows:
            rows = newest_of([rows, levels.pop(0)])
        levels.insert(0, rows)

    def runs(self) -> list[LoadedBlocks]:
        """What there is, the newest first."""
        return [LoadedBlocks([each]) for each in self._levels]

    def joined(self) -> pa.RecordBatch:
        """All rows, sorted by hash. There must be some."""
        self._levels = [newest_of(self._levels)]
        return self._levels[0]


def hashes_of(batch: pa.RecordBatch) -> Numbers:
    return np.asarray(batch.column(KEY_HASH).to_numpy())


def within(batch: pa.RecordBatch, span: KeyRange) -> pa.RecordBatch:
    """The rows of a key range."""
    hashes = hashes_of(batch)
    first = int(np.searchsorted(hashes, span.from_hash))
    # The end of the space is no hash of 64 bits with a sign.
    last = min(span.until_hash - 1, HASH_MAX)
    return batch.slice(first, int(np.searchsorted(hashes, last, side="right")) - first)


@dataclass(frozen=True, slots=True)
class Keys:
    """Distinct keys, sorted by hash."""

    hashes: Numbers
    keys: pa.Array

    def __len__(self) -> int:
        return len(self.hashes)

    def at(self, rows: Numbers) -> Keys:
        return Keys(self.hashes[rows], self.keys.take(pa.array(rows)))

    def between(self, start: int, stop: int) -> Keys:
        return Keys(self.hashes[start:stop], self.keys.slice(start, stop - start))


def keys_at(rows: pa.RecordBatch, at: Numbers) -> Keys:
    """The keys of some of the rows, which are sorted by hash."""
    return Keys(hashes_of(rows)[at], rows.column(KEY).take(pa.array(at)))


def find(block: pa.RecordBatch, wanted: Keys) -> Numbers:
    """The row of each key in a block, -1 where it is not there."""
    hashes, keys = hashes_of(block), block.column(KEY)
    if not len(hashes):
        return np.full(len(wanted), -1, np.int64)
    rows = np.searchsorted(hashes, wanted.hashes)
    rows[rows == len(hashes)] = 0
    is_there = hashes[rows] == wanted.hashes
    rows[~is_there] = -1
    at = np.flatnonzero(is_there)
    if not len(at):
        return rows
    found = pc.equal(keys.take(pa.array(rows[at])), wanted.keys.take(pa.array(at)))
    same = np.asarray(found.to_numpy(zero_copy_only=False), bool)
    for each in at[~same].tolist():
        # Another key has this hash.
        rows[each] = _among(hashes, keys, int(rows[each]), wanted.keys[each])
    return rows


def _among(hashes: Numbers, keys: pa.Array, first: int, key: pa.Scalar) -> int:
    key_hash, row = hashes[first], first
    while row < len(hashes) and hashes[row] == key_hash:
        if keys[row] == key:
            return row
        row += 1
    return -1


def look_up(runs: Sequence[Blocks], wanted: Keys, form: StateForm) -> pa.RecordBatch:
    """What the newest of some runs says of each key that says something of it, in the order of the
    keys; nulls where none does. `runs`: the newest first."""
    pieces: list[pa.RecordBatch] = []
    rows = np.full(len(wanted), -1, np.int64)
    left, count = np.arange(len(wanted)), 0
    for run in runs:
        if not len(left):
            break
        for place, at, block in _hits(run, wanted if len(left) == len(wanted) else wanted.at(left)):
            pieces.append(form.fitted(block.take(pa.array(at))))
            rows[left[place]] = np.arange(count, count + len(place))
            count += len(place)
        left = left[rows[left] < 0]
    return _gathered(pieces, rows, wanted, form)


def said_by_none(runs: Sequence[Blocks], wanted: Keys) -> Numbers:
    """Which of some keys, by their places, no run says anything of."""
    left = np.arange(len(wanted))
    for run in runs:
        if not len(left):
            break
        known = wanted if len(left) == len(wanted) else wanted.at(left)
        found = [place for place, *_ in _hits(run, known)]
        if found:
            left = np.delete(left, np.concatenate(found))
    return left


def _hits(run: Blocks, wanted: Keys) -> Iterator[tuple[Numbers, Numbers, pa.RecordBatch]]:
    """Of each block that has some of the keys: which of them, in which of its rows."""
    lowest, highest = run.bounds
    starts = np.searchsorted(wanted.hashes, lowest)
    stops = np.searchsorted(wanted.hashes, highest, side="right")
    for number in np.flatnonzero(starts < stops).tolist():
        start, stop = int(starts[number]), int(stops[number])
        block = run.block(number)
        rows = find(block, wanted.between(start, stop))
        place = np.flatnonzero(rows >= 0)
        if len(place):
            yield place + start, rows[place], block


def _gathered(
    pieces: Sequence[pa.RecordBatch], rows: Numbers, wanted: Keys, form: StateForm
) -> pa.RecordBatch:
    states = joined(pieces, form.schema).select(form.schema.names[2:])
    taken = states.take(pa.array(rows, mask=rows < 0))
    columns = [pa.array(wanted.hashes), wanted.keys, *taken.columns]
    return pa.RecordBatch.from_arrays(columns, schema=form.schema)


def sorted_by_hash(batch: pa.RecordBatch) -> pa.RecordBatch:
    hashes = hashes_of(batch)
    if len(hashes) < 2 or (hashes[1:] >= hashes[:-1]).all():
        return batch
    return batch.take(pa.array(np.argsort(hashes, kind="stable")))


def newest_of(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Sorted rows made one, of each key those of the first batch that has it."""
    filled = [each for each in batches if each.num_rows]
    if len(filled) < 2:
        return filled[0] if filled else batches[0]
    whole = joined(filled, filled[0].schema)
    hashes = hashes_of(whole)
    # It finds what is sorted already, and merges that.
    order = np.argsort(hashes, kind="stable")
    return whole.take(pa.array(order[_first_of_each(hashes[order], whole.column(KEY), order)]))


def _first_of_each(hashes: Numbers, keys: pa.Array, order: Numbers) -> NDArray[np.bool_]:
    """Which of some sorted rows are the first of their key. `order`: where their keys are."""
    first = np.ones(len(hashes), bool)
    again = np.flatnonzero(hashes[1:] == hashes[:-1]) + 1
    if not len(again):
        return first
    same = pc.equal(keys.take(pa.array(order[again])), keys.take(pa.array(order[again - 1])))
    same = np.asarray(same.to_numpy(zero_copy_only=False), bool)
    first[again] = ~same
    if not same.all():
        # Keys that share a hash may alternate.
        seen: set[Any] = set()
        for row in np.flatnonzero(np.isin(hashes, hashes[again[~same]])).tolist():
            key = keys[int(order[row])].as_py()
            first[row] = key not in seen
            seen.add(key)
    return first


def merged(
    runs: Sequence[Blocks], form: StateForm, keeps: Callable[[pa.RecordBatch], pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Runs made one, the newest first, in blocks; a few blocks of each are held at a time. `keeps`
    says what stays of rows."""
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for window in _windows(runs, form):
        kept = keeps(window)
        waiting.append(kept)
        rows += kept.num_rows
        if rows >= BLOCK_ROWS:
            yield from blocks_of(joined(waiting, form.schema))
            waiting, rows = [], 0
    if rows:
        yield from blocks_of(joined(waiting, form.schema))


def joined(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    """The rows of some batches in one. Raises STATE_TOO_LARGE where a column of them has more than
    2 GiB: of keys Arrow makes several pieces then, and of values none."""
    whole = pa.Table.from_batches(batches, schema)
    try:
        found = whole.combine_chunks().to_batches()
    except pa.ArrowInvalid as failure:
        raise _too_large(str(failure)) from None
    if len(found) > 1:
        raise _too_large("keys of more than 2 GiB")
    return found[0] if found else pa.RecordBatch.from_pylist([], schema)


def _too_large(why: str) -> KeyrangeError:
    return error("STATE_TOO_LARGE", f"the state of a key range does not go into memory: {why}")


def _windows(runs: Sequence[Blocks], form: StateForm) -> Iterator[pa.RecordBatch]:
    """The rows of all runs up to the least of the hashes at which a block ends, again and again."""
    rests = [filter(len, map(form.fitted, all_in(run))) for run in runs]
    parts = [next(each, None) for each in rests]
    while any(part is not None for part in parts):
        bound = min(int(hashes_of(part)[-1]) for part in parts if part is not None)
        taken = []
        for at, part in enumerate(parts):
            if part is None:
                continue
            count = int(np.searchsorted(hashes_of(part), bound, side="right"))
            if count:
                taken.append(part.slice(0, count))
            parts[at] = part.slice(count) if count < len(part) else next(rests[at], None)
        yield newest_of(taken)


def blocks_of(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Sorted rows in blocks; none begins within a hash."""
    hashes, start = hashes_of(batch), 0
    while start < len(hashes):
        stop = min(start + BLOCK_ROWS, len(hashes))
        stop = int(np.searchsorted(hashes, hashes[stop - 1], side="right"))
        yield batch.slice(start, stop - start)
        start = stop
