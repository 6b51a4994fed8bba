"""Some fields of a record's schema in Avro as a schema of their own."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from keyrange.formats.avro.schemas import full_name

_NAMED: Final = ("record", "error", "enum", "fixed")


def with_fields(record: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
    """A record's schema with the fields of these names alone. A type that a field is of by its name
    may be defined in one that is left out: it is where it is used first now."""
    types = _Types()
    full, namespace = full_name(record, "")
    for field in record["fields"]:
        types.collect(field["type"], namespace)
    kept = [
        {**each, "type": types.written(each["type"], namespace)}
        for each in record["fields"]
        if each["name"] in names
    ]
    return {**record, "name": full, "fields": kept}


class _Types:
    """The named types of a schema, and which of them were written."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[dict[str, Any], str]] = {}
        self._written: set[str] = set()

    def collect(self, said: Any, namespace: str) -> None:
        if isinstance(said, list):
            for each in said:
                self.collect(each, namespace)
        elif isinstance(said, dict) and said.get("type") in _NAMED:
            full, namespace = full_name(said, namespace)
            self._known[full] = said, namespace
            for field in said.get("fields", ()):
                self.collect(field["type"], namespace)
        elif isinstance(said, dict):
            for inner in ("type", "items", "values"):
                self.collect(said.get(inner), namespace)

    def written(self, said: Any, namespace: str) -> Any:
        """What is said of a type, each name in it defined where it stands first."""
        if isinstance(said, list):
            return [self.written(each, namespace) for each in said]
        if isinstance(said, dict) and said.get("type") not in _NAMED:
            inner = {"type", "items", "values"} & said.keys()
            return said | {name: self.written(said[name], namespace) for name in inner}
        if isinstance(said, dict):
            return self._defined(full_name(said, namespace)[0])
        qualified = f"{namespace}.{said}" if "." not in str(said) else said
        full = next((each for each in (qualified, said) if each in self._known), None)
        return said if full is None else self._defined(full)

    def _defined(self, full: str) -> Any:
        if full in self._written:
            return full
        self._written.add(full)
        said, namespace = self._known[full]
        made = {**said, "name": full}
        if "fields" in said:
            made["fields"] = [
                {**each, "type": self.written(each["type"], namespace)} for each in said["fields"]
            ]
        return made
