"""Batches on their way to one partition: in the order of their sequence numbers, several in flight.

A broker takes a batch only behind the one before it, and knows the last five batches of a producer
again (KIP-98): so at most five are in flight, and what was not acknowledged is sent again as often
as need be. After a failure nothing is sent until all that is in flight has been answered, or was
lost: then all that is not acknowledged goes again, in order, to whoever leads by then.

With `transaction.version` 1 the first batch of a producer's epoch goes alone: a broker that does
not know the epoch yet takes whatever comes first, also the second batch where it has just refused
the first one, which it then never takes.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import Enum
from typing import Final

from keyrange.kafka.model.sender_messages import Batch, Outcome, Part
from keyrange.kafka.model.sender_states import APPENDED, OUT_OF_ORDER

IN_FLIGHT_MAX: Final = 5
_SEQUENCES: Final = 2**31


class Verdict(Enum):
    """What an answer means for a batch."""

    ACKNOWLEDGED = "acknowledged"
    AGAIN = "to be sent again"
    FAILED = "failed for good"


@dataclass(frozen=True, slots=True)
class Backoff:
    """The pauses between tries, each twice the one before it."""

    first_ms: int = 100
    most_ms: int = 1_000

    def pause_ms(self, failures: int) -> int:
        """The pause behind so many failures, at least one, one after the other."""
        return int(min(self.first_ms << min(failures - 1, 20), self.most_ms))


class _State(Enum):
    FLYING = "flying"
    AGAIN = "to be sent again"
    DONE = "done"


@dataclass(slots=True, eq=False)
class _Flight:
    part: Part
    expires_ms: int
    state: _State = _State.AGAIN


class Lane:
    """The batches of one transaction for one partition. Times are of a clock that never goes back.

    `first_alone`: brokers take any batch as the first one of an epoch. `is_added`: the partition is
    part of the transaction. `last_error` is the last of those that pass.
    """

    def __init__(self, backoff: Backoff, first_alone: bool) -> None:
        self._first_alone = first_alone
        self.is_added = False
        self.last_error = ""
        self._backoff = backoff
        self._sequence = 0
        self._waiting: deque[_Flight] = deque()
        # What was sent, in order, from the first that is not acknowledged on.
        self._sent: deque[_Flight] = deque()
        self._flying = 0
        self._drains = False
        self._failures = 0
        self._retry_at_ms = 0

    @property
    def is_empty(self) -> bool:
        """Whether all that was put in is acknowledged."""
        return not self._waiting and not self._sent

    @property
    def wants(self) -> bool:
        """Whether a batch waits to be sent."""
        return bool(self._waiting)

    @property
    def wake_at_ms(self) -> int:
        return self._retry_at_ms

    def put(self, batch: Batch, expires_ms: int) -> None:
        """Take a batch; its sequence number is decided here, however often it is sent."""
        self._waiting.append(_Flight(Part(batch, self._sequence), expires_ms))
        self._sequence = (self._sequence + batch.records) % _SEQUENCES

    def next_part(self, now_ms: int) -> Part | None:
        """What to send now, if anything."""
        # That of its epoch, which is not acknowledged yet.
        is_first = bool(self._sent) and self._sent[0].part.sequence == 0
        most = 1 if self._first_alone and is_first else IN_FLIGHT_MAX
        full = self._drains or self._flying >= most
        if full or now_ms < self._retry_at_ms or not self._waiting:
            return None
        return self._waiting[0].part

    def sent(self, part: Part) -> None:
        """What `next_part` gave is in flight now."""
        flight = self._waiting.popleft()
        assert flight.part is part
        flight.state = _State.FLYING
        self._sent.append(flight)
        self._flying += 1

    def answered(self, part: Part, outcome: Outcome, now_ms: int) -> Verdict:
        """Take in what became of a batch that was sent."""
        flight = self._of(part)
        # Where the one before it was not taken, a batch is out of order, and will not be.
        follows = outcome.error == OUT_OF_ORDER and flight is not self._sent[0]
        if outcome.passes or follows:
            self.again(part, outcome.error, now_ms)
            return Verdict.AGAIN
        if outcome.error not in APPENDED:
            return Verdict.FAILED
        self._landed(flight, _State.DONE)
        return Verdict.ACKNOWLEDGED

    def again(self, part: Part, why: str, now_ms: int) -> None:
        """A batch that was sent has to be sent again, as it was not taken or nobody knows."""
        # Those behind it fail with it, and it is one failure.
        self._failures += not self._drains
        self._drains = True
        self._retry_at_ms = now_ms + self._backoff.pause_ms(self._failures)
        if why != OUT_OF_ORDER or not self.last_error:
            self.last_error = why
        self._landed(self._of(part), _State.AGAIN)

    def expired(self, now_ms: int) -> Batch | None:
        """A batch that waits, and has done so for too long."""
        late = self._waiting and now_ms >= self._waiting[0].expires_ms
        return self._waiting[0].part.batch if late else None

    def next_transaction(self, same_epoch: bool) -> None:
        """Forget the batches; in another epoch sequence numbers begin anew."""
        self._waiting.clear()
        self._sent.clear()
        self._drains, self._failures, self._retry_at_ms, self.last_error = False, 0, 0, ""
        self._flying, self.is_added = 0, False
        if not same_epoch:
            self._sequence = 0

    def _landed(self, flight: _Flight, state: _State) -> None:
        flight.state = state
        self._flying -= 1
        while self._sent and self._sent[0].state is _State.DONE:
            self._sent.popleft()
        if self._drains and not self._flying:
            again = [each for each in self._sent if each.state is not _State.DONE]
            self._waiting.extendleft(reversed(again))
            self._sent.clear()
            self._drains = False
        elif not self._drains:
            self._failures = 0

    def _of(self, part: Part) -> _Flight:
        return next(flight for flight in self._sent if flight.part is part)
