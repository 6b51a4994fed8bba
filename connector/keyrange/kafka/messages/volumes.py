"""The messages of the volume guard, by kafka-python: log directories and client quotas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kafka.protocol.admin.client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from kafka.protocol.admin.cluster import DescribeLogDirsRequest, DescribeLogDirsResponse

# The lowest is the first that tells how large volumes are (KIP-827, Kafka 3.3).
DESCRIBE_LOG_DIRS: Final = (DescribeLogDirsRequest, DescribeLogDirsResponse, 4, 5)
DESCRIBE_CLIENT_QUOTAS: Final = (DescribeClientQuotasRequest, DescribeClientQuotasResponse, 0, 1)
ALTER_CLIENT_QUOTAS: Final = (AlterClientQuotasRequest, AlterClientQuotasResponse, 0, 1)


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
