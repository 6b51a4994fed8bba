"""The message that tells who has a transaction open on a partition, by kafka-python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from kafka.protocol.admin.transactions import DescribeProducersRequest, DescribeProducersResponse

# Since Kafka 2.8 (KIP-664).
DESCRIBE_PRODUCERS: Final = (DescribeProducersRequest, DescribeProducersResponse, 0, 0)


def describe_producers(partitions: Mapping[str, Sequence[int]]) -> Any:
    """The producers of some partitions of each topic, for a principal that may read it; a broker
    answers for those that it leads."""
    return DescribeProducersRequest(
        topics=[
            DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=list(numbers))
            for topic, numbers in partitions.items()
        ]
    )
