"""What commands that read a query's places share: the options of the source, and the cluster and
the object store that they stand for.

Rule of this file: nothing of Spark. Heavy modules are imported when a command runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final

import typer

from keyrange.cli.arguments import named_values
from keyrange.model.offsets import OffsetRange, TopicPartition
from keyrange.options import OPTIONS, SourceOptions, check_names, parse_options
from keyrange.options.commits import storage_in
from keyrange.options.parsing import KAFKA_PREFIX, prefix_of

if TYPE_CHECKING:
    from keyrange.kafka.cluster import Cluster
    from keyrange.kafka.cluster_view import ClusterView


ServersOption = Annotated[str, typer.Option(metavar="HOST:PORT,...", help="The Kafka cluster.")]
TopicsOption = Annotated[
    str,
    typer.Option(
        metavar="TOPIC,...",
        help="Topics to subscribe to; options subscribePattern and assign may stand for it.",
    ),
]
SourceOptionsOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=VALUE",
        help="An option of the source, such as startingOffsets or kafka.*; VALUE may be @FILE, "
        "for secrets.",
    ),
]

TopicOption = Annotated[str, typer.Option(help="Only this topic.")]
PartitionOption = Annotated[
    int | None, typer.Option(min=0, help="Only this partition; needs --topic.")
]
LiveOption = Annotated[
    bool, typer.Option("--live", help="Ask the broker; needs --bootstrap-servers.")
]
SERVERS: Final = "kafka.bootstrap.servers"
# delta-rs waits 30 s for an answer, and asks again for three minutes where it is not told.
_RETRY_TIMEOUT: Final = "20s"


@dataclass(frozen=True, slots=True)
class GivenSource:
    """What a command reads: topics of a cluster, by which options of the source."""

    bootstrap_servers: ServersOption = ""
    topic: TopicsOption = ""
    option: SourceOptionsOption = None

    def named(self, **usual: str) -> dict[str, str]:
        """As `named_options`."""
        return named_options(self.bootstrap_servers, self.topic, self.option, **usual)


@dataclass(frozen=True, slots=True)
class ReadPlan:
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
    options = named_values(given or [])
    check_names(options)
    names = {name.lower() for name in options}
    options |= {name: value for name, value in usual.items() if name.lower() not in names}
    if bootstrap_servers:
        options[SERVERS] = bootstrap_servers
    if topic:
        options["subscribe"] = topic
    return options


def folded(named: Mapping[str, str]) -> dict[str, str]:
    """Options by their names in small letters, since upper and lower case are one there."""
    return {name.lower(): value for name, value in named.items()}


def value_of(named: Mapping[str, str], option: str, given: str = "") -> str:
    """What a command is `given`, or what the query's own option says, named in small letters; else
    ""."""
    return given or folded(named).get(option, "")


def of_kafka(named: Mapping[str, str]) -> dict[str, str]:
    """Those of a query's options that say how its cluster is reached: a batch read takes them,
    where it refuses others of a stream."""
    return {name: value for name, value in named.items() if prefix_of(name) == KAFKA_PREFIX}


def of_batch(named: Mapping[str, str]) -> dict[str, str]:
    """A query's options without those that streams alone have, which a batch read refuses."""
    of_streams = {row.name.lower() for row in OPTIONS if "batch" not in row.modes}
    return {name: value for name, value in named.items() if name.lower() not in of_streams}


def names(named: Mapping[str, str], option: str) -> bool:
    """Whether an option is given, which is named in small letters."""
    return option in folded(named)


def read_record_id(text: str, named: str) -> tuple[str, int, int]:
    """Topic, partition and offset of a record as commands name it: `orders-3:41207`.

    Raises typer.BadParameter (exit code 2), which says what `named` is given as."""
    name, _, offset = text.rpartition(":")
    topic, _, partition = name.rpartition("-")
    if not (topic and is_number(partition) and is_number(offset)):
        raise typer.BadParameter(f"{named} is given as TOPIC-PARTITION:OFFSET: orders-3:41207")
    return topic, int(partition), int(offset)


def is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def check_partition(topic: str, partition: int | None) -> None:
    if partition is not None and not topic:
        raise typer.BadParameter("--partition needs --topic")


def check_live(live: bool, named: Mapping[str, str]) -> None:
    """Raises typer.BadParameter (exit code 2) where a broker is to be asked and none is named."""
    if live and not names(named, SERVERS):
        raise typer.BadParameter("--live needs --bootstrap-servers")


def storage_of(named: Mapping[str, str]) -> dict[str, str]:
    """As `storage_in`; a command waits for a store that does not answer as long as a person
    does."""
    return {"retry_timeout": _RETRY_TIMEOUT, **storage_in(named)}


@contextmanager
def connected(named: Mapping[str, str]) -> Iterator[tuple[SourceOptions, Cluster]]:
    """The options as a batch read takes them, and the cluster that they name. Raises what the
    source raises for them."""
    from keyrange.kafka.cluster import Cluster

    options = parse_options(named, "batch")
    with closing(Cluster(options.client)) as cluster:
        yield options, cluster


@contextmanager
def open_reading(named: Mapping[str, str]) -> Iterator[ReadPlan]:
    """Look up where the options start and end. Raises what the source raises for them."""
    from keyrange.kafka.position_lookup import between, resolve
    from keyrange.kafka.subscribed_topics import describe

    with connected(named) as (options, cluster):
        view = describe(cluster, options.subscription)
        first = resolve(cluster, view, options.start)
        last = resolve(cluster, view, options.end)
        yield ReadPlan(options, cluster, view, between(first, last))
