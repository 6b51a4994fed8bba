"""The request for settings of brokers and topics, by kafka-python."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import Any, Final

from kafka.protocol.admin.configs import DescribeConfigsRequest, DescribeConfigsResponse

DESCRIBE_CONFIGS: Final = (DescribeConfigsRequest, DescribeConfigsResponse, 1, 4)


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
