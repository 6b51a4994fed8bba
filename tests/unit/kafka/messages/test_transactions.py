"""Messages of transactions in every version that is spoken, and what answers to them say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kafka.protocol.consumer.group import OffsetFetchResponse
from kafka.protocol.producer.produce import ProduceResponse
from kafka.protocol.producer.transaction import (
    AddPartitionsToTxnResponse,
    EndTxnResponse,
    InitProducerIdResponse,
    TxnOffsetCommitResponse,
)

from keyrange.kafka.messages import protocol, transactions
from keyrange.kafka.model.sender_messages import (
    NOBODY,
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
    Part,
    Produce,
    Producer,
    Token,
)
from keyrange.kafka.model.transactional_sender import SenderSettings
from keyrange.model.offsets import TopicPartition

PLACE, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)
WHO = Producer(2**40, 7)
SETTINGS = SenderSettings("id", PLACE)


def batch(place: TopicPartition) -> Batch:
    return Batch(place, 2, 70, np.zeros(70, np.uint8))


REQUESTS: tuple[Any, ...] = (
    FindCoordinator(Keeper.TRANSACTION),
    FindCoordinator(Keeper.GROUP),
    FindLeaders((PLACE, OTHER)),
    InitProducerId(WHO),
    FetchToken(),
    AddPartitions(WHO, (PLACE, OTHER)),
    AddOffsets(WHO),
    CommitToken(WHO, Token(5, "five")),
    EndTransaction(WHO, True),
    Produce(WHO, (Part(batch(PLACE), 3), Part(batch(OTHER), 9))),
)


def message(request: Any) -> Any:
    return transactions.message(request, SETTINGS, 30_000)


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda each: type(each).__name__)
def test_messages_can_be_written_in_every_version_and_read_again(request_: Any) -> None:
    name = message(request_).name
    least, most = protocol.SPOKEN[name]
    assert transactions.BEFORE_BUMPS.get(name, least) >= least
    for version in range(least, most + 1):
        made = message(request_)
        frame = protocol.encode(made, version, 1, "client")
        body = type(made).decode(memoryview(frame)[_header_bytes(made, version) :], version=version)
        fields = body.to_dict()
        said = str(fields)
        for word in _words(request_):
            assert word in said, (version, word)


def _header_bytes(made: Any, version: int) -> int:
    """Length, API key, version, correlation id, client id, and tagged fields where there are."""
    return 4 + 2 + 2 + 4 + 2 + len("client") + int(type(made).flexible_version_q(version))


def _words(request: Any) -> list[str]:
    producer = getattr(request, "producer", None)
    words = [] if producer is None or isinstance(request, Produce) else [str(WHO.producer_id)]
    match request:
        case FindLeaders() | AddPartitions() | Produce():
            words.append("'t'")
        case CommitToken():
            words += ["five", "'id'"]
        case FindCoordinator(Keeper.GROUP):
            words.append("'id'")
    return words


def test_batches_are_sealed_with_producer_and_sequence() -> None:
    request = REQUESTS[-1]
    made = message(request)
    for part, sent in zip(request.parts, made.topic_data[0].partition_data, strict=True):
        records = bytes(sent.records)
        assert records == part.batch.content.tobytes()
        assert int.from_bytes(records[43:51], "big") == WHO.producer_id
        assert int.from_bytes(records[51:53], "big") == WHO.epoch
        assert int.from_bytes(records[53:57], "big") == part.sequence


def read(request: Any, answer: Any, version: int) -> Answer:
    """What is read of an answer that went over the wire."""
    frame = bytes(answer.encode(version=version))
    return transactions.read(request, type(answer).decode(frame, version=version))


@pytest.mark.parametrize("version", [7, 11, 12])
def test_each_partition_of_produce_has_its_outcome(version: int) -> None:
    topic = ProduceResponse.TopicProduceResponse
    one = topic.PartitionProduceResponse
    parts = [
        one(index=0, error_code=0, base_offset=4),
        one(index=1, error_code=87, base_offset=-1),
    ]
    answer = ProduceResponse(responses=[topic(name="t", partition_responses=parts)])
    assert read(REQUESTS[-1], answer, version).outcomes == {
        PLACE: Outcome(),
        OTHER: Outcome("INVALID_RECORD"),
    }


def test_other_answers() -> None:
    found = read(InitProducerId(NOBODY), InitProducerIdResponse(producer_id=5, producer_epoch=1), 4)
    assert found == Answer(producer=Producer(5, 1))
    for version in (1, 4):
        assert read(EndTransaction(WHO, True), EndTxnResponse(error_code=51), version) == Answer(
            Outcome("CONCURRENT_TRANSACTIONS", passes=True)
        )
        assert read(EndTransaction(WHO, True), EndTxnResponse(), version) == Answer()
    bumped = EndTxnResponse(producer_id=6, producer_epoch=0)
    assert read(EndTransaction(WHO, True), bumped, 5) == Answer(producer=Producer(6, 0))
    topic = AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult
    one = topic.AddPartitionsToTxnPartitionResult
    codes = [one(partition_index=n, partition_error_code=code) for n, code in ((0, 0), (1, 29))]
    added = AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[topic(name="t", results_by_partition=codes)]
    )
    assert read(REQUESTS[5], added, 3).outcomes == {
        PLACE: Outcome(),
        OTHER: Outcome("TOPIC_AUTHORIZATION_FAILED"),
    }
    kept = TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic
    refused = kept.TxnOffsetCommitResponsePartition(partition_index=0, error_code=25)
    answer = TxnOffsetCommitResponse(topics=[kept(name="t", partitions=[refused])])
    assert read(REQUESTS[7], answer, 3) == Answer(Outcome("UNKNOWN_MEMBER_ID"))
    assert read(REQUESTS[7], TxnOffsetCommitResponse(topics=[]), 3).whole.passes


@pytest.mark.parametrize(
    ("offset", "code", "expected"),
    [
        (4, 0, Answer(token=Token(4, "four"))),
        (-1, 0, Answer()),
        (-1, 88, Answer(Outcome("UNSTABLE_OFFSET_COMMIT", passes=True))),
    ],
)
def test_the_token_is_the_groups_offset(offset: int, code: int, expected: Answer) -> None:
    topic = OffsetFetchResponse.OffsetFetchResponseTopic
    one = topic.OffsetFetchResponsePartition(
        partition_index=0, committed_offset=offset, metadata="four", error_code=code
    )
    answer = OffsetFetchResponse(topics=[topic(name="t", partitions=[one])], error_code=0)
    assert read(FetchToken(), answer, 7) == expected
