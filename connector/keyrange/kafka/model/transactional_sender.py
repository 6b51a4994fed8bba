"""One transactional sender: transactions after each other, without sockets.

Who drives it asks for the next requests, sends them, and hands back what came of each:

    for send in sender.next_requests(now_ms):
        sender.answered(send, answer, now_ms)       # or sender.failed(send, why, now_ms)

Requests to one broker have to reach it in their order. Times are of a clock that never goes back.

In phase READY the caller begins a transaction, offers batches while there is room, and commits with
a token. A sender fences the one before it, and then asks for the last token that was committed. So
whoever starts one knows which transaction was the last, however the process before it ended.

- A transaction is aborted if a batch or the token cannot become part of it. `failure` says why, and
  the sender is READY again, under the next epoch.
- A sender that is fenced, refused, or without an answer for `delivery_timeout_ms` is OVER, with
  `failure`. Then the transaction may be committed or not: the next sender learns it by the token.
- After a request without an answer no other transaction begins in the same epoch, since the request
  may still be under way: one that ends a transaction would end the next one. With `bumps_epochs`
  (`transaction.version` 2, KIP-890) each transaction has an epoch of its own anyway, and brokers
  add partitions and groups to a transaction by themselves.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from keyrange.errors import KeyrangeError, error
from keyrange.kafka.model.outbox import Outbox
from keyrange.kafka.model.partition_lanes import Backoff
from keyrange.kafka.model.sender_messages import (
    KEEPERS,
    NOBODY,
    NONE,
    AddOffsets,
    AddPartitions,
    Answer,
    Batch,
    CommitToken,
    EndTransaction,
    FetchToken,
    FindCoordinator,
    FindLeaders,
    InitProducerId,
    Keeper,
    Outcome,
    Producer,
    Request,
    Send,
    Token,
)
from keyrange.kafka.model.sender_states import (
    ABORTABLE,
    BUSY,
    FENCED,
    LOST,
    MOVED,
    NOT_TRIED,
    NOTHING_OPEN,
    TRANSITIONS,
    UNKNOWN_GROUP,
    Event,
    Phase,
    condition,
    said,
)
from keyrange.model.offsets import TopicPartition

# While the coordinator ends the transaction before, which takes it some milliseconds.
_BUSY_PAUSE_MS: Final = 20
_BUSY_PAUSES: Final = 10
_OPENING: Final = AddPartitions | AddOffsets | CommitToken


@dataclass(frozen=True, slots=True)
class SenderSettings:
    """The last token is the offset in partition `place`, which has to exist, of the group that is
    called as the transactional id: it has no members, and belongs to this id alone.

    `request_bytes` bounds the batches of one request; a larger batch goes alone. At most
    `ahead_bytes` of batches are taken from the caller before they are acknowledged.
    """

    transactional_id: str
    place: TopicPartition
    bumps_epochs: bool = False
    request_bytes: int = 1_048_576
    ahead_bytes: int = 33_554_432
    transaction_timeout_ms: int = 60_000
    delivery_timeout_ms: int = 120_000
    backoff: Backoff = field(default_factory=Backoff)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a transaction or a sender ended, and the batch that was refused, if it was one."""

    error: KeyrangeError
    batch: Batch | None = None


@dataclass(slots=True)
class _Step:
    """What is asked of coordinators, or about the cluster: one question at a time. `phase` is that
    in which `send` was sent, `since_ms` when the step was first tried."""

    send: Send | None = None
    phase: Phase = Phase.STARTING
    since_ms: int | None = None
    retry_at_ms: int = 0
    failures: int = 0
    last_error: str = ""


