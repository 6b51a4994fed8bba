"""The batches of a transaction on their way to all of its partitions: which requests they go in.

A request holds at most one batch of each partition that a broker leads, and at most five requests
are in flight to one broker, so a partition has at most five batches in flight.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from keyrange.kafka.model.partition_lanes import IN_FLIGHT_MAX, Backoff, Lane, Verdict
from keyrange.kafka.model.sender_messages import (
    NONE,
    Answer,
    Batch,
    Outcome,
    Part,
    Produce,
    Producer,
    Send,
)
from keyrange.model.offsets import TopicPartition


class Refused(NamedTuple):
    """A batch that will not be taken, and what the broker said."""

    batch: Batch
    outcome: Outcome


class Outbox:
    """Lanes by partition, the leaders as far as they are known, and the requests in flight.

    `adds`: a partition has to be part of the transaction before a batch may go there, as with
    `transaction.version` 1. To be read: `unacknowledged_bytes` of the batches that were put in.
    """

    def __init__(self, request_bytes: int, backoff: Backoff, adds: bool) -> None:
        self._request_bytes, self._backoff = request_bytes, backoff
        self._adds = adds
        self.unacknowledged_bytes = 0
        self._lanes: dict[TopicPartition, Lane] = {}
        self._leaders: dict[TopicPartition, int] = {}
        self._flying: set[Send] = set()

    @property
    def is_empty(self) -> bool:
        """Whether all that was put in is acknowledged."""
        return all(lane.is_empty for lane in self._lanes.values())

    @property
    def is_flying(self) -> bool:
        return bool(self._flying)

    @property
    def wake_times_ms(self) -> list[int]:
        return [lane.wake_at_ms for lane in self._lanes.values() if lane.wants]

    def put(self, batch: Batch, expires_ms: int) -> None:
        lane = self._lanes.get(batch.partition)
        if lane is None:
            lane = self._lanes[batch.partition] = Lane(self._backoff, self._adds)
        lane.put(batch, expires_ms)
        self.unacknowledged_bytes += batch.size_bytes

    def has(self, send: Send) -> bool:
        """Whether a request is in flight."""
        return send in self._flying

    def expired(self, now_ms: int) -> tuple[Batch, str] | None:
        """A batch that waits, and has done so for too long, with the last error."""
        for lane in self._lanes.values():
            if (late := lane.expired(now_ms)) is not None:
                return late, lane.last_error
        return None

    def new_partitions(self) -> tuple[TopicPartition, ...]:
        """Those that have to be added to the transaction."""
        if not self._adds:
            return ()
        return tuple(p for p, lane in self._lanes.items() if lane.wants and not lane.is_added)

    def lost_partitions(self) -> tuple[TopicPartition, ...]:
        """Those whose leader has to be asked for."""
        lanes = self._lanes.items()
        return tuple(p for p, lane in lanes if lane.wants and p not in self._leaders)

    def added(self, partition: TopicPartition) -> None:
        self._lanes[partition].is_added = True

    def found(self, leaders: Mapping[TopicPartition, int]) -> None:
        self._leaders.update(leaders)

    def requests(self, producer: Producer, now_ms: int) -> Iterator[Send]:
        """What may be sent now, by leader."""
        led: dict[int, list[TopicPartition]] = {}
        for partition, lane in self._lanes.items():
            leader = self._leaders.get(partition)
            if leader is not None and (lane.is_added or not self._adds):
                led.setdefault(leader, []).append(partition)
        for node_id, partitions in led.items():
            while sum(each.node_id == node_id for each in self._flying) < IN_FLIGHT_MAX:
                parts = self._parts(partitions, now_ms)
                if not parts:
                    break
                for part in parts:
                    self._lanes[part.batch.partition].sent(part)
                send = Send(Produce(producer, parts), node_id)
                self._flying.add(send)
                yield send

    def answered(self, send: Send, answer: Answer, now_ms: int) -> Refused | None:
        """Take an answer in; returns a batch that will not be taken."""
        self._flying.remove(send)
        assert isinstance(send.request, Produce)
        unsaid = Outcome("UNKNOWN", passes=True) if answer.whole.error == NONE else answer.whole
        refused = None
        for part in send.request.parts:
            partition = part.batch.partition
            outcome = answer.outcomes.get(partition, unsaid)
            verdict = self._lanes[partition].answered(part, outcome, now_ms)
            if verdict is Verdict.ACKNOWLEDGED:
                self.unacknowledged_bytes -= part.batch.size_bytes
            elif verdict is Verdict.AGAIN:
                # It may have moved, and asking costs little beside the pause.
                self._leaders.pop(partition, None)
            elif verdict is Verdict.FAILED and refused is None:
                refused = Refused(part.batch, outcome)
        return refused

    def lost(self, send: Send, why: str, now_ms: int) -> None:
        """A request was not answered: nobody knows whether its batches are in the log."""
        self._flying.remove(send)
        assert isinstance(send.request, Produce)
        for part in send.request.parts:
            self._leaders.pop(part.batch.partition, None)
            self._lanes[part.batch.partition].again(part, why, now_ms)

    def next_transaction(self, same_epoch: bool) -> None:
        """Forget the batches; in another epoch sequence numbers begin anew."""
        self.unacknowledged_bytes = 0
        for lane in self._lanes.values():
            lane.next_transaction(same_epoch)

    def _parts(self, partitions: Iterable[TopicPartition], now_ms: int) -> tuple[Part, ...]:
        found: list[Part] = []
        size = 0
        for partition in partitions:
            part = self._lanes[partition].next_part(now_ms)
            if part is None:
                continue
            size += part.batch.size_bytes
            if found and size > self._request_bytes:
                break
            found.append(part)
        return tuple(found)
