"""What the driver asks a registry before rows are written: the number of the schema that stands
before each."""

from __future__ import annotations

import logging

from keyrange.errors import error
from keyrange.options.registry import RegistrySettings
from keyrange.registry.client import RegistryClient, UnknownToRegistry
from keyrange.registry.reader_schemas import exposures
from keyrange.registry.registered_schemas import SCHEMA_TYPES

_log = logging.getLogger(__name__)


def schema_id(
    settings: RegistrySettings, subject: str, format_name: str, text: str, *, registers: bool
) -> int:
    """The number of a schema in a subject, to which it is added if it `registers` and the subject
    lacks it. What a connection exposes is logged.

    Raises what `RegistryClient` raises, REGISTRY_SCHEMA_UNKNOWN, REGISTRY_SCHEMA_REFUSED.
    """
    for exposed in exposures(settings):
        _log.warning("%s", exposed)
    client, kind = RegistryClient(settings), SCHEMA_TYPES[format_name]
    if registers:
        return client.register(subject, kind, text)
    try:
        return client.id_in(subject, kind, text)
    except UnknownToRegistry as failure:
        raise error("REGISTRY_SCHEMA_UNKNOWN", str(failure), subject=subject) from None
