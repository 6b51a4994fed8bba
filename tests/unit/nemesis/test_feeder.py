"""What the nemesis feeds to jobs with event time."""

from __future__ import annotations

import random
from typing import Any, NamedTuple

from kafka.errors import KafkaTimeoutError

from nemesis.feeder import Feeder
from nemesis.values import JsonValues
from nemesis.windows import AHEAD_MS, BEGAN_MS, DELAY_MS, END_MS, STEP_MS, event_ms


class _Sent(NamedTuple):
    key: bytes
    partition: int
    timestamp_ms: int
    offset: int


class _Broker:
    """A producer that is refused now and then, and the log that it writes."""

    def __init__(self) -> None:
        self.log: list[_Sent] = []
        self.refuses = False

    def producer(self, **_: Any) -> _Broker:
        return self

    def send(
        self, topic: str, value: bytes, key: bytes, partition: int, timestamp_ms: int
    ) -> _Broker:
        self.refuses = not self.refuses
        if self.refuses:
            raise KafkaTimeoutError
        self.log.append(_Sent(key, partition, timestamp_ms, len(self.log)))
        return self

    def add_callback(self, call: Any, *given: Any) -> None:
        call(*given, self.log[-1])

    def flush(self, timeout: float) -> None: ...

    def close(self, timeout: float | None = None) -> None: ...


def test_the_last_record_of_each_partition_ends_all_windows() -> None:
    broker: Any = _Broker()
    feeder = Feeder(broker, "orders", "run", 1, 60, JsonValues(), has_times=True)
    feeder.add_partition(3)
    feeder.start()
    feeder.stop()
    last = {each.partition: each for each in broker.log}
    assert {number: each.timestamp_ms for number, each in last.items()} == dict.fromkeys(
        range(4), END_MS
    )
    assert {each.timestamp_ms for each in broker.log} == set(feeder.times_ms.values())


def test_event_times_are_out_of_order_some_late_and_some_far_ahead() -> None:
    chance = random.Random(7)
    behind = [BEGAN_MS + n * STEP_MS - event_ms(n, chance) for n in range(2000)]
    ahead = [each for each in behind if each < BEGAN_MS - AHEAD_MS + 2001 * STEP_MS]
    assert 0 < len(ahead) < 100
    in_time = [each for each in behind if 0 <= each < DELAY_MS]
    assert len(in_time) > 1500
    assert len(in_time) + len(ahead) < 1950
