"""Copies of runs that a host is to have before its tasks read them: of keys that it gets soon, or
that it would get."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pyarrow as pa

from keyrange.keyed_state.cache import StateCache
from keyrange.keyed_state.model.state_runs import StateRun, clipped
from keyrange.keyed_state.sorted_blocks import all_in
from keyrange.keyed_state.state_files import FileBlocks
from keyrange.storage.directory import Directory


class Copying:
    """Copies runs from a state directory, `bytes_per_second` at most, 0 for as fast as can be: of
    files, whose bytes are compressed. A few row groups are in memory at a time."""

    def __init__(
        self, directory: Directory, bytes_per_second: int, sleep: Callable[[float], None]
    ) -> None:
        self._directory = directory
        self._rate = bytes_per_second
        self._sleep = sleep
        self.read_bytes = 0

    def copy(self, cache: StateCache, run: StateRun) -> None:
        """What the cache lacks of a run. Raises STATE_GONE, STATE_DAMAGED, STATE_UNREADABLE."""
        for span in cache.missing(run):
            [part] = clipped([run], span)
            source = FileBlocks(self._directory, part, None)
            cache.keep(part, self._slowly(source), source.schema)

    def _slowly(self, source: FileBlocks) -> Iterator[pa.RecordBatch]:
        began = time.monotonic()
        for block in all_in(source):
            yield block
            if self._rate:
                self._sleep(max(began + source.read_bytes / self._rate - time.monotonic(), 0.0))
        self.read_bytes += source.read_bytes