class TransactionalSender:
    """To be read: `phase`; `token`, the last one that is committed, from READY on; `failure`."""

    def __init__(self, settings: SenderSettings) -> None:
        self.settings: Final = settings
        self.phase = Phase.STARTING
        self.token: Token | None = None
        self.failure: Failure | None = None
        self._producer = NOBODY
        self._keepers: dict[Keeper, int] = {}
        self._outbox = Outbox(
            settings.request_bytes, settings.backoff, adds=not settings.bumps_epochs
        )
        self._step = _Step()
        self._committing: Token | None = None
        # Whether brokers may have heard of the transaction, and whether a request of this epoch was
        # not answered.
        self._may_be_open = False
        self._is_unsure = False
        self._now_ms = 0

    @property
    def wake_at_ms(self) -> int:
        """When to ask for the next requests, if no answer comes before."""
        times = self._outbox.wake_times_ms
        if self._step.send is None:
            times.append(self._step.retry_at_ms)
        later = [at for at in times if at > self._now_ms]
        return min(later, default=self._now_ms + self.settings.backoff.first_ms)

    @property
    def unacknowledged_bytes(self) -> int:
        """The bytes of the batches that were offered and are not acknowledged."""
        return self._outbox.unacknowledged_bytes

    def begin(self) -> None:
        """Begin a transaction; in READY."""
        self._to(Event.BEGIN)
        self.failure, self._committing = None, None

    def offer(self, batch: Batch, now_ms: int) -> None:
        """Add a batch to the transaction, behind those of its partition. Once the transaction has
        failed, nothing more is taken."""
        if self.phase is Phase.SENDING and self._committing is None:
            self._outbox.put(batch, now_ms + self.settings.delivery_timeout_ms)

    def commit(self, token: Token) -> None:
        """No more batches: commit with the token as soon as all are acknowledged."""
        if self.phase is Phase.SENDING:
            self._committing = token

    def abort(self, why: KeyrangeError) -> None:
        """Abort the transaction. Once it may be committed, nothing is aborted any more."""
        if self.phase in ABORTABLE - {Phase.ENDING}:
            self._abort(Failure(why))

    def end(self, why: KeyrangeError) -> None:
        """Send nothing more; what may be committed is left as it is."""
        self._end(Failure(why))

    def next_requests(self, now_ms: int) -> list[Send]:
        """What to send now, in this order."""
        self._now_ms = now_ms
        if self.phase is Phase.SENDING:
            self._look_at_batches()
        step = self._next_step()
        sends = [] if step is None else [step]
        if self.phase is Phase.SENDING:
            produces = list(self._outbox.requests(self._producer, now_ms))
            self._may_be_open |= bool(produces)
            sends += produces
        return sends

    def answered(self, send: Send, answer: Answer, now_ms: int) -> None:
        """Take an answer in; that to a request which is not under way changes nothing."""
        self._now_ms = now_ms
        if self._outbox.has(send):
            refused = self._outbox.answered(send, answer, now_ms)
            if refused is not None and self.phase is Phase.SENDING:
                batch = refused.batch
                what = f"a batch of {batch.size_bytes} bytes for {batch.partition}"
                self._refused(refused.outcome, what, batch)
        elif send is self._step.send:
            self._step.send = None
            outcome = self._whole(send.request, answer)
            # What was asked in a phase that is over concerns this one only if it fences the sender.
            if self._step.phase is not self.phase and type(send.request) in KEEPERS:
                if outcome.error in FENCED:
                    self._refused(outcome, said(send.request, self.settings.place))
            elif outcome.error == NONE:
                self._succeeded(send.request, answer)
            else:
                self._troubled(send.request, outcome)

    def failed(self, send: Send, why: str, now_ms: int) -> None:
        """The connection broke, or no answer came in time: whether the request was done is not
        known."""
        self._now_ms = now_ms
        if self._outbox.has(send):
            self._is_unsure = True
            self._outbox.lost(send, why, now_ms)
        elif send is self._step.send:
            self._step.send = None
            keeper = KEEPERS.get(type(send.request))
            if keeper is not None:
                self._is_unsure = True
                self._keepers.pop(keeper, None)
            self._pause(why)

    def _to(self, event: Event) -> None:
        self.phase = TRANSITIONS[self.phase, event]
        # What is under way is waited for.
        self._step = _Step(self._step.send, self._step.phase)

    def _look_at_batches(self) -> None:
        late = self._outbox.expired(self._now_ms)
        if late is not None:
            batch, why = late
            why = why or self._step.last_error or "the batches before it"
            what = f"a batch waited too long, last for {why}"
            found = error("RECORDS_NOT_DELIVERED", what, partition=batch.partition)
            self._abort(Failure(found))
        elif self._committing is not None and self._outbox.is_empty:
            self._to(Event.SENT)
            if self.settings.bumps_epochs:
                self._to(Event.OFFSETS_ADDED)

    def _next_step(self) -> Send | None:
        """The next question to a coordinator, or about the cluster."""
        step = self._step
        if step.send is not None or self._now_ms < step.retry_at_ms:
            return None
        request = self._question()
        if request is None:
            return None
        if step.since_ms is None:
            step.since_ms = self._now_ms
        keeper = KEEPERS.get(type(request))
        if keeper is None:
            step.send = Send(request)
        elif keeper not in self._keepers:
            step.send = Send(FindCoordinator(keeper))
        else:
            self._may_be_open |= isinstance(request, _OPENING)
            step.send = Send(request, self._keepers[keeper])
        step.phase = self.phase
        return step.send

    def _question(self) -> Request | None:
        mine = self._producer
        match self.phase:
            case Phase.STARTING | Phase.RENEWING:
                return InitProducerId(mine)
            case Phase.ASKING:
                return FetchToken()
            case Phase.SENDING if new := self._outbox.new_partitions():
                return AddPartitions(mine, new)
            case Phase.SENDING if lost := self._outbox.lost_partitions():
                return FindLeaders(lost)
            case Phase.ADDING_OFFSETS:
                return AddOffsets(mine)
            case Phase.COMMITTING_TOKEN if self._committing is not None:
                return CommitToken(mine, self._committing)
            case Phase.ENDING:
                return EndTransaction(mine, True)
            case Phase.ABORTING if not self._outbox.is_flying:
                return EndTransaction(mine, False)
        return None

    def _whole(self, request: Request, answer: Answer) -> Outcome:
        """The outcome of a request; of one of several partitions the worst."""
        if not isinstance(request, AddPartitions):
            return answer.whole
        unsaid = Outcome("UNKNOWN", passes=True) if answer.whole.error == NONE else answer.whole
        outcomes = {each: answer.outcomes.get(each, unsaid) for each in request.partitions}
        for partition, outcome in outcomes.items():
            if outcome.error == NONE:
                self._outbox.added(partition)
        bad = [each for each in outcomes.values() if each.error != NONE]
        # What was not tried is the fault of another one.
        bad.sort(key=lambda each: (each.error == NOT_TRIED, each.passes))
        return bad[0] if bad else Outcome()

    def _succeeded(self, request: Request, answer: Answer) -> None:
        match request:
            case FindCoordinator(keeper):
                self._keepers[keeper] = answer.node_id
            case FindLeaders(partitions):
                asked = {p: answer.leaders[p] for p in partitions if p in answer.leaders}
                self._outbox.found(asked)
                if len(asked) < len(partitions):
                    self._pause("LEADER_NOT_AVAILABLE")
            case AddPartitions():
                self._step = _Step()
            case InitProducerId():
                self._producer = answer.producer
                self._is_unsure = False
                self._outbox.next_transaction(same_epoch=False)
                self._to(Event.IDENTIFIED)
            case FetchToken():
                self.token = answer.token
                self._to(Event.TOLD)
            case AddOffsets():
                self._to(Event.OFFSETS_ADDED)
            case CommitToken():
                self._to(Event.TOKEN_KEPT)
            case EndTransaction(commits=False):
                self._aborted(answer.producer)
            case EndTransaction():
                self._committed(answer.producer)

    def _committed(self, producer: Producer) -> None:
        self.token, self._may_be_open = self._committing, False
        if producer != NOBODY:
            self._producer, self._is_unsure = producer, False
        self._outbox.next_transaction(same_epoch=producer == NOBODY)
        self._to(Event.COMMITTED_UNSURE if self._is_unsure else Event.COMMITTED)

    def _aborted(self, producer: Producer) -> None:
        self._may_be_open = False
        if producer != NOBODY:
            self._producer = producer
        self._to(Event.ABORTED)

    def _troubled(self, request: Request, outcome: Outcome) -> None:
        """What Kafka's errors mean to all requests but Produce."""
        name = outcome.error
        keeper = KEEPERS.get(type(request))
        if name == NOTHING_OPEN and self.phase is Phase.ABORTING:
            self._aborted(NOBODY)
        elif name == UNKNOWN_GROUP and isinstance(request, FetchToken):
            self._succeeded(request, Answer())
        elif outcome.passes or name in MOVED:
            if name in MOVED and keeper is not None:
                self._keepers.pop(keeper, None)
            self._pause(name)
        else:
            self._refused(outcome, said(request, self.settings.place))

    def _refused(self, outcome: Outcome, what: str, batch: Batch | None = None) -> None:
        """What does not pass: the transaction is aborted, or where none is the sender is over. One
        that may be committed is left as it is, unless Kafka says that it is not."""
        name, identity = outcome.error, self.settings.transactional_id
        what = f"{what} was refused with {name}"
        found = error(condition(name), what, transactional_id=identity)
        failure = Failure(found, batch)
        may_abort = self.phase in ABORTABLE and (self.phase is not Phase.ENDING or name in LOST)
        if name in FENCED or not may_abort:
            self._end(failure)
        else:
            self._abort(failure)

    def _abort(self, failure: Failure) -> None:
        self.failure = failure
        self._to(Event.ABORT)
        if not self._may_be_open:
            self._to(Event.ABORTED)

    def _end(self, failure: Failure) -> None:
        if self.phase is not Phase.OVER:
            self.failure = failure
            self._to(Event.END)

    def _pause(self, why: str) -> None:
        """Try the step again later, or no more."""
        step, limit_ms = self._step, self.settings.delivery_timeout_ms
        step.last_error = why
        if step.since_ms is not None and self._now_ms >= step.since_ms + limit_ms:
            doing = self.phase.lower().replace("_", " ")
            what = f"no success in time while {doing}, last {why}"
            identity = self.settings.transactional_id
            failure = Failure(error("RECORDS_NOT_DELIVERED", what, transactional_id=identity))
            if self.phase in ABORTABLE - {Phase.ENDING}:
                self._abort(failure)
            else:
                self._end(failure)
            return
        step.failures += 1
        is_busy = why == BUSY and step.failures <= _BUSY_PAUSES
        pause_ms = _BUSY_PAUSE_MS if is_busy else self.settings.backoff.pause_ms(step.failures)
        step.retry_at_ms = self._now_ms + pause_ms
