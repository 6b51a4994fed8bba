"""Numbered records that keep coming, whatever becomes of the broker."""

from __future__ import annotations

import random
import threading
from typing import Any

from kafka import KafkaProducer
from kafka.errors import KafkaError

from brokers.real_broker import Topics
from nemesis.facts import Place
from nemesis.values import Values
from nemesis.windows import END_MS, event_ms
from nemesis.work import Content

_EVERY_S = 0.1
_FLUSH_S, _CLOSE_S = 60.0, 20.0
_STOP_S = _FLUSH_S + 2 * _CLOSE_S
# Bytes that a value has beside what it says: a batch is to be worth more than one task.
_PADDINGS = [10, 100, 1_000, 8_000]
# Of so many records, one fails whenever it is worked on, and two now and then.
_MARKS = ["!", "?", "?", *["."] * 57]


class Feeder:
    """Sends records to `topic` while it runs, each key in order and to one partition.

    What was acknowledged is in `sent`; a number that was sent and is not in there may be in the
    log or not. It waits while more than `waiting_max` records are not done.
    """

    def __init__(
        self,
        topics: Topics,
        topic: str,
        run: str,
        seed: int,
        per_second: int,
        values: Values,
        has_times: bool = False,
    ) -> None:
        """`has_times`: records have event times, and the last one of each partition is behind all
        others."""
        self._topics, self._topic, self._run = topics, topic, run
        self._values, self._has_times = values, has_times
        # Of records by their numbers, in ms since 1970.
        self.times_ms: dict[int, int] = {}
        self._chance = random.Random(f"{seed} records")
        self._per_second = per_second
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._feed, name="feeder", daemon=True)
        self.keys = [(f"key-{n}", n % 3) for n in range(90)]
        # How many records are done, and how many may wait to be.
        self.done, self.waiting_max = 0, 500
        self.sent: dict[Place, str] = {}
        self.next_n = 0
        self.failures = 0

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Returns when what was sent is acknowledged, or given up."""
        self._stopped.set()
        self._thread.join(_STOP_S)
        assert not self._thread.is_alive(), f"the producer does not end within {_STOP_S:.0f} s"

    def add_partition(self, number: int) -> None:
        """Records of new keys go there."""
        self.keys += [(f"key-{number}-{n}", number) for n in range(10)]

    @property
    def unsure(self) -> frozenset[int]:
        return frozenset(range(self.next_n)) - {place.n for place in self.sent}

    def _feed(self) -> None:
        while not self._stopped.is_set():
            try:
                self._feed_by_one_producer()
            # ValueError: the producer does not know a new partition yet. It is begun anew.
            except (KafkaError, ValueError):
                self.failures += 1
                self._stopped.wait(1)
        if self._has_times:
            self._end()

    def _end(self) -> None:
        """Send the last record of each partition, until it is acknowledged."""
        for number in sorted({number for _, number in self.keys}):
            key = f"end-{number}"
            while key not in self.sent.values():
                producer = self._producer()
                try:
                    self._send_one(producer, key, number, END_MS)
                    producer.flush(_FLUSH_S)
                except (KafkaError, ValueError):
                    self.failures += 1
                finally:
                    _close(producer)

    def _producer(self) -> KafkaProducer:
        return self._topics.producer(
            enable_idempotence=True, delivery_timeout_ms=60_000, max_block_ms=5_000
        )

    def _feed_by_one_producer(self) -> None:
        producer = self._producer()
        try:
            while not self._stopped.wait(_EVERY_S):
                if len(self.sent) - self.done < self.waiting_max:
                    self._send(producer)
            producer.flush(_FLUSH_S)
        finally:
            _close(producer)

    def _send(self, producer: KafkaProducer) -> None:
        for _ in range(int(self._per_second * _EVERY_S)):
            key, partition = self._chance.choice(self.keys)
            mark, padding = self._chance.choice(_MARKS), self._chance.choice(_PADDINGS)
            at_ms = event_ms(self.next_n, self._chance) if self._has_times else None
            self._send_one(producer, key, partition, at_ms, mark, padding)

    def _send_one(
        self,
        producer: KafkaProducer,
        key: str,
        partition: int,
        at_ms: int | None,
        mark: str = ".",
        padding: int = 0,
    ) -> None:
        n, self.next_n = self.next_n, self.next_n + 1
        if at_ms is not None:
            self.times_ms[n] = at_ms
        said = Content(self._run, n, mark)
        value = self._values.written(said, at_ms or 0, padding, self._chance)
        future = producer.send(
            self._topic, value, key.encode(), partition=partition, timestamp_ms=at_ms
        )
        future.add_callback(self._acknowledged, n, key)

    def _acknowledged(self, n: int, key: str, metadata: Any) -> None:
        self.sent[Place(metadata.partition, metadata.offset, n)] = key


def _close(producer: KafkaProducer) -> None:
    """By itself a producer waits for ever for a broker that is away, and where it gives up its
    thread goes on sending, past what the next producer sends."""
    try:
        producer.close(_CLOSE_S)
    except KafkaError:
        producer._sender.force_close()
        producer._sender.join(_CLOSE_S)
