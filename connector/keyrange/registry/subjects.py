"""What the driver asks a registry: at the start of a query the schema that says the columns, before
rows are written the number of the schema that stands before each."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from urllib.parse import urlsplit

from keyrange.errors import error
from keyrange.options.registry import RegistrySettings
from keyrange.options.security_properties import is_loopback
from keyrange.registry.client import RegistryClient, UnknownReference, UnknownToRegistry
from keyrange.registry.registered_schemas import SCHEMA_TYPES, RegisteredSchema

_log = logging.getLogger(__name__)


def reader_schema(
    settings: RegistrySettings, subject: str, format_name: str = "", *, again: bool = False
) -> RegisteredSchema:
    """The latest schema of a subject, with what it refers to. What a connection exposes is logged,
    where nobody in this run asks `again`.

    `format_name` is the option's word for the format that it has to be of. Raises what
    `RegistryClient` raises, REGISTRY_SUBJECT_UNKNOWN, REGISTRY_SCHEMA_UNFIT.
    """
    if not again:
        _warn_of_exposure(settings)
    try:
        found = RegistryClient(settings).latest(subject)
    except UnknownReference as failure:
        raise error("REGISTRY_SCHEMA_UNFIT", str(failure), subject=subject) from None
    except UnknownToRegistry as failure:
        raise error("REGISTRY_SUBJECT_UNKNOWN", str(failure), subject=subject) from None
    expected = SCHEMA_TYPES.get(format_name, found.type)
    if found.type != expected:
        raise error(
            "REGISTRY_SCHEMA_UNFIT",
            f"the latest schema is of type {found.type}, and {format_name} reads {expected}",
            subject=subject,
            id=found.id,
        )
    return found


def schema_id(
    settings: RegistrySettings, subject: str, format_name: str, text: str, *, registers: bool
) -> int:
    """The number of a schema in a subject, to which it is added if it `registers` and the subject
    lacks it. What a connection exposes is logged.

    Raises what `RegistryClient` raises, REGISTRY_SCHEMA_UNKNOWN, REGISTRY_SCHEMA_REFUSED.
    """
    _warn_of_exposure(settings)
    client, kind = RegistryClient(settings), SCHEMA_TYPES[format_name]
    if registers:
        return client.register(subject, kind, text)
    try:
        return client.id_in(subject, kind, text)
    except UnknownToRegistry as failure:
        raise error("REGISTRY_SCHEMA_UNKNOWN", str(failure), subject=subject) from None


def _warn_of_exposure(settings: RegistrySettings) -> None:
    for text in exposures(settings):
        _log.warning("%s", text)


def exposures(settings: RegistrySettings) -> Iterator[str]:
    """What others on the way can see or be, each with its option; nothing of loopback."""
    logs_in = bool(settings.user or settings.token)
    for each in settings.urls:
        url = urlsplit(each)
        if is_loopback(url.hostname or ""):
            continue
        if url.scheme == "http" and logs_in:
            yield (
                f"option 'schemaRegistry.url' has http for {url.netloc}: what logs in can be read "
                "on the way. Set it to https"
            )
        if url.scheme == "https" and not settings.tls.ssl_check_hostname:
            yield (
                "option 'schemaRegistry.ssl.endpoint.identification.algorithm' is empty: whoever "
                f"has any certificate of the same authority can pass for {url.netloc}. Set it to "
                "https, or leave it out"
            )
