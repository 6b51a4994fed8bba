"""The `kafka.*` options: Java's consumer property names to frozen client settings.

Every property of Java's consumer has a row here: mapped to a field of `ClientSettings`, ignored
with the reason, or refused with the reason. A name without a row is a spelling mistake and is
refused.
Librdkafka's names for credentials and PEM files are taken too. Values of secrets are kept in
`Secret`, which never shows them.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from keyrange.parsing import Violations, int_between, one_of, text


class Secret:
    """A string that does not show itself in repr, str, logs or errors."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        return self._value

    def __repr__(self) -> str:
        return "'***'"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._value == self._value

    def __hash__(self) -> int:
        return hash(self._value)

    def __bool__(self) -> bool:
        return bool(self._value)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """How to reach, secure and pace one Kafka cluster's connections. Plain data, hashable."""

    bootstrap_servers: tuple[tuple[str, int], ...] = ()
    client_id: str = "keyrange"
    client_rack: str = ""
    group_id: str = ""
    security_protocol: str = "PLAINTEXT"
    sasl_mechanism: str = "GSSAPI"
    sasl_username: str = ""
    sasl_password: Secret = field(default_factory=lambda: Secret(""))
    ssl_ca_location: str = ""
    ssl_ca_pem: str = ""
    ssl_certificate_location: str = ""
    ssl_key_location: str = ""
    ssl_key_password: Secret = field(default_factory=lambda: Secret(""))
    ssl_check_hostname: bool = True
    isolation_level: str = "read_uncommitted"
    fetch_min_bytes: int = 1
    fetch_max_wait_ms: int = 500
    fetch_max_bytes: int = 50 * 1024 * 1024
    # Java's default is 1 MiB, sized for consumers that hold all partitions at once. A task holds
    # one chunk at a time, and larger chunks cost fewer round trips.
    max_partition_fetch_bytes: int = 8 * 1024 * 1024
    request_timeout_ms: int = 30_000
    default_api_timeout_ms: int = 60_000
    socket_connection_setup_timeout_ms: int = 10_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    receive_buffer_bytes: int = -1
    send_buffer_bytes: int = -1
    metadata_max_age_ms: int = 300_000


@dataclass(frozen=True, slots=True)
class Property:
    """One row: a `kafka.*` name without the prefix, and either its field or why it has none."""

    name: str
    field: str = ""
    parse: Callable[[str], Any] = text
    ignored: str = ""
    refused: str = ""
    secret: bool = False


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


def _hostname_check(value: str) -> bool:
    if value not in ("https", ""):
        raise ValueError("must be 'https', or empty to switch the check of the host name off")
    return value == "https"


def _secret(value: str) -> Secret:
    return Secret(value)


_POSITIVE = int_between(1, 2**31 - 1)
_NOT_NEGATIVE = int_between(0, 2**31 - 1)

_OFFSETS_ARE_SPARKS = "Spark's checkpoint holds the offsets; use startingOffsets"
_NO_GROUP = "the source joins no consumer group"
_BYTES_STAY = "keys and values are handed over as bytes; decode them in the query"
_STORE = (
    "Java key stores are not read; write PEM files, for example with "
    "keytool -exportcert -rfc for a trust store or openssl pkcs12 -in STORE -out FILE.pem"
)

_MAPPED = (
    Property("bootstrap.servers", "bootstrap_servers", _bootstrap_servers),
    Property("client.id", "client_id"),
    Property("client.rack", "client_rack"),
    Property("group.id", "group_id"),
    Property(
        "security.protocol",
        "security_protocol",
        one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL", upper=True),
    ),
    Property(
        "sasl.mechanism",
        "sasl_mechanism",
        one_of("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", upper=True),
    ),
    Property("sasl.username", "sasl_username"),
    Property("sasl.password", "sasl_password", _secret, secret=True),
    Property("ssl.ca.location", "ssl_ca_location"),
    Property("ssl.truststore.location", "ssl_ca_location"),
    Property("ssl.truststore.certificates", "ssl_ca_pem"),
    Property("ssl.certificate.location", "ssl_certificate_location"),
    Property("ssl.keystore.location", "ssl_certificate_location"),
    Property("ssl.key.location", "ssl_key_location"),
    Property("ssl.key.password", "ssl_key_password", _secret, secret=True),
    Property("ssl.endpoint.identification.algorithm", "ssl_check_hostname", _hostname_check),
    Property("isolation.level", "isolation_level", one_of("read_uncommitted", "read_committed")),
    Property("fetch.min.bytes", "fetch_min_bytes", _NOT_NEGATIVE),
    Property("fetch.max.wait.ms", "fetch_max_wait_ms", _NOT_NEGATIVE),
    Property("fetch.max.bytes", "fetch_max_bytes", _POSITIVE),
    Property("max.partition.fetch.bytes", "max_partition_fetch_bytes", _POSITIVE),
    Property("request.timeout.ms", "request_timeout_ms", _POSITIVE),
    Property("default.api.timeout.ms", "default_api_timeout_ms", _POSITIVE),
    Property("socket.connection.setup.timeout.ms", "socket_connection_setup_timeout_ms", _POSITIVE),
    Property("retry.backoff.ms", "retry_backoff_ms", _NOT_NEGATIVE),
    Property("retry.backoff.max.ms", "retry_backoff_max_ms", _NOT_NEGATIVE),
    Property("receive.buffer.bytes", "receive_buffer_bytes", int_between(-1, 2**31 - 1)),
    Property("send.buffer.bytes", "send_buffer_bytes", int_between(-1, 2**31 - 1)),
    Property("metadata.max.age.ms", "metadata_max_age_ms", _NOT_NEGATIVE),
)

