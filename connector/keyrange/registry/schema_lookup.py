"""The schemas of a registry as a process that reads records sees them: each is asked for once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from keyrange.options.registry import RegistrySettings
from keyrange.registry.client import RegistryClient, UnknownToRegistry
from keyrange.registry.host_cache import HostCache, host_cache
from keyrange.registry.registered_schemas import RegisteredSchema, SchemaId

# An id that was not known may be by now: a registry may hear of new schemas late.
_UNKNOWN_S: Final = 60.0
_UNKNOWN_MAX: Final = 100_000


class Schemas:
    """Finds schemas in this process, then on this host, then in the registry. The reader's own is
    known from the start."""

    def __init__(
        self,
        client: RegistryClient,
        cache: HostCache,
        reader: RegisteredSchema,
        wait_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._cache = cache
        self._wait_s = wait_s
        self._clock = clock
        self._found: dict[SchemaId, RegisteredSchema] = {}
        self._unknown: dict[SchemaId, float] = {}
        self._lock = threading.Lock()
        if reader.id is not None:
            self._found[reader.id] = reader

    def find(self, id: SchemaId) -> RegisteredSchema | None:
        """None where the registry has none of this id. Raises what `RegistryClient` raises."""
        with self._lock:
            found = self._found.get(id)
            if found is None and not self._is_unknown(id):
                found = self._cache.read(id) or self._fetched(id)
                if found is None:
                    self._note_unknown(id)
                else:
                    self._found[id] = found
            return found

    def _fetched(self, id: SchemaId) -> RegisteredSchema | None:
        with self._cache.alone(id, self._wait_s):
            # Another process may have fetched it meanwhile.
            if (found := self._cache.read(id)) is not None:
                return found
            try:
                found = self._client.schema(id)
            except UnknownToRegistry:
                return None
            self._cache.write(id, found)
            return found

    def _is_unknown(self, id: SchemaId) -> bool:
        return self._clock() < self._unknown.get(id, float("-inf"))

    def _note_unknown(self, id: SchemaId) -> None:
        if len(self._unknown) >= _UNKNOWN_MAX:
            self._unknown.clear()
        self._unknown[id] = self._clock() + _UNKNOWN_S


@lru_cache(maxsize=16)
def schemas_of(settings: RegistrySettings, reader: RegisteredSchema) -> Schemas:
    """Those of a registry in this process, for all decoders of a reader's schema."""
    wait_s = settings.request_timeout_ms / 1000 * settings.tries
    return Schemas(RegistryClient(settings), host_cache(settings, reader), reader, wait_s)
