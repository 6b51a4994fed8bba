"""Readers that share a partition on one host, over a scripted broker.

A log of small batches, answered a few batches at a time; each reader has a connection of its own,
and all have one executor's directories.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa

from brokers.scripted_broker import Fetched, ScriptedCluster, World
from keyrange.kafka.fetching.fetch import SplitReader
from keyrange.kafka.fetching.read_settings import ReadSettings
from keyrange.model.key_ranges import hash_of
from keyrange.model.offset_splits import Split
from keyrange.model.offsets import TopicPartition
from keyrange.model.reader_ranges import placement_of
from keyrange.ranges.model.range_plan import even_ranges
from keyrange.ranges.sharing.shared_directory import ExecutorDirectory, HostSettings
from keyrange.ranges.sharing.shared_reader import RangeReader
from keyrange.wire.chunk_decoder import DecodeSettings
from samples.strategies import Batch, Record, encode_batch

AMPLE = 1 << 30
NAME = "0123456789abcdef"


@dataclass
class Shared:
    """A log that `readers` share, each its even part of the hash space."""

    home: Path
    readers: int = 3
    chunks: int = 6
    memory_bytes: int = AMPLE
    spill_bytes: int = AMPLE
    seed: int = 0
    value_bytes: int = 20
    batches_per_chunk: int = 2
    keep_values: bool = True
    poll_timeout_ms: int = 10_000
    fail_on_data_loss: bool = True
    decode: DecodeSettings = field(default_factory=DecodeSettings)

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        self.batches: list[tuple[int, int, bytes]] = []
        self.keys: dict[int, bytes] = {}
        self.values: dict[int, bytes] = {}
        at = 5
        for _ in range(self.chunks * self.batches_per_chunk):
            records = tuple(self._record(at, delta) for delta in range(self.random.randint(1, 6)))
            batch = Batch(at, records, codec=self.random.choice(["none", "lz4"]))
            self.batches.append((at, batch.last_offset, encode_batch(batch)))
            # Compacted topics have pending records.
            at = batch.last_offset + self.random.choice([1, 1, 4])
        self.until = self.batches[-1][1] + 1
        placement = placement_of([[span] for span in even_ranges(self.readers)])
        split = Split(TopicPartition("t", 0), 5, self.until, 1_000, placement, NAME)
        self.splits = [replace(split, placement=placement.of(n)) for n in range(self.readers)]
        self.world = World(self._answer, latest=self.until)
        for name in ("memory", "spill"):
            (self.home / name).mkdir()

    def _record(self, at: int, delta: int) -> Record:
        key = b"key-%d" % self.random.randrange(12)
        self.keys[at + delta] = key
        size = self.random.randint(0, self.value_bytes)
        # No two offsets have the same bytes at the same place.
        self.values[at + delta] = (b"%d " % (at + delta) * size)[:size]
        return Record(delta, 0, key, self.values[at + delta])

    def _answer(self, node: int, partition: int, offset: int) -> Fetched:
        if offset < self.world.earliest:
            return Fetched(error_code=1)
        there = [data for _, last, data in self.batches if last >= offset]
        return Fetched(b"".join(there[: self.batches_per_chunk]), high_watermark=self.until)

    @property
    def fetches(self) -> int:
        """How many chunks were asked for so far, by all readers."""
        return len(self.world.asked)

    @property
    def directory(self) -> ExecutorDirectory:
        home = self.home
        settings = HostSettings(
            self.memory_bytes, self.spill_bytes, home / "memory", home / "spill"
        )
        return ExecutorDirectory(settings)

    @property
    def path(self) -> Path:
        """What the readers share, while it is there."""
        return self.directory.path / NAME

    def reader(self, number: int) -> RangeReader:
        cluster: Any = ScriptedCluster(self.world)
        how = ReadSettings(self.decode, self.fail_on_data_loss, self.poll_timeout_ms)
        splits = SplitReader(cluster, self.world.view(), how)
        return RangeReader(splits, self.directory, self.splits[number], self.keep_values)

    def read(self, number: int, kept: Kept | None = None) -> Iterator[list[int]]:
        """The offsets that a reader hands over, batch by batch."""
        for batch in self.reader(number).read():
            self.check(batch)
            if kept is not None:
                kept.add(batch)
            yield batch.column("offset").to_pylist()

    def check(self, batch: pa.RecordBatch) -> None:
        """The rows of a batch are those of the log."""
        batch.validate(full=True)
        assert set(batch.column("topic").to_pylist()) == {"t"}
        offsets = batch.column("offset").to_pylist()
        assert batch.column("key").to_pylist() == [self.keys[offset] for offset in offsets]
        assert batch.column("value").to_pylist() == [self.values[offset] for offset in offsets]

    def expected(self, number: int) -> list[int]:
        placement = self.splits[number].placement
        assert placement is not None
        [span] = placement.ranges()
        return [at for at, key in sorted(self.keys.items()) if span.contains(hash_of(key))]

    def left(self) -> list[str]:
        """Files and directories of results that are still there."""
        made = self.directory
        found = [path for parent in (made.path, made.spill_path) for path in parent.rglob("*")]
        return sorted(path.name for path in found if path.name not in ("budget", "spill"))


@dataclass
class Kept:
    """Batches that somebody keeps, some for long: their rows may never change."""

    shared: Shared
    random: Random
    batches: list[tuple[pa.RecordBatch, list[int]]] = field(default_factory=list)

    def add(self, batch: pa.RecordBatch) -> None:
        """Keep a batch, or not; of many one goes."""
        if self.random.random() < 0.15:
            self.batches.append((batch, batch.column("offset").to_pylist()))
        if len(self.batches) > 6:
            self.batches.pop(self.random.randrange(len(self.batches)))

    def check(self) -> None:
        for batch, offsets in self.batches:
            assert batch.column("offset").to_pylist() == offsets
            self.shared.check(batch)


def flat(batches: Iterable[list[int]]) -> list[int]:
    return [offset for batch in batches for offset in batch]


def in_turns(readers: dict[int, Iterator[list[int]]]) -> dict[int, list[int]]:
    """Take a batch of each in turn until all are done."""
    found: dict[int, list[int]] = {number: [] for number in readers}
    left = dict(readers)
    while left:
        for number, reader in list(left.items()):
            try:
                found[number] += next(reader)
            except StopIteration:
                del left[number]
    return found


def everything(shared: Shared) -> dict[int, list[int]]:
    return {number: shared.expected(number) for number in range(shared.readers)}


def all_readers(shared: Shared) -> dict[int, Iterator[list[int]]]:
    return {number: shared.read(number) for number in range(shared.readers)}