_JAAS: Final = "sasl.jaas.config"

_IGNORED = (
    Property("max.poll.records", ignored="chunks are decoded whole; see maxBatchRows"),
    Property("max.poll.interval.ms", ignored=_NO_GROUP),
    Property("session.timeout.ms", ignored=_NO_GROUP),
    Property("heartbeat.interval.ms", ignored=_NO_GROUP),
    Property("group.instance.id", ignored=_NO_GROUP),
    Property("group.protocol", ignored=_NO_GROUP),
    Property("group.remote.assignor", ignored=_NO_GROUP),
    Property("partition.assignment.strategy", ignored=_NO_GROUP),
    Property("auto.commit.interval.ms", ignored=_OFFSETS_ARE_SPARKS),
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
    Property("ssl.protocol", ignored="TLS 1.2 or newer is negotiated"),
    Property("ssl.enabled.protocols", ignored="TLS 1.2 or newer is negotiated"),
    Property("ssl.truststore.type", parse=one_of("PEM", upper=True), ignored="PEM is read"),
    Property("ssl.keystore.type", parse=one_of("PEM", upper=True), ignored="PEM is read"),
    Property("ssl.secure.random.implementation", ignored="OpenSSL's is used"),
)

_REFUSED = (
    Property("auto.offset.reset", refused=_OFFSETS_ARE_SPARKS),
    Property("enable.auto.commit", refused=_OFFSETS_ARE_SPARKS),
    Property("key.deserializer", refused=_BYTES_STAY),
    Property("value.deserializer", refused=_BYTES_STAY),
    Property("interceptor.classes", refused="they are Java classes; transform in the query"),
    Property("ssl.truststore.password", refused=_STORE, secret=True),
    Property("ssl.keystore.password", refused=_STORE, secret=True),
    Property("ssl.keystore.key", refused="name a file with ssl.key.location", secret=True),
    Property("ssl.keystore.certificate.chain", refused="name a file with ssl.certificate.location"),
    Property("ssl.provider", refused="OpenSSL is used"),
    Property("ssl.cipher.suites", refused="OpenSSL's defaults are used"),
    Property("ssl.keymanager.algorithm", refused="OpenSSL is used"),
    Property("ssl.trustmanager.algorithm", refused="OpenSSL is used"),
    Property("ssl.engine.factory.class", refused="OpenSSL is used"),
    Property("security.providers", refused="OpenSSL is used"),
)

PROPERTIES: Final[dict[str, Property]] = {
    row.name: row
    for row in (
        *_MAPPED,
        Property(_JAAS, "sasl_password", secret=True),
        *_IGNORED,
        *_REFUSED,
    )
}

_JAAS_MODULE = re.compile(r"^\s*[\w.]*\.(Plain|Scram)LoginModule\s+required\s+(.*?);?\s*$", re.S)
_JAAS_ENTRY = re.compile(
    r"""(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;"']+))(?=[\s;]|$)"""
)


def _credentials(jaas: str) -> tuple[str, Secret]:
    """User name and password of a PlainLoginModule or ScramLoginModule entry."""
    module = _JAAS_MODULE.match(jaas)
    if module is None:
        raise ValueError(
            "must be a PlainLoginModule or ScramLoginModule entry such as "
            '...PlainLoginModule required username="..." password="...";'
        )
    entries = {
        name: re.sub(r"\\(.)", r"\1", double or single or bare)
        for name, double, single, bare in _JAAS_ENTRY.findall(module.group(2))
    }
    if not {"username", "password"} <= entries.keys() or _JAAS_ENTRY.sub("", module[2]).strip(
        "; \n"
    ):
        raise ValueError('must hold username and password, each name="value"')
    return entries["username"], Secret(entries["password"])


def parse_client_options(options: Mapping[str, str], violations: Violations) -> ClientSettings:
    """Settings of the `kafka.*` options, without prefix; what is wrong goes to `violations`."""
    values: dict[str, Any] = {}
    for name, value in sorted(options.items()):
        row = PROPERTIES.get(name)
        if row is None:
            near = difflib.get_close_matches(name, PROPERTIES, 1)
            hint = f"; did you mean 'kafka.{near[0]}'?" if near else ""
            violations.add(f"kafka.{name}", f"is not a property of Kafka's consumer{hint}")
        elif row.refused:
            violations.add(f"kafka.{name}", f"is not supported: {row.refused}")
        elif name == _JAAS:
            with violations.collecting(f"kafka.{name}"):
                values["sasl_username"], values["sasl_password"] = _credentials(value)
        else:
            with violations.collecting(f"kafka.{name}"):
                parsed = row.parse(value)
                if row.field:
                    values[row.field] = parsed
    settings = ClientSettings(**values)
    _check_together(settings, options, violations)
    return settings


def _check_together(
    settings: ClientSettings, options: Mapping[str, str], violations: Violations
) -> None:
    if "bootstrap.servers" not in options:
        violations.add("kafka.bootstrap.servers", "must be specified")
    if settings.security_protocol.startswith("SASL"):
        if "sasl.mechanism" not in options:
            violations.add(
                "kafka.sasl.mechanism", "must be PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512 with SASL"
            )
        if not settings.sasl_username or not settings.sasl_password:
            violations.add(
                "kafka.sasl.jaas.config",
                "with SASL, a user name and a password are needed: here or as kafka.sasl.username "
                "and kafka.sasl.password",
            )
    for name in ("ssl.truststore.location", "ssl.keystore.location"):
        location = options.get(name, "")
        if location.lower().endswith((".jks", ".p12", ".pfx")):
            violations.add(f"kafka.{name}", f"is not a PEM file: {_STORE}")
