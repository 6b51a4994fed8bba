"""A log that transactions are written to, as brokers show it to who reads only what is committed,
and to who reads everything."""

from __future__ import annotations

from dataclasses import replace

from brokers.scripted_broker import Fetched, World
from samples.strategies import TRANSACTIONAL, Batch, Record, encode_batch, marker


class TransactionalLog:
    """One partition. `committed` are the offsets that are to be read of what has ended."""

    def __init__(self) -> None:
        self._batches: list[Batch] = []
        self._open: dict[int, list[int]] = {}
        # Producer, first offset and offset of the marker, of what was aborted.
        self._aborted: list[tuple[int, int, int]] = []
        self.committed: list[int] = []
        self._worlds = {level: World(self._script(level == 1)) for level in (0, 1)}
        self._grown()

    @property
    def end(self) -> int:
        return self._batches[-1].last_offset + 1 if self._batches else 0

    @property
    def stable(self) -> int:
        return min([offsets[0] for offsets in self._open.values()], default=self.end)

    def world(self, committed: bool = True) -> World:
        """The brokers of one level, for as many clients as want them."""
        return self._worlds[int(committed)]

    def write(self, producer_id: int, count: int = 1) -> list[int]:
        """Records of a producer's transaction, each with a key of its own; their offsets."""
        first = self.end
        records = tuple(Record(n, key=b"%d" % (first + n)) for n in range(count))
        batch = Batch(first, records, flags=TRANSACTIONAL, producer_id=producer_id)
        self._batches.append(batch)
        offsets = list(range(first, first + count))
        self._open.setdefault(producer_id, []).extend(offsets)
        self._grown()
        return offsets

    def finish(self, producer_id: int, commit: bool) -> None:
        """End a producer's transaction."""
        offsets = self._open.pop(producer_id)
        if commit:
            self.committed = sorted([*self.committed, *offsets])
        else:
            self._aborted.append((producer_id, offsets[0], self.end))
        self._batches.append(marker(self.end, producer_id, commit))
        self._grown()

    def transaction(self, commit: bool, count: int = 5) -> list[int]:
        """A whole one; its offsets."""
        offsets = self.write(1_000 + self.end, count)
        self.finish(1_000 + offsets[0], commit)
        return offsets

    def _grown(self) -> None:
        for world in self._worlds.values():
            world.latest = self.end
        self._worlds[1].stable = self.stable

    def _script(self, committed: bool) -> object:
        def answer(_node: int, _partition: int, offset: int) -> Fetched:
            end = self.stable if committed else self.end
            found = [b for b in self._batches if b.last_offset >= offset and b.base_offset < end]
            data = b"".join(map(encode_batch, found))
            fetched = Fetched(data, self.end)
            if not committed:
                return fetched
            overlap = [(p, first) for p, first, last in self._aborted if last >= offset]
            return replace(fetched, aborted=tuple(overlap))

        return answer
