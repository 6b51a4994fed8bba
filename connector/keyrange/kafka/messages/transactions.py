"""The messages of a transactional sender, by kafka-python, and what the answers say to it.

`transaction.version` 2 (KIP-890) is spoken by the versions above the ones in `BEFORE_BUMPS`: in
those brokers add partitions and groups to a transaction, and each transaction has its own epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from kafka.protocol.metadata import CoordinatorType, FindCoordinatorRequest
from kafka.protocol.producer.transaction import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
)

from keyrange.kafka.messages import protocol
from keyrange.kafka.messages.produce import produce
from keyrange.kafka.model.sender_messages import (
    NOBODY,
    AddOffsets,
    AddPartitions,
    Answer,
    CommitToken,
    EndTransaction,
    FetchToken,
    FindCoordinator,
    FindLeaders,
    InitProducerId,
    Keeper,
    Outcome,
    Produce,
    Producer,
    Request,
    Token,
)
from keyrange.kafka.model.transactional_sender import SenderSettings
from keyrange.model.offsets import TopicPartition, numbers_by_topic
from keyrange.wire.produced_batches import seal

# The feature of a cluster, and from which level on.
FEATURE: Final = "transaction.version"
FEATURE_LEVEL: Final = 2
BEFORE_BUMPS: Final = {"ProduceRequest": 11, "TxnOffsetCommitRequest": 4, "EndTxnRequest": 4}


def message(request: Request, settings: SenderSettings, ack_timeout_ms: int) -> Any:
    """The message of a request. The batches of Produce are sealed here."""
    name = settings.transactional_id
    match request:
        case FindCoordinator(Keeper.TRANSACTION):
            return FindCoordinatorRequest(key=name, key_type=int(CoordinatorType.TRANSACTION))
        case FindCoordinator():
            return protocol.find_coordinator(name)
        case FindLeaders(partitions):
            return protocol.metadata(numbers_by_topic(partitions))
        case InitProducerId(producer):
            timeout_ms = settings.transaction_timeout_ms
            own = _identity(name, producer)
            return InitProducerIdRequest(**own, transaction_timeout_ms=timeout_ms)
        case FetchToken():
            return protocol.offset_fetch(name, numbers_by_topic([settings.place]))
        case AddPartitions(producer, partitions):
            return _add_partitions(name, producer, partitions)
        case AddOffsets(producer):
            return AddOffsetsToTxnRequest(**_identity(name, producer), group_id=name)
        case CommitToken(producer, token):
            offsets = [_offset(settings.place, token)]
            own = _identity(name, producer)
            return TxnOffsetCommitRequest(**own, group_id=name, topics=offsets)
        case EndTransaction(producer, commits):
            return EndTxnRequest(**_identity(name, producer), committed=commits)
        case Produce():
            return produce(name, _sealed(request), ack_timeout_ms)


def _identity(name: str, producer: Producer) -> dict[str, Any]:
    return {
        "transactional_id": name,
        "producer_id": producer.producer_id,
        "producer_epoch": producer.epoch,
    }


def _add_partitions(name: str, producer: Producer, partitions: Iterable[TopicPartition]) -> Any:
    topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.epoch,
        v3_and_below_topics=[
            topic(name=each, partitions=numbers)
            for each, numbers in numbers_by_topic(partitions).items()
        ],
    )


def _offset(place: TopicPartition, token: Token) -> Any:
    """An offset of a group without members, as part of the transaction."""
    topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
    one = topic.TxnOffsetCommitRequestPartition(
        partition_index=place.partition,
        committed_offset=token.number,
        committed_metadata=token.text,
    )
    return topic(name=place.topic, partitions=[one])


def _sealed(request: Produce) -> Mapping[str, list[tuple[int, bytes]]]:
    by_topic: dict[str, list[tuple[int, bytes]]] = {}
    producer = request.producer
    for part in request.parts:
        data = part.batch.content
        seal(data, producer.producer_id, producer.epoch, part.sequence)
        topic, number = part.batch.partition
        by_topic.setdefault(topic, []).append((number, data.tobytes()))
    return by_topic


def read(request: Request, answer: Any) -> Answer:
    """What an answer says to the sender; that to FindLeaders is read by `read_metadata`."""
    match request:
        case FindCoordinator():
            return Answer(_outcome(answer.error_code), node_id=answer.node_id)
        case InitProducerId():
            found = Producer(answer.producer_id, answer.producer_epoch)
            return Answer(_outcome(answer.error_code), producer=found)
        case FetchToken():
            return _token(answer)
        case AddPartitions():
            outcomes = {
                TopicPartition(topic.name, each.partition_index): _outcome(
                    each.partition_error_code
                )
                for topic in answer.results_by_topic_v3_and_below
                for each in topic.results_by_partition
            }
            return Answer(outcomes=outcomes)
        case CommitToken():
            codes = [each.error_code for topic in answer.topics for each in topic.partitions]
            # One partition was asked for: an answer without it is none.
            return Answer(_outcome(codes[0]) if codes else Outcome("UNKNOWN", passes=True))
        case EndTransaction():
            epoch = getattr(answer, "producer_epoch", None)
            told = epoch is not None and epoch >= 0 and not answer.error_code
            producer = Producer(answer.producer_id, answer.producer_epoch) if told else NOBODY
            return Answer(_outcome(answer.error_code), producer=producer)
        case Produce():
            outcomes = {
                TopicPartition(topic.name, each.index): _outcome(each.error_code)
                for topic in answer.responses
                for each in topic.partition_responses
            }
            return Answer(outcomes=outcomes)
    return Answer(_outcome(answer.error_code))


def _outcome(code: int) -> Outcome:
    return Outcome(protocol.error_name(code), protocol.is_retriable(code))


def _token(answer: Any) -> Answer:
    if answer.error_code:
        return Answer(_outcome(answer.error_code))
    for topic in answer.topics:
        for each in topic.partitions:
            if each.error_code:
                return Answer(_outcome(each.error_code))
            if each.committed_offset >= 0:
                return Answer(token=Token(each.committed_offset, each.metadata or ""))
    return Answer()
