"""The topics of a simulated cluster, with all records that were ever in them."""

from __future__ import annotations

import uuid
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple

from keyrange.model.offsets import TopicPartition
from samples.strategies import Batch, Record, encode_batch

_BATCHES_AT_ONCE = 3
TimesOf = Callable[[Random, int, int], Sequence[int]]


class Place(NamedTuple):
    """A record. A topic that is created anew is of another `generation`."""

    topic: str
    partition: int
    offset: int
    generation: int


@dataclass
class PartitionLog:
    """The record batches of a partition; `keys` and `values` by offset, also of those that are gone
    by now. Offsets may have gaps."""

    start: int = 0
    end: int = 0
    generation: int = 0
    lasts: list[int] = field(default_factory=list)
    batches: list[bytes] = field(default_factory=list)
    keys: dict[int, bytes | None] = field(default_factory=dict)
    values: dict[int, bytes] = field(default_factory=dict)
    # In ms behind the first of all times.
    times: dict[int, int] = field(default_factory=dict)

    def append(
        self,
        records: Iterable[tuple[bytes | None, bytes]],
        gap: int = 0,
        times: Sequence[int] = (),
    ) -> None:
        """Each value is told from others at the same place by the generation."""
        base = self.end + gap
        made = []
        for delta, (key, kind) in enumerate(records):
            value = kind + b"%d" % self.generation
            self.keys[base + delta], self.values[base + delta] = key, value
            time_ms = times[delta] if times else 0
            self.times[base + delta] = time_ms
            made.append(Record(delta, time_ms, key, value))
        batch = Batch(base, tuple(made))
        self.batches.append(encode_batch(batch))
        self.lasts.append(batch.last_offset)
        self.end = batch.last_offset + 1

    def fetched(self, offset: int) -> bytes:
        at = bisect_right(self.lasts, offset - 1)
        return b"".join(self.batches[at : at + _BATCHES_AT_ONCE])


@dataclass
class Topics:
    """What is durable in the cluster. `hidden`: until when a topic is not told of; `late`: until
    when a partition's new leader does not know its end, and by how much."""

    logs: dict[TopicPartition, PartitionLog] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)
    epochs: dict[TopicPartition, int] = field(default_factory=dict)
    hidden: dict[str, float] = field(default_factory=dict)
    late: dict[TopicPartition, tuple[float, int]] = field(default_factory=dict)
    # Who is in which group: what a coordinator tells of it.
    groups: dict[str, Any] = field(default_factory=dict)
    # How often each topic was created anew, the logs that went with it, and all that is gone.
    generations: dict[str, int] = field(default_factory=dict)
    earlier: list[tuple[TopicPartition, PartitionLog]] = field(default_factory=list)
    gone: set[Place] = field(default_factory=set)
    _by_id: dict[str, int] = field(default_factory=dict)

    def create(self, name: str, partitions: int, begin: int = 0) -> None:
        """Make a topic, or give one more partitions."""
        generation = self.generations.setdefault(name, 0)
        self.ids[name] = topic_id(name, generation)
        self._by_id[self.ids[name]] = generation
        for number in range(partitions):
            place = TopicPartition(name, number)
            if place not in self.logs:
                self.logs[place] = PartitionLog(begin, begin, generation)
                self.epochs[place] = 0

    def recreate(self, name: str, partitions: int) -> None:
        """Delete a topic, and create one of the same name."""
        for place in [place for place in self.logs if place.topic == name]:
            log = self.logs.pop(place)
            self.earlier.append((place, log))
            self.gone.update(places_in(place, log))
            del self.epochs[place]
            self.late.pop(place, None)
        self.generations[name] += 1
        self.create(name, partitions)

    def expire(self, place: TopicPartition, start: int) -> None:
        """Retention: the log begins at `start` from now on."""
        log = self.logs[place]
        log.start = max(log.start, min(start, log.end))
        self.gone.update(each for each in places_in(place, log) if each.offset < log.start)

    def generation_of(self, topic_id: str) -> int:
        """Of which generation the topic is that has, or had, an id."""
        return self._by_id[topic_id]

    def produced(self) -> Iterator[tuple[Place, bytes | None]]:
        """All records that ever were, with their keys."""
        for place, log in [*self.earlier, *self.logs.items()]:
            yield from zip(places_in(place, log), log.keys.values(), strict=True)


def places_in(place: TopicPartition, log: PartitionLog) -> Iterator[Place]:
    return (Place(*place, offset, log.generation) for offset in log.keys)


def topic_id(name: str, generation: int) -> str:
    return uuid.uuid5(uuid.NAMESPACE_URL, f"{name} {generation}").hex


def produce(
    topics: Topics, random: Random, keys: int, batches: int, times_of: TimesOf | None = None
) -> None:
    """Some record batches more, of few keys, now and then without a key or behind a gap."""
    for _ in range(batches):
        place = random.choice(sorted(topics.logs))
        log = topics.logs[place]
        records = []
        for _ in range(random.randint(1, 5)):
            key = None if random.random() < 0.08 else b"k%d" % random.randrange(keys)
            records.append((key, random.choice([b"!", b"?", b".", b".", b".", b".", b".", b"."])))
        gap = random.choice([0, 0, 0, 0, 1, 3])
        times = times_of(random, log.end + gap, len(records)) if times_of else ()
        log.append(records, gap, times)
