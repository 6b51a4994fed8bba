"""A transactional sender's requests as Kafka's messages, and what the answers say to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from keyrange.kafka.messages import protocol, transactions
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


def message(
    request: Request, settings: SenderSettings, transaction_timeout_ms: int, ack_timeout_ms: int
) -> Any:
    """The message of a request. The batches of Produce are sealed here."""
    name, group = settings.transactional_id, settings.group
    match request:
        case FindCoordinator(Keeper.TRANSACTION):
            return transactions.find_transaction_coordinator(name)
        case FindCoordinator():
            return protocol.find_coordinator(group)
        case FindLeaders(partitions):
            return protocol.metadata(numbers_by_topic(partitions))
        case InitProducerId(p):
            return transactions.init_producer_id(
                name, transaction_timeout_ms, p.producer_id, p.epoch
            )
        case FetchToken():
            return protocol.offset_fetch(group, numbers_by_topic([settings.place]))
        case AddPartitions(p, partitions):
            numbers = numbers_by_topic(partitions)
            return transactions.add_partitions(name, p.producer_id, p.epoch, numbers)
        case AddOffsets(p):
            return transactions.add_offsets(name, p.producer_id, p.epoch, group)
        case CommitToken(p, token):
            return transactions.commit_offset(
                *(name, p.producer_id, p.epoch, group, settings.place, token.number, token.text)
            )
        case EndTransaction(p, commits):
            return transactions.end_transaction(name, p.producer_id, p.epoch, commits)
        case Produce():
            return transactions.produce(name, _sealed(request), ack_timeout_ms)


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
