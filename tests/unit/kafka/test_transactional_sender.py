"""A transactional sender by hand: what each of Kafka's errors does to a transaction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from keyrange.errors import error
from keyrange.kafka.model.sender_messages import (
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
    Outcome,
    Produce,
    Producer,
    Send,
    Token,
)
from keyrange.kafka.model.sender_states import TRANSITIONS, Phase
from keyrange.kafka.model.transactional_sender import SenderSettings, TransactionalSender
from keyrange.model.offsets import TopicPartition

PLACE = TopicPartition("t", 0)
OTHER = TopicPartition("t", 1)
PASSING = ("NOT_ENOUGH_REPLICAS", "CONCURRENT_TRANSACTIONS", "COORDINATOR_LOAD_IN_PROGRESS")


class Driven:
    """A sender whose requests are answered well, or as `said` has it, by kind of request."""

    def __init__(self, **settings: Any) -> None:
        self.sender = TransactionalSender(SenderSettings("id", PLACE, **settings))
        self.now_ms = 0
        self.said: dict[type, str] = {}
        self.epoch = 3
        self.asked: list[Any] = []

    def answer(self, send: Send) -> Answer:
        request = send.request
        name = self.said.get(type(request), "NONE")
        outcome = Outcome(name, name in PASSING)
        if name != "NONE" and not isinstance(request, Produce | AddPartitions):
            return Answer(outcome)
        match request:
            case FindCoordinator():
                return Answer(node_id=1)
            case FindLeaders(partitions):
                return Answer(leaders=dict.fromkeys(partitions, 2))
            case InitProducerId():
                self.epoch += 1
                return Answer(producer=Producer(9, self.epoch))
            case AddPartitions(partitions=partitions):
                return Answer(outcomes=dict.fromkeys(partitions, outcome))
            case Produce(parts=parts):
                return Answer(outcomes={part.batch.partition: outcome for part in parts})
        return Answer()

    def until(self, *phases: Phase, steps: int = 2_000) -> None:
        for _ in range(steps):
            sends = self.sender.next_requests(self.now_ms)
            if self.sender.phase in phases and not sends:
                return
            for send in sends:
                self.asked.append(send.request)
                self.sender.answered(send, self.answer(send), self.now_ms)
            if self.sender.phase in phases:
                return
            if not sends:
                self.now_ms = self.sender.wake_at_ms
        raise AssertionError(f"still {self.sender.phase}")

    def transaction(self, *batches: Batch) -> None:
        self.until(Phase.READY)
        self.sender.begin()
        for batch in batches:
            self.sender.offer(batch, self.now_ms)
        self.sender.commit(Token(1, "one"))

    def kinds(self) -> list[type]:
        return [type(each) for each in self.asked]

    @property
    def condition(self) -> str:
        failure = self.sender.failure
        return failure.error.condition.name if failure else ""


def batch(records: int = 2, place: TopicPartition = PLACE, size: int = 100) -> Batch:
    return Batch(place, records, size)


def test_a_transaction_asks_for_each_step_once() -> None:
    driven = Driven()
    driven.transaction(batch())
    driven.until(Phase.READY)
    assert driven.kinds() == [
        *(FindCoordinator, InitProducerId, FindCoordinator, FetchToken),
        *(AddPartitions, FindLeaders, Produce, AddOffsets, CommitToken, EndTransaction),
    ]
    assert driven.sender.token == Token(1, "one")
    assert driven.sender.failure is None


def test_with_epochs_for_each_transaction_brokers_add_by_themselves() -> None:
    driven = Driven(bumps_epochs=True)
    driven.transaction(batch())
    driven.until(Phase.READY)
    assert driven.kinds()[4:] == [FindLeaders, Produce, CommitToken, EndTransaction]


STEPS = (AddPartitions, Produce, AddOffsets, CommitToken)
FATAL = ("PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH", "INVALID_PRODUCER_ID_MAPPING")


@pytest.mark.parametrize("kind", [InitProducerId, *STEPS, EndTransaction])
@pytest.mark.parametrize("name", FATAL)
def test_a_fenced_sender_sends_nothing_more(kind: type, name: str) -> None:
    driven = Driven()
    driven.said = {} if kind is InitProducerId else {kind: name}
    if kind is InitProducerId:
        driven.said = {kind: name}
        driven.until(Phase.OVER)
    else:
        driven.transaction(batch())
        driven.until(Phase.OVER)
    assert driven.condition == "PRODUCER_FENCED"
    assert name in str(driven.sender.failure)
    assert driven.kinds()[-1] is kind
    assert driven.sender.next_requests(driven.now_ms + 10**9) == []


@pytest.mark.parametrize(
    ("kind", "name", "condition"),
    [
        *((kind, "TRANSACTION_ABORTABLE", "TRANSACTION_ABORTED") for kind in STEPS),
        (EndTransaction, "TRANSACTION_ABORTABLE", "TRANSACTION_ABORTED"),
        (Produce, "OUT_OF_ORDER_SEQUENCE_NUMBER", "TRANSACTION_ABORTED"),
        (Produce, "UNKNOWN_PRODUCER_ID", "TRANSACTION_ABORTED"),
        (Produce, "INVALID_TXN_STATE", "TRANSACTION_ABORTED"),
        (AddOffsets, "INVALID_TXN_STATE", "TRANSACTION_ABORTED"),
        (Produce, "MESSAGE_SIZE_TOO_LARGE", "MESSAGE_TOO_LARGE"),
        (Produce, "RECORD_LIST_TOO_LARGE", "MESSAGE_TOO_LARGE"),
        (Produce, "INVALID_RECORD", "INVALID_RECORD"),
        (Produce, "INVALID_TIMESTAMP", "INVALID_RECORD"),
        (Produce, "TOPIC_AUTHORIZATION_FAILED", "AUTHORIZATION_FAILED"),
        (AddPartitions, "TOPIC_AUTHORIZATION_FAILED", "AUTHORIZATION_FAILED"),
        (AddOffsets, "GROUP_AUTHORIZATION_FAILED", "AUTHORIZATION_FAILED"),
        (CommitToken, "UNKNOWN_MEMBER_ID", "TRANSACTION_REFUSED"),
        (CommitToken, "OFFSET_METADATA_TOO_LARGE", "TRANSACTION_REFUSED"),
        (Produce, "NOT_ENOUGH_REPLICAS", "RECORDS_NOT_DELIVERED"),
        (AddPartitions, "CONCURRENT_TRANSACTIONS", "RECORDS_NOT_DELIVERED"),
        (CommitToken, "COORDINATOR_LOAD_IN_PROGRESS", "RECORDS_NOT_DELIVERED"),
    ],
)
def test_a_transaction_that_cannot_be_is_aborted_and_another_one_may_begin(
    kind: type, name: str, condition: str
) -> None:
    driven = Driven()
    large = batch()
    driven.transaction(large)
    driven.said = {kind: name}
    driven.until(Phase.ABORTING, Phase.READY)
    driven.said = {}
    driven.until(Phase.READY)
    assert driven.condition == condition
    assert name in str(driven.sender.failure)
    assert driven.sender.token is None
    ends = [EndTransaction(Producer(9, 4), False), InitProducerId(Producer(9, 4))]
    assert driven.asked[-2:] == ends
    failure = driven.sender.failure
    assert failure is not None
    is_refused = kind is Produce and condition != "RECORDS_NOT_DELIVERED"
    assert failure.batch is (large if is_refused else None)
    # Whoever is to raise a limit learns how far.
    assert (f"{large.size_bytes} bytes" in failure.error.message) is is_refused
    # The next one begins with the first sequence number again.
    driven.transaction(batch(), batch())
    driven.until(Phase.READY)
    produced = [each for each in driven.asked if isinstance(each, Produce)][-2:]
    assert [each.parts[0].sequence for each in produced] == [0, 2]
    assert {each.producer for each in produced} == {Producer(9, 5)}
    assert driven.sender.token == Token(1, "one")


@pytest.mark.parametrize("kind", [InitProducerId, FetchToken, FindCoordinator])
@pytest.mark.parametrize(
    ("name", "condition"),
    [
        ("TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "AUTHORIZATION_FAILED"),
        ("INVALID_TRANSACTION_TIMEOUT", "TRANSACTION_REFUSED"),
        ("COORDINATOR_LOAD_IN_PROGRESS", "RECORDS_NOT_DELIVERED"),
    ],
)
def test_a_sender_that_cannot_start_is_over(kind: type, name: str, condition: str) -> None:
    driven = Driven()
    driven.said = {kind: name}
    driven.until(Phase.OVER)
    assert driven.condition == condition
    assert name in str(driven.sender.failure)
    assert driven.now_ms >= (120_000 if condition == "RECORDS_NOT_DELIVERED" else 0)


@pytest.mark.parametrize("name", ["INVALID_TXN_STATE", "COORDINATOR_LOAD_IN_PROGRESS"])
def test_what_may_be_committed_is_not_aborted(name: str) -> None:
    driven = Driven()
    driven.transaction(batch())
    driven.said = {EndTransaction: name}
    driven.until(Phase.OVER)
    ends = {each for each in driven.asked if isinstance(each, EndTransaction)}
    assert ends == {EndTransaction(Producer(9, 4), True)}
    driven.sender.abort(error("TRANSACTION_ABORTED", "no more"))
    assert driven.sender.phase is Phase.OVER


def sent(driven: Driven, now_ms: int) -> list[Send]:
    """The batches that are sent at a time; all other requests are answered."""
    found: list[Send] = []
    while sends := driven.sender.next_requests(now_ms):
        for send in sends:
            if isinstance(send.request, Produce):
                found.append(send)
            else:
                driven.sender.answered(send, driven.answer(send), now_ms)
    return found


def sending(count: int, **settings: Any) -> tuple[Driven, list[Send]]:
    """So many batches behind a first one that was taken, up to their first requests in flight."""
    driven = Driven(**settings)
    driven.transaction(*(batch() for _ in range(count + 1)))
    [first] = sent(driven, 0)
    answered(driven, first, "NONE")
    return driven, sent(driven, 0)


def sequences(sends: list[Send]) -> list[int]:
    return [s.request.parts[0].sequence for s in sends if isinstance(s.request, Produce)]


def answered(driven: Driven, send: Send, name: str, passes: bool = False) -> None:
    driven.sender.answered(send, Answer(outcomes={PLACE: Outcome(name, passes)}), 0)


def test_five_batches_are_in_flight_in_order() -> None:
    driven, sends = sending(7)
    assert sequences(sends) == [2, 4, 6, 8, 10]
    answered(driven, sends[0], "NONE")
    assert sequences(sent(driven, 0)) == [12]


def test_nothing_goes_behind_a_first_batch_that_was_not_taken_yet() -> None:
    # A broker that does not know the epoch might take the second one, and then never the first.
    driven = Driven()
    driven.transaction(batch(), batch())
    for refused in ("NOT_LEADER_OR_FOLLOWER", "NOT_ENOUGH_REPLICAS"):
        [first] = sent(driven, 10_000)
        assert sequences([first]) == [0]
        answered(driven, first, refused, passes=True)
    [first] = sent(driven, 10_000)
    answered(driven, first, "NONE")
    assert sequences(sent(driven, 10_000)) == [2]

    # With version 2 it takes no other batch as the first one.
    driven = Driven(bumps_epochs=True)
    driven.transaction(batch(), batch())
    assert sequences(sent(driven, 0)) == [0, 2]


def again_after(first: Callable[[Driven, Send], None]) -> list[int]:
    """What is sent again when the first of seven batches was not taken."""
    driven, sends = sending(7)
    first(driven, sends[0])
    answered(driven, sends[1], "OUT_OF_ORDER_SEQUENCE_NUMBER")
    assert sent(driven, 10_000) == []
    for send in sends[2:]:
        answered(driven, send, "OUT_OF_ORDER_SEQUENCE_NUMBER")
    assert driven.sender.phase is Phase.SENDING
    return sequences(sent(driven, 10_000))


def test_what_was_not_taken_goes_again_in_order_once_all_is_answered() -> None:
    def moved(driven: Driven, send: Send) -> None:
        answered(driven, send, "NOT_LEADER_OR_FOLLOWER", True)

    def lost(driven: Driven, send: Send) -> None:
        driven.sender.failed(send, "the connection is closed", 0)

    def unsaid(driven: Driven, send: Send) -> None:
        driven.sender.answered(send, Answer(), 0)

    for first in (moved, lost, unsaid):
        assert again_after(first) == [2, 4, 6, 8, 10]


def test_what_is_in_the_log_already_is_acknowledged() -> None:
    driven, sends = sending(1)
    driven.sender.failed(sends[0], "the connection is closed", 0)
    driven.said = {Produce: "DUPLICATE_SEQUENCE_NUMBER"}
    driven.until(Phase.RENEWING)
    driven.until(Phase.READY)
    assert driven.sender.token == Token(1, "one")


def test_a_request_holds_one_batch_of_each_partition_up_to_its_size() -> None:
    driven = Driven(request_bytes=250)
    places = [TopicPartition("t", number) for number in range(3)]
    driven.transaction(*(batch(place=place) for place in places), batch(size=900))
    driven.until(Phase.READY)
    parts = [
        [(part.batch.partition.partition, part.batch.size_bytes) for part in each.parts]
        for each in driven.asked
        if isinstance(each, Produce)
    ]
    assert parts == [[(0, 100), (1, 100)], [(2, 100)], [(0, 900)]]


def test_a_token_alone_is_a_transaction() -> None:
    driven = Driven()
    driven.transaction()
    driven.until(Phase.READY)
    assert Produce not in driven.kinds()
    assert driven.sender.token == Token(1, "one")


def test_a_transaction_of_which_no_broker_heard_is_not_ended() -> None:
    driven = Driven()
    driven.until(Phase.READY)
    driven.sender.begin()
    driven.sender.abort(error("TRANSACTION_ABORTED", "by its caller"))
    driven.until(Phase.READY)
    assert EndTransaction not in driven.kinds()
    assert driven.kinds()[-1] is InitProducerId


def test_partitions_beside_one_that_is_refused_are_not_looked_at() -> None:
    driven = Driven()
    driven.transaction(batch(), batch(place=OTHER))
    [send] = driven.sender.next_requests(0)
    outcomes = {PLACE: Outcome("OPERATION_NOT_ATTEMPTED"), OTHER: Outcome("INVALID_TOPIC")}
    driven.sender.answered(send, Answer(outcomes=outcomes), 0)
    assert driven.sender.phase is Phase.ABORTING
    assert "INVALID_TOPIC" in str(driven.sender.failure)


def test_nothing_leads_out_of_the_end() -> None:
    assert set(TRANSITIONS.values()) == set(Phase) - {Phase.STARTING}
    assert not [phase for phase, _ in TRANSITIONS if phase is Phase.OVER]
