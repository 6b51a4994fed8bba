"""The properties of Kafka's producer, for topics that rows are written to.

Every property of Java's producer is here once, as those of its consumer are in `kafka_properties`:
as a field of `ProducerSettings`, as a row that says why it is ignored or refused, or, where it is
about connections, as the consumer's own row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from keyrange.options.kafka_properties import PROPERTIES as CONSUMER_PROPERTIES
from keyrange.options.kafka_properties import (
    ClientSettings,
    changed_client,
    parse_client_options,
)
from keyrange.options.security_properties import POSITIVE
from keyrange.options.value_parsers import (
    Property,
    Violations,
    boolean,
    int_between,
    one_of,
    prop,
    properties_of,
)
from keyrange.text.near_names import did_you_mean, near_names

PREFIX: Final = "kafka."
_BY_ROWS: Final = "rows have the bytes of keys and values already"
_ALL_AT_HAND: Final = "the rows of a batch are all there when they are sent"
_FIVE: Final = "at most five requests are in flight, whose order sequence numbers keep"


def _all_replicas(value: str) -> str:
    if value.strip() not in ("all", "-1"):
        raise ValueError("must be all: a transaction counts what all replicas in sync have")
    return "all"


def _only_true(value: str) -> bool:
    if not boolean(value):
        raise ValueError("must be true: rows are written exactly once")
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings:
    """How rows are put into record batches and sent. Plain data, hashable."""

    # Java's default is 16 KiB, sized for records that come one by one. Here rows are at hand, and
    # fewer batches cost brokers and readers less.
    batch_bytes: int = prop("batch.size", 131_072, int_between(0, 2**31 - 1))
    ahead_bytes: int = prop("buffer.memory", 33_554_432, POSITIVE)
    compression: str = prop(
        "compression.type", "none", one_of("none", "gzip", "snappy", "lz4", "zstd")
    )
    gzip_level: int | None = prop("compression.gzip.level", None, int_between(-1, 9))
    lz4_level: int | None = prop("compression.lz4.level", None, int_between(1, 17))
    zstd_level: int | None = prop("compression.zstd.level", None, int_between(-131_072, 22))
    delivery_timeout_ms: int = prop("delivery.timeout.ms", 120_000, POSITIVE)
    request_bytes: int = prop("max.request.size", 1_048_576, POSITIVE)
    # Java's default is a minute, and brokers take 15 at most by default. A sender has its part of a
    # whole batch in one transaction, and whoever follows it ends what it has left open at once.
    transaction_timeout_ms: int = prop("transaction.timeout.ms", 600_000, POSITIVE)

    @property
    def compression_level(self) -> int | None:
        """That of the chosen compression; None for its default."""
        levels = {"gzip": self.gzip_level, "lz4": self.lz4_level, "zstd": self.zstd_level}
        return levels.get(self.compression)


_OWN: Final = (
    *properties_of(ProducerSettings),
    Property("acks", parse=_all_replicas),
    Property("enable.idempotence", parse=_only_true),
    Property("linger.ms", ignored=_ALL_AT_HAND),
    Property("max.block.ms", ignored="delivery.timeout.ms bounds every wait"),
    Property("max.in.flight.requests.per.connection", ignored=_FIVE),
    Property("retries", ignored="delivery.timeout.ms bounds all tries"),
    Property("metadata.max.idle.ms", ignored="a topic is asked about when rows are sent to it"),
    Property("partitioner.adaptive.partitioning.enable", ignored=_ALL_AT_HAND),
    Property("partitioner.availability.timeout.ms", ignored=_ALL_AT_HAND),
    Property(
        "partitioner.class",
        refused="it is a Java class; rows go by their keys, or by a column partition",
    ),
    Property(
        "partitioner.ignore.keys",
        refused="rows go by their keys; a column partition sends them elsewhere",
    ),
    Property("key.serializer", refused=_BY_ROWS),
    Property("value.serializer", refused=_BY_ROWS),
    Property("interceptor.classes", refused="they are Java classes; transform in the job"),
    Property(
        "transactional.id", refused="each query has its own, which fences the query's older run"
    ),
    Property(
        "transaction.two.phase.commit.enable",
        refused="a transaction is over before its batch is",
    ),
)

# Of the consumer's properties those that Java's producer has too.
_CONNECTION: Final = (
    *("bootstrap.servers", "client.id", "client.dns.lookup", "connections.max.idle.ms"),
    *(
        "config.providers",
        "enable.metrics.push",
        "metadata.max.age.ms",
        "metadata.recovery.strategy",
    ),
    *("metadata.recovery.rebootstrap.trigger.ms", "metric.reporters", "metrics.num.samples"),
    *("auto.include.jmx.reporter", "metrics.recording.level", "metrics.sample.window.ms"),
    *("receive.buffer.bytes", "reconnect.backoff.max.ms", "reconnect.backoff.ms"),
    *("request.timeout.ms", "retry.backoff.max.ms", "retry.backoff.ms", "send.buffer.bytes"),
    *("socket.connection.setup.timeout.max.ms", "socket.connection.setup.timeout.ms"),
    *(name for name in CONSUMER_PROPERTIES if name.startswith(("sasl.", "ssl.", "security."))),
)

PRODUCER_PROPERTIES: Final[dict[str, Property]] = {
    **{row.name: row for row in _OWN},
    **{name: CONSUMER_PROPERTIES[name] for name in _CONNECTION},
}


def parse_producer_options(
    options: Mapping[str, str], source: ClientSettings, violations: Violations
) -> tuple[ProducerSettings, ClientSettings]:
    """Settings of the `kafka.*` options of a topic; what is wrong goes to `violations`.

    A topic that names no brokers is on the cluster of the `source`, and reached as that is, but for
    the properties that it names.
    """
    fields: dict[str, Any] = {}
    connection: dict[str, str] = {}
    for name, value in sorted(options.items()):
        short = name.removeprefix(PREFIX)
        row = PRODUCER_PROPERTIES.get(short)
        if short == name or row is None:
            violations.add(name, _unknown(name))
        elif short in _CONNECTION:
            connection[short] = value
        else:
            row.fill(fields, name, value, violations)
    own = ProducerSettings(**fields)
    if "bootstrap.servers" in connection:
        return own, parse_client_options(connection, violations)
    return own, changed_client(source, connection, violations)


def _unknown(name: str) -> str:
    near = near_names(name.removeprefix(PREFIX), PRODUCER_PROPERTIES)
    return (
        "is not a property of Kafka's producer, which are written kafka.NAME"
        f"{did_you_mean(f'{PREFIX}{each}' for each in near)}"
    )
