"""The messages of a producer, by kafka-python; most are of a transactional one.

`transaction.version` 2 (KIP-890) is spoken by the versions above the ones in `BEFORE_BUMPS`: in
those brokers add partitions and groups to a transaction, and each transaction has its own epoch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from kafka.protocol.metadata import CoordinatorType, FindCoordinatorRequest
from kafka.protocol.producer.produce import ProduceRequest
from kafka.protocol.producer.transaction import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
)

# The feature of a cluster, and from which level on.
FEATURE: Final = "transaction.version"
FEATURE_LEVEL: Final = 2
BEFORE_BUMPS: Final = {"ProduceRequest": 11, "TxnOffsetCommitRequest": 4, "EndTxnRequest": 4}


def find_transaction_coordinator(transactional_id: str) -> Any:
    return FindCoordinatorRequest(key=transactional_id, key_type=int(CoordinatorType.TRANSACTION))


def init_producer_id(transactional_id: str, timeout_ms: int, producer_id: int, epoch: int) -> Any:
    """`producer_id` and `epoch` -1 begin anew."""
    return InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout_ms,
        producer_id=producer_id,
        producer_epoch=epoch,
    )


def add_partitions(
    transactional_id: str, producer_id: int, epoch: int, by_topic: Mapping[str, Sequence[int]]
) -> Any:
    topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=producer_id,
        v3_and_below_producer_epoch=epoch,
        v3_and_below_topics=[
            topic(name=name, partitions=list(numbers)) for name, numbers in by_topic.items()
        ],
    )


def add_offsets(transactional_id: str, producer_id: int, epoch: int, group_id: str) -> Any:
    return AddOffsetsToTxnRequest(
        transactional_id=transactional_id,
        producer_id=producer_id,
        producer_epoch=epoch,
        group_id=group_id,
    )


def commit_offset(
    transactional_id: str,
    producer_id: int,
    epoch: int,
    group_id: str,
    place: tuple[str, int],
    offset: int,
    metadata: str,
) -> Any:
    """An offset of a group without members, as part of the transaction."""
    topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
    one = topic.TxnOffsetCommitRequestPartition
    name, number = place
    offsets = [
        one(partition_index=number, committed_offset=offset, committed_metadata=metadata),
    ]
    return TxnOffsetCommitRequest(
        transactional_id=transactional_id,
        group_id=group_id,
        producer_id=producer_id,
        producer_epoch=epoch,
        topics=[topic(name=name, partitions=offsets)],
    )


def end_transaction(transactional_id: str, producer_id: int, epoch: int, commits: bool) -> Any:
    return EndTxnRequest(
        transactional_id=transactional_id,
        producer_id=producer_id,
        producer_epoch=epoch,
        committed=commits,
    )


def produce(
    transactional_id: str | None,
    by_topic: Mapping[str, Sequence[tuple[int, bytes]]],
    timeout_ms: int,
) -> Any:
    """`by_topic`: (partition, record batch) pairs, acknowledged by all replicas in sync; None:
    outside of transactions."""
    topic = ProduceRequest.TopicProduceData
    part = topic.PartitionProduceData
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=-1,
        timeout_ms=timeout_ms,
        topic_data=[
            topic(
                name=name,
                partition_data=[part(index=number, records=batch) for number, batch in batches],
            )
            for name, batches in by_topic.items()
        ],
    )
