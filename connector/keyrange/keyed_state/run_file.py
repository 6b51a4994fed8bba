"""The file that a task writes runs to, and their copies on its host."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from keyrange.kafka.model.offsets import TopicPartition
from keyrange.keyed_state.cache import Draft, StateCache
from keyrange.keyed_state.model.state_runs import MadeRun
from keyrange.keyed_state.state_files import StateFileWriter
from keyrange.keyed_state.variables import StateForm
from keyrange.ranges.model.key_ranges import KeyRange


@dataclass
class _Begun:
    partition: TopicPartition
    span: KeyRange
    from_seq: int
    copy: tuple[StateCache, Draft] | None


@dataclass
class RunFile:
    """A file of runs, and their copies on this host."""

    form: StateForm
    new_file: Callable[[], StateFileWriter]
    size_bytes: int = 0
    _begun: list[_Begun] = field(default_factory=list)
    _writer: StateFileWriter | None = None

    def add(
        self,
        partition: TopicPartition,
        span: KeyRange,
        from_seq: int,
        blocks: Iterable[pa.RecordBatch],
        copy: tuple[StateCache, Draft] | None,
    ) -> None:
        if self._writer is None:
            self._writer = self.new_file()
        begun = _Begun(partition, span, from_seq, copy)
        self._begun.append(begun)
        if not self._writer.add(self._copied(blocks, copy)):
            # Nothing is left of these keys: that too is to be said.
            self._writer.add([_no_one(self.form, span)])

    def finish(self) -> list[tuple[TopicPartition, MadeRun]]:
        if self._writer is None:
            return []
        found = []
        for begun, written in zip(self._begun, self._writer.finish(), strict=True):
            made = MadeRun(
                self._writer.name,
                written.groups,
                begun.span,
                begun.from_seq,
                written.rows,
                written.size_bytes,
            )
            self.size_bytes += written.size_bytes
            if begun.copy is not None:
                # The number of the commit is in no name.
                begun.copy[1].keep(made.committed(max(begun.from_seq, 1)))
            found.append((begun.partition, made))
        return found

    def abandon(self) -> None:
        if self._writer is not None:
            self._writer.abandon()
        for begun in self._begun:
            if begun.copy is not None:
                begun.copy[1].abandon()

    def _copied(
        self, blocks: Iterable[pa.RecordBatch], copy: tuple[StateCache, Draft] | None
    ) -> Iterator[pa.RecordBatch]:
        for block in blocks:
            if copy is not None:
                copy[1].add(block)
            yield block


def _no_one(form: StateForm, span: KeyRange) -> pa.RecordBatch:
    """A row that says of no key that it has no state."""
    columns = [pa.array([span.from_hash], pa.int64()), pa.array([b""], pa.binary())]
    columns += [pa.nulls(1, each.type) for each in list(form.schema)[len(columns) :]]
    return pa.RecordBatch.from_arrays(columns, schema=form.schema)
