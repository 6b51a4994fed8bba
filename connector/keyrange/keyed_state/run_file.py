"""A file of runs that a task writes, and the copies of these on its host."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from keyrange.keyed_state.cache import Draft
from keyrange.keyed_state.model.state_runs import MadeRun
from keyrange.keyed_state.state_files import StateFileWriter
from keyrange.keyed_state.variables import KEY, KEY_HASH, StateForm
from keyrange.model.key_ranges import KeyRange
from keyrange.model.offsets import TopicPartition


@dataclass
class RunFile:
    """A file of runs, and their copies on this host."""

    form: StateForm
    writer: StateFileWriter
    _copies: list[Draft | None] = field(default_factory=list)

    def add(
        self,
        partition: TopicPartition,
        span: KeyRange,
        from_seq: int,
        blocks: Iterable[pa.RecordBatch],
        copy: Draft | None,
    ) -> None:
        self._copies.append(copy)
        place = (partition, span, from_seq)
        if not self.writer.add(*place, _copied(blocks, copy)):
            # Nothing is left of these keys: a row says of no key that it has no state.
            no_one = {KEY_HASH: span.from_hash, KEY: b""}
            self.writer.add(*place, [pa.RecordBatch.from_pylist([no_one], self.form.schema)])

    def finish(self) -> list[tuple[TopicPartition, MadeRun]]:
        found = self.writer.finish()
        for (_, made), copy in zip(found, self._copies, strict=True):
            if copy is not None:
                # The number of the commit is in no name.
                copy.keep(made.committed(max(made.from_seq, 1)))
        return found

    def abandon(self) -> None:
        self.writer.abandon()
        for copy in self._copies:
            if copy is not None:
                copy.abandon()


def _copied(blocks: Iterable[pa.RecordBatch], copy: Draft | None) -> Iterator[pa.RecordBatch]:
    for block in blocks:
        if copy is not None:
            copy.add(block)
        yield block
