"""The options of a schema registry: where it is, what logs in, and whose schemas say columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal
from urllib.parse import urlsplit

from keyrange.model.subscription import SubscribePattern, Subscription
from keyrange.options.kafka_properties import parse_tls_options
from keyrange.options.option import GivenOptions, option, rows_of, text_option
from keyrange.options.secrets import NO_SECRET, Secret, UnseenText, parse_secret
from keyrange.options.security_properties import TlsSettings
from keyrange.options.value_parsers import Violations, duration_or_ms, int_between, not_empty

# What begins the options that are Kafka's ssl.* for connections to the registry.
REGISTRY_TLS_PREFIX: Final = "schemaregistry.ssl."
# What the names of TLS properties have before them where they are spoken of.
SHOWN_PREFIX: Final = "schemaRegistry."

_SUBJECT: Final = "the name of a subject"


def _urls(value: str) -> tuple[str, ...]:
    """Without a slash at the end. No message has the value: it might hold a password, and the path
    of one that is right a token."""
    found = [each for part in value.split(",") if (each := part.strip().rstrip("/"))]
    if not found:
        raise ValueError("must name at least one http://HOST:PORT or https://HOST:PORT")
    for each in found:
        try:
            url = urlsplit(each)
            is_address = bool(url.hostname) and url.port != 0
        except ValueError:
            raise ValueError("must be a list of URLs, separated by commas") from None
        if "@" in url.netloc:
            raise ValueError("must be without user and password: schemaRegistry.user has them")
        readable = each.isascii() and each.isprintable() and " " not in each
        if url.scheme not in ("http", "https") or url.query or url.fragment or not readable:
            is_address = False
        if not is_address:
            raise ValueError(
                "must be a list of http://HOST:PORT or https://HOST:PORT, separated by commas; "
                "where the registry's API is below a path, with it"
            )
    return tuple(map(UnseenText, dict.fromkeys(found)))


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrySettings:
    """How to reach a schema registry, and which subjects say the columns. Plain data, hashable;
    it holds secrets only as `Secret`. `urls` are empty where there is none."""

    urls: tuple[str, ...] = option(
        "schemaRegistry.url",
        _urls,
        "A schema registry that speaks Confluent's REST API; Apicurio does below /apis/ccompat/v7."
        " If one address does not answer, the next one is asked. Options schemaRegistry.ssl.* say "
        "for TLS what kafka.ssl.* do for brokers.",
        values="http://HOST:PORT or https://HOST:PORT, several by comma",
        unset=(),
    )
    user: Secret = option(
        "schemaRegistry.user",
        parse_secret,
        "Logs in at the registry (HTTP basic), together with schemaRegistry.password.",
        unset=NO_SECRET,
    )
    password: Secret = option(
        "schemaRegistry.password",
        parse_secret,
        "The password of schemaRegistry.user.",
        unset=NO_SECRET,
    )
    token: Secret = option(
        "schemaRegistry.token",
        parse_secret,
        "Logs in at the registry by a bearer token. One that is referred to is looked up for each "
        "request, so something else may keep it fresh.",
        unset=NO_SECRET,
    )
    request_timeout_ms: int = option(
        "schemaRegistry.requestTimeout",
        duration_or_ms,
        "How long one answer of the registry may take as a whole.",
        values="a time, such as 10s; a bare number is ms",
        default="10s",
    )
    tries: int = option(
        "schemaRegistry.tries",
        int_between(1, 100, "a number of tries"),
        "How often all addresses of the registry are asked, with growing pauses of 250 ms to 4 s, "
        "before the task or the start of the query fails. Only what may pass is asked again: no "
        "connection, no answer in time, HTTP status 429 and 5xx.",
        default="5",
    )
    value_subject: str = text_option(
        "valueSubject",
        not_empty,
        "The subject of the registry whose latest schema, at the start of the query, says the "
        "columns of values. Default: TOPIC-value, for a query of one topic.",
        values=_SUBJECT,
    )
    key_subject: str = text_option(
        "keySubject",
        not_empty,
        "The same for keys. Default: TOPIC-key.",
        values=_SUBJECT,
    )
    tls: TlsSettings = field(default_factory=TlsSettings)


def choose_registry(
    given: GivenOptions, tls: Mapping[str, str], violations: Violations
) -> RegistrySettings:
    """The settings of the registry; `tls` are what REGISTRY_TLS_PREFIX begins, without it."""
    ssl = {f"ssl.{name}": value for name, value in tls.items()}
    chosen = replace(
        given.settings(RegistrySettings), tls=parse_tls_options(ssl, violations, SHOWN_PREFIX)
    )
    if not given.names("schemaRegistry.url"):
        # Those with a default may stay in a file of options.
        rows = (row.name for row in rows_of(RegistrySettings) if row.default is None)
        named = [name for name in rows if given.names(name)]
        for name in (*named, *(f"{SHOWN_PREFIX}{each}" for each in ssl)):
            violations.add(name, "needs schemaRegistry.url")
        return chosen
    if ssl and chosen.urls and not any(url.startswith("https:") for url in chosen.urls):
        for each in ssl:
            violations.add(f"{SHOWN_PREFIX}{each}", "needs https in schemaRegistry.url")
    if bool(chosen.user) != bool(chosen.password):
        violations.add("schemaRegistry.user", "and schemaRegistry.password go together")
    if chosen.token and chosen.user:
        violations.add("schemaRegistry.token", "is given beside schemaRegistry.user: one logs in")
    if chosen.request_timeout_ms == 0:
        violations.add("schemaRegistry.requestTimeout", "must be longer than 0")
    return chosen


def subject_of(
    registry: RegistrySettings,
    column: Literal["key", "value"],
    subscription: Subscription,
    violations: Violations,
) -> str:
    """The subject whose schema says the columns of keys or values, as Confluent's serializers name
    it (TopicNameStrategy) unless an option does. "" and a violation where a query of several topics
    names none."""
    given = registry.value_subject if column == "value" else registry.key_subject
    if given:
        return given
    if isinstance(subscription, SubscribePattern):
        several = "subscribePattern may match several topics"
    else:
        topics = sorted(set(subscription.topics))
        if len(topics) == 1:
            return f"{topics[0]}-{column}"
        several = f"{subscription.option} names {len(topics)} topics"
    violations.add(
        f"{column}Subject",
        f"must be given: {several}, and the columns are those of one subject's schema",
    )
    return ""
