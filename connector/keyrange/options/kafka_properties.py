"""The `kafka.*` options: Java's consumer property names to frozen client settings.

Every property of Java's consumer is here once: as a field of `ClientSettings`, or as a row that
says why it is ignored or refused. A name that is not here is a spelling mistake and is refused.
Those of sasl.* and ssl.* are in `security_properties`. Values of secrets are kept in
`Secret`, which never shows them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from keyrange.options.jaas import read_login
from keyrange.options.secrets import Secret
from keyrange.options.security_properties import (
    POSITIVE,
    UNUSED_SECURITY_PROPERTIES,
    SecuritySettings,
    TlsSettings,
)
from keyrange.options.value_parsers import (
    NAME_BYTES_MAX,
    Property,
    Violations,
    int_between,
    name_up_to,
    one_of,
    prop,
    properties_of,
)
from keyrange.text.near_names import did_you_mean, near_names

__all__ = ["PROPERTIES", "ClientSettings", "Secret", "parse_client_options"]

_ADDRESS = re.compile(
    r"^([A-Z_]+://)?(?P<host>\[[0-9a-fA-F:.%]+\]|[^\s:/\[\]]+):(?P<port>[0-9]{1,5})$"
)


def _bootstrap_servers(value: str) -> tuple[tuple[str, int], ...]:
    servers = []
    for item in filter(None, (part.strip() for part in value.split(","))):
        address = _ADDRESS.match(item)
        if address is None or not 0 < int(address["port"]) < 65536:
            raise ValueError("must be a list of host:port, separated by commas")
        servers.append((address["host"].strip("[]"), int(address["port"])))
    if not servers:
        raise ValueError("must name at least one host:port")
    return tuple(servers)


def _name(value: str) -> str:
    """Without the blanks around it, which Java's clients take away too."""
    return name_up_to(NAME_BYTES_MAX)(value.strip())


_NOT_NEGATIVE = int_between(0, 2**31 - 1)

_OFFSETS_ARE_KEPT = "the checkpoint or the commit table holds the offsets; use startingOffsets"
_NO_GROUP = "the source joins no consumer group"
_BYTES_STAY = "keys and values are handed over as bytes; decode them in the query"
_SHARE_GROUP = "the source is no share consumer"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings(SecuritySettings):
    """How to reach, secure and pace one Kafka cluster's connections. Plain data, hashable."""

    bootstrap_servers: tuple[tuple[str, int], ...] = prop(
        "bootstrap.servers", (), _bootstrap_servers
    )
    client_id: str = prop("client.id", "keyrange", _name)
    client_rack: str = prop("client.rack", "", _name)
    group_id: str = prop("group.id", "", _name)
    isolation_level: str = prop(
        "isolation.level", "read_uncommitted", one_of("read_uncommitted", "read_committed")
    )
    fetch_min_bytes: int = prop("fetch.min.bytes", 1, _NOT_NEGATIVE)
    fetch_max_wait_ms: int = prop("fetch.max.wait.ms", 500, _NOT_NEGATIVE)
    fetch_max_bytes: int = prop("fetch.max.bytes", 50 * 1024 * 1024, POSITIVE)
    # Java's default is 1 MiB, sized for consumers that hold all partitions at once. A task holds
    # one chunk at a time, and larger chunks cost fewer round trips.
    max_partition_fetch_bytes: int = prop("max.partition.fetch.bytes", 8 * 1024 * 1024, POSITIVE)
    request_timeout_ms: int = prop("request.timeout.ms", 30_000, POSITIVE)
    default_api_timeout_ms: int = prop("default.api.timeout.ms", 60_000, POSITIVE)
    socket_connection_setup_timeout_ms: int = prop(
        "socket.connection.setup.timeout.ms", 10_000, POSITIVE
    )
    retry_backoff_ms: int = prop("retry.backoff.ms", 100, _NOT_NEGATIVE)
    retry_backoff_max_ms: int = prop("retry.backoff.max.ms", 1_000, _NOT_NEGATIVE)
    receive_buffer_bytes: int = prop("receive.buffer.bytes", -1, int_between(-1, 2**31 - 1))
    send_buffer_bytes: int = prop("send.buffer.bytes", -1, int_between(-1, 2**31 - 1))
    metadata_max_age_ms: int = prop("metadata.max.age.ms", 300_000, _NOT_NEGATIVE)


_IGNORED = (
    Property("max.poll.records", ignored="chunks are decoded whole; see maxBatchRows"),
    Property("max.poll.interval.ms", ignored=_NO_GROUP),
    Property("session.timeout.ms", ignored=_NO_GROUP),
    Property("heartbeat.interval.ms", ignored=_NO_GROUP),
    Property("group.instance.id", ignored=_NO_GROUP),
    Property("group.protocol", ignored=_NO_GROUP),
    Property("group.remote.assignor", ignored=_NO_GROUP),
    Property("partition.assignment.strategy", ignored=_NO_GROUP),
    Property("auto.commit.interval.ms", ignored=_OFFSETS_ARE_KEPT),
    Property("allow.auto.create.topics", ignored="topics are never created by reading them"),
    Property("exclude.internal.topics", ignored="topics are named one by one"),
    Property("check.crcs", ignored="checksums are always checked"),
    Property("connections.max.idle.ms", ignored="a connection that was closed is made again"),
    Property("socket.connection.setup.timeout.max.ms", ignored="the call's deadline bounds it"),
    Property("reconnect.backoff.ms", ignored="retry.backoff.ms paces new connections too"),
    Property("reconnect.backoff.max.ms", ignored="see reconnect.backoff.ms"),
    Property("client.dns.lookup", ignored="all addresses of a name are tried"),
    Property("enable.metrics.push", ignored="no client metrics are pushed"),
    Property("metrics.num.samples", ignored="Spark's metrics are used"),
    Property("metrics.recording.level", ignored="Spark's metrics are used"),
    Property("metrics.sample.window.ms", ignored="Spark's metrics are used"),
    Property("metric.reporters", ignored="Spark's metrics are used"),
    Property("auto.include.jmx.reporter", ignored="Spark's metrics are used"),
    Property("metadata.recovery.strategy", ignored="the bootstrap servers are asked again"),
    Property("metadata.recovery.rebootstrap.trigger.ms", ignored="see metadata.recovery.strategy"),
    Property("share.acknowledgement.mode", ignored=_SHARE_GROUP),
    Property("share.acquire.mode", ignored=_SHARE_GROUP),
    Property("internal.leave.group.on.close", ignored=_NO_GROUP),
    Property(
        "internal.throw.on.fetch.stable.offset.unsupported",
        ignored="brokers without it are too old to be read",
    ),
)

