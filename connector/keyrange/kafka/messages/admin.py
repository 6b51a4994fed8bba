"""The messages that tell how a cluster is set up and what is in it, by kafka-python: settings,
log directories, client quotas, producers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Any

from kafka.protocol.admin.client_quotas import AlterClientQuotasRequest, DescribeClientQuotasRequest
from kafka.protocol.admin.cluster import DescribeLogDirsRequest
from kafka.protocol.admin.configs import DescribeConfigsRequest
from kafka.protocol.admin.transactions import DescribeProducersRequest


class Resource(IntEnum):
    """What has settings, by its number on the wire."""

    TOPIC = 2
    BROKER = 4


def describe_configs(kind: Resource, resources: Iterable[str], names: Sequence[str]) -> Any:
    """Some settings of topics or brokers, for a principal that may describe their configs.

    A broker is named by its node id, and answers for itself alone.
    """
    return DescribeConfigsRequest(
        resources=[
            DescribeConfigsRequest.DescribeConfigsResource(
                resource_type=kind, resource_name=name, configuration_keys=list(names)
            )
            for name in resources
        ],
        include_synonyms=False,
        include_documentation=False,
    )


def describe_log_dirs() -> Any:
    """A broker's log directories, without what is in them: that would be every replica."""
    return DescribeLogDirsRequest(topics=[])


def describe_client_quotas() -> Any:
    """All quotas of users and clients, whatever kinds of entities they are of."""
    return DescribeClientQuotasRequest(components=[], strict=False)


def alter_client_quotas(
    wanted: Mapping[tuple[tuple[str, str | None], ...], Mapping[str, float | None]],
    validate_only: bool,
) -> Any:
    """`wanted`: an entity's (type, name) pairs, name None for the default, to its keys with their
    values, None to remove one."""
    entry = AlterClientQuotasRequest.EntryData
    return AlterClientQuotasRequest(
        entries=[
            entry(
                entity=[
                    entry.EntityData(entity_type=kind, entity_name=name) for kind, name in entity
                ],
                ops=[
                    entry.OpData(
                        key=key, value=0.0 if value is None else value, remove=value is None
                    )
                    for key, value in values.items()
                ],
            )
            for entity, values in wanted.items()
        ],
        validate_only=validate_only,
    )


def describe_producers(partitions: Mapping[str, Sequence[int]]) -> Any:
    """The producers of some partitions of each topic, for a principal that may read it; a broker
    answers for those that it leads."""
    return DescribeProducersRequest(
        topics=[
            DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=list(numbers))
            for topic, numbers in partitions.items()
        ]
    )
