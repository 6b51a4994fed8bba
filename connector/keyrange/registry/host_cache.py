"""Schemas that some process of this host has fetched, kept for the others: a file for each.

    <private directory>/schemas/<registry>/<schema>.json

The first line of a file is the checksum of the rest. The cache only saves requests: what cannot be
read, or is not what it should be, is fetched again, and who waits for another process too long
fetches for itself. Who sweeps after executors that are gone (`ranges/sharing`) also removes
schemas to which nothing was added for a day.

Ids never change their meaning, but a registry may be made anew under its old address, as people do
who develop. So the name of its directory has the reader's schema in it, which each start of a query
asks for: a registry that answers otherwise than before has another directory.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from keyrange.model.value_forms import Schema
from keyrange.options.registry import RegistrySettings
from keyrange.ranges.sharing.locks import lock_within
from keyrange.ranges.sharing.shared_directory import (
    make_private,
    name_of,
    private_name,
    put_in_place,
    usual_settings,
)
from keyrange.registry.registered_schemas import RegisteredSchema, SchemaId

_log = logging.getLogger(__name__)

_FILE_BYTES_MAX: Final = 64 << 20
_FOLDER: Final = "schemas"


class HostCache:
    """The schemas of one registry on this host. It raises nothing: a cache that is not to be had is
    an empty one."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._name = directory.name

    def read(self, id: SchemaId) -> RegisteredSchema | None:
        """None where there is none, or no good one."""
        path = self._path(id)
        try:
            # What is in a place that others may write to says nothing.
            self._make()
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
            with open(os.open(path, flags), "rb") as file:
                content = file.read(_FILE_BYTES_MAX)
            return self._checked(content, id)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as failure:
            _log.warning("a schema is fetched again, its copy %s is no good: %s", path, failure)
            return None

    def write(self, id: SchemaId, found: RegisteredSchema) -> None:
        document = {"registry": self._name, "asked": id, **asdict(found)}
        text = json.dumps(document)
        try:
            self._make()
            put_in_place(self._path(id), f"{_sum(text.encode())}\n{text}")
        except OSError as failure:
            _log.warning("schemas are not kept on this host: %s", failure)

    @contextmanager
    def alone(self, id: SchemaId, wait_s: float) -> Iterator[None]:
        """While no other process of this host fetches a schema; none is waited for longer than
        `wait_s`."""
        try:
            self._make()
            path = self._path(id).with_suffix(".lock")
            descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as failure:
            _log.warning("schemas are not kept on this host: %s", failure)
            yield
            return
        try:
            lock_within(descriptor, fcntl.LOCK_EX, wait_s)
            yield
        finally:
            # Ids that are not known would leave a file each. Who waits for this one looks next
            # whether there is a copy; who comes later makes another file.
            path.unlink(missing_ok=True)
            os.close(descriptor)

    def _path(self, id: SchemaId) -> Path:
        return self._directory / f"{name_of(type(id).__name__, id)}.json"

    def _make(self) -> None:
        """Also again: somebody may have swept."""
        top = self._directory.parent.parent
        for each in (top, self._directory.parent, self._directory):
            make_private(each)

    def _checked(self, content: bytes, id: SchemaId) -> RegisteredSchema:
        expected, _, text = content.partition(b"\n")
        if expected.decode() != _sum(text):
            raise ValueError("its bytes are not those that were written")
        document: dict[str, Any] = json.loads(text)
        if (document["registry"], document["asked"]) != (self._name, id):
            raise ValueError("it is another schema's")
        schema = document["schema"]
        references = tuple((name, text) for name, text in schema["references"])
        made = Schema(schema["text"], schema["message"], references)
        return RegisteredSchema(document["id"], document["type"], made)


def host_cache(settings: RegistrySettings, reader: RegisteredSchema) -> HostCache:
    """That of a registry, for queries with this reader's schema."""
    host = usual_settings(0, 0)
    top = private_name(host.memory_directory or host.spill_directory)
    return HostCache(top / _FOLDER / name_of(*settings.urls, reader))


def _sum(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()
