"""Batches on their way to one partition: in the order of their sequence numbers, several in flight.

A broker takes a batch only behind the one before it, and knows the last five batches of a producer
again (KIP-98): so at most five are in flight, and what was not acknowledged is sent again as often
as need be. After a failure nothing is sent until all that is in flight has been answered, or was
lost: then all that is not acknowledged goes again, in order, to whoever leads by then.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
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


class _State(Enum):
    WAITING = "waiting"
    FLYING = "flying"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class Backoff:
    """The pauses between tries, each twice the one before it."""

    first_ms: int = 100
    most_ms: int = 1_000

    def pause_ms(self, failures: int) -> int:
        """The pause behind so many failures, at least one, one after the other."""
        return int(min(self.first_ms << min(failures - 1, 20), self.most_ms))


@dataclass(slots=True, eq=False)
class _Flight:
    part: Part
    expires_ms: int
    state: _State = _State.WAITING


class Lane:
    """The batches of one transaction for one partition. Times are of a clock that never goes back.

    `is_added`: the partition is part of the transaction. `last_error` is the last of those that
    pass.
    """

    def __init__(self, backoff: Backoff) -> None:
        self.is_added = False
        self.last_error = ""
        self._backoff = backoff
        self._sequence = 0
        self._flights: deque[_Flight] = deque()
        self._drains = False
        self._failures = 0
        self._retry_at_ms = 0

    @property
    def is_empty(self) -> bool:
        """Whether all that was put in is acknowledged."""
        return not self._flights

    @property
    def flying(self) -> int:
        return sum(flight.state is _State.FLYING for flight in self._flights)

    @property
    def wants(self) -> bool:
        """Whether a batch waits to be sent, sooner or later."""
        return any(flight.state is _State.WAITING for flight in self._flights)

    @property
    def wake_at_ms(self) -> int:
        return self._retry_at_ms

    @property
    def batches(self) -> Iterator[Batch]:
        """What is not acknowledged, in order."""
        return (flight.part.batch for flight in self._flights if flight.state is not _State.DONE)

    def put(self, batch: Batch, expires_ms: int) -> None:
        """Take a batch; its sequence number is decided here, however often it is sent."""
        self._flights.append(_Flight(Part(batch, self._sequence), expires_ms))
        self._sequence = (self._sequence + batch.records) % _SEQUENCES

    def next_part(self, now_ms: int) -> Part | None:
        """What to send now, if anything."""
        if self._drains or now_ms < self._retry_at_ms or self.flying >= IN_FLIGHT_MAX:
            return None
        waiting = (each for each in self._flights if each.state is _State.WAITING)
        flight = next(waiting, None)
        return None if flight is None else flight.part

    def sent(self, part: Part) -> None:
        self._of(part).state = _State.FLYING

    def answered(self, part: Part, outcome: Outcome, now_ms: int) -> Verdict:
        """Take in what became of a batch that was sent."""
        flight = self._of(part)
        if outcome.error in APPENDED:
            flight.state = _State.DONE
            if not self._drains:
                self._failures = 0
            while self._flights and self._flights[0].state is _State.DONE:
                self._flights.popleft()
            self._settle()
            return Verdict.ACKNOWLEDGED
        # Where the one before it was not taken, a batch is out of order, and will not be.
        follows = outcome.error == OUT_OF_ORDER and flight is not self._flights[0]
        if not (outcome.passes or follows):
            return Verdict.FAILED
        self.again(part, outcome.error, now_ms)
        return Verdict.AGAIN

    def again(self, part: Part, why: str, now_ms: int) -> None:
        """A batch that was sent has to be sent again, as it was not taken or nobody knows."""
        self._of(part).state = _State.WAITING
        # Those behind it fail with it, and it is one failure.
        self._failures += not self._drains
        self._drains = True
        self._retry_at_ms = now_ms + self._backoff.pause_ms(self._failures)
        if why != OUT_OF_ORDER or not self.last_error:
            self.last_error = why
        self._settle()

    def expired(self, now_ms: int) -> Batch | None:
        """A batch that waits, and has done so for too long."""
        for flight in self._flights:
            if flight.state is _State.WAITING and now_ms >= flight.expires_ms:
                return flight.part.batch
        return None

    def next_transaction(self, same_epoch: bool) -> None:
        """Forget the batches; in another epoch sequence numbers begin anew."""
        self._flights.clear()
        self._drains, self._failures, self._retry_at_ms, self.last_error = False, 0, 0, ""
        self.is_added = False
        if not same_epoch:
            self._sequence = 0

    def _settle(self) -> None:
        if not self.flying:
            self._drains = False

    def _of(self, part: Part) -> _Flight:
        return next(flight for flight in self._flights if flight.part is part)