_REFUSED = (
    Property("auto.offset.reset", refused=_OFFSETS_ARE_KEPT),
    Property("enable.auto.commit", refused=_OFFSETS_ARE_KEPT),
    Property("key.deserializer", refused=_BYTES_STAY),
    Property("value.deserializer", refused=_BYTES_STAY),
    Property("interceptor.classes", refused="they are Java classes; transform in the query"),
)

PROPERTIES: Final[dict[str, Property]] = {
    row.name: row
    for row in (*properties_of(ClientSettings), *_IGNORED, *_REFUSED, *UNUSED_SECURITY_PROPERTIES)
}

TLS_PROPERTIES: Final = {name: row for name, row in PROPERTIES.items() if name.startswith("ssl.")}


def parse_client_options(
    options: Mapping[str, str], violations: Violations, prefix: str = "kafka."
) -> ClientSettings:
    """Settings of the `kafka.*` options; what is wrong goes to `violations`.

    Their names are without `prefix`, which they have where they are spoken of.
    """
    settings = ClientSettings(**_values(PROPERTIES, options, violations, prefix))
    _check_together(settings, options, violations, prefix)
    return settings


def changed_client(
    settings: ClientSettings,
    options: Mapping[str, str],
    violations: Violations,
    prefix: str = "kafka.",
) -> ClientSettings:
    """Settings with some properties changed, as `parse_client_options` reads these."""
    changed = replace(settings, **_values(PROPERTIES, options, violations, prefix))
    _check_stores(changed, options, violations, prefix)
    return changed


def parse_tls_options(
    options: Mapping[str, str], violations: Violations, prefix: str
) -> TlsSettings:
    """As `parse_client_options`, of ssl.* alone: for servers that are no brokers."""
    settings = TlsSettings(**_values(TLS_PROPERTIES, options, violations, prefix))
    _check_stores(settings, options, violations, prefix)
    return settings


def _values(
    rows: Mapping[str, Property], options: Mapping[str, str], violations: Violations, prefix: str
) -> dict[str, Any]:
    """The fields that options fill."""
    values: dict[str, Any] = {}
    for name, value in sorted(options.items()):
        unknown = unknown_property(name, prefix, rows)
        if unknown is not None:
            violations.add(f"{prefix}{name}", unknown)
        else:
            rows[name].fill(values, f"{prefix}{name}", value, violations)
    return values


def unknown_property(
    name: str, prefix: str = "kafka.", rows: Mapping[str, Property] = PROPERTIES
) -> str | None:
    """What is to be said of a name, without prefix, that no property has; None where one has it."""
    if name in rows:
        return None
    near = (f"{prefix}{each}" for each in near_names(name, rows))
    return f"is not a property of Kafka's consumer{did_you_mean(near)}"


def property_without_prefix(name: str) -> str | None:
    """What is to be said of an option that no source has, where a property of Kafka's is written
    like it but for the prefix; None where none is."""
    letters = _letters(name)
    meant = next((each for each in PROPERTIES if _letters(each) == letters), None)
    if meant is None:
        return None
    also = ", or 'commitGroup' for the name in the commit table" if meant == "group.id" else ""
    return f"does not exist (Kafka's property of this name is the option 'kafka.{meant}'{also})"


def _letters(name: str) -> str:
    return "".join(each for each in name.lower() if each.isalnum())


def _check_together(
    settings: ClientSettings, options: Mapping[str, str], violations: Violations, prefix: str
) -> None:
    if "bootstrap.servers" not in options:
        violations.add(f"{prefix}bootstrap.servers", "must be specified")
    _check_stores(settings, options, violations, prefix)
    # A broken sasl property has its violation, and what it lacks would only be noise.
    broken = any(message.startswith(f"option '{prefix}sasl.") for message in violations.messages)
    if not broken and not settings.sasl_jaas.is_reference:
        with violations.collecting(f"{prefix}sasl.jaas.config"):
            read_login(settings, prefix)


def _check_stores(
    settings: TlsSettings, options: Mapping[str, str], violations: Violations, prefix: str
) -> None:
    for store, inline in (("truststore", "certificates"), ("keystore", "key")):
        both = {f"ssl.{store}.location", f"ssl.{store}.{inline}"}
        if both <= options.keys():
            violations.add(
                f"{prefix}ssl.{store}.{inline}", f"is given beside {prefix}ssl.{store}.location"
            )
    chain, key = settings.ssl_keystore_certificate_chain, settings.ssl_keystore_key
    if bool(chain) != bool(key):
        violations.add(
            f"{prefix}ssl.keystore.key", f"and {prefix}ssl.keystore.certificate.chain go together"
        )
