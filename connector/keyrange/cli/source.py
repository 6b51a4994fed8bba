"""What commands that read a cluster share: the options of the source, and what they stand for.

Rule of this file: nothing of Spark. Heavy modules are imported when a command runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from keyrange.cli.arguments import named_values

if TYPE_CHECKING:
    from keyrange.kafka.cluster import Cluster
    from keyrange.kafka.model.offsets import OffsetRange, TopicPartition
    from keyrange.kafka.view import ClusterView
    from keyrange.options import SourceOptions

ServersOption = Annotated[
    str, typer.Option("--bootstrap-servers", metavar="HOST:PORT,...", help="The Kafka cluster.")
]
TopicsOption = Annotated[
    str,
    typer.Option(
        "--topic",
        metavar="TOPIC,...",
        help="Topics to subscribe to; options subscribePattern and assign may stand for it.",
    ),
]
SourceOptionsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        metavar="NAME=VALUE",
        help="An option of the source, such as startingOffsets or kafka.*; VALUE may be @FILE, "
        "for secrets.",
    ),
]


@dataclass(frozen=True, slots=True)
class Reading:
    """A cluster, and the offsets that a batch read with these options would cover."""

    options: SourceOptions
    cluster: Cluster
    view: ClusterView
    ranges: Mapping[TopicPartition, OffsetRange]

    @property
    def pending(self) -> dict[TopicPartition, OffsetRange]:
        """Those partitions that hold something to read."""
        return {partition: span for partition, span in self.ranges.items() if span.size}


def named_options(
    bootstrap_servers: str, topic: str, given: list[str] | None, **usual: str
) -> dict[str, str]:
    """The options as the source takes them; `usual` are those that the command has others of than
    the source, where nothing is given.

    Raises INVALID_OPTIONS for names that the source does not have: a command may use few of them.
    """
    from keyrange.options import check_names

    options = named_values(given or [])
    check_names(options)
    names = {name.lower() for name in options}
    options |= {name: value for name, value in usual.items() if name.lower() not in names}
    if bootstrap_servers:
        options["kafka.bootstrap.servers"] = bootstrap_servers
    if topic:
        options["subscribe"] = topic
    return options


def folded(named: Mapping[str, str]) -> dict[str, str]:
    """Options by their names in small letters, since upper and lower case are one there."""
    return {name.lower(): value for name, value in named.items()}


def of_kafka(named: Mapping[str, str]) -> dict[str, str]:
    """Those of a query's options that say how its cluster is reached: a batch read takes them,
    where it refuses others of a stream."""
    return {name: value for name, value in named.items() if is_of_kafka(name)}


def is_of_kafka(name: str) -> bool:
    folded_name = name.lower()
    return folded_name.startswith("kafka.") and not folded_name.startswith("kafka.admin.")


@contextmanager
def open_reading(named: Mapping[str, str]) -> Iterator[Reading]:
    """Look up where the options start and end. Raises what the source raises for them."""
    from keyrange.kafka.cluster import Cluster
    from keyrange.kafka.position_lookup import between, resolve
    from keyrange.kafka.subscribed import describe
    from keyrange.options import parse_options

    options = parse_options(named, "batch")
    cluster = Cluster(options.client)
    try:
        view = describe(cluster, options.subscription)
        first = resolve(cluster, view, options.start)
        last = resolve(cluster, view, options.end)
        yield Reading(options, cluster, view, between(first, last))
    finally:
        cluster.close()
