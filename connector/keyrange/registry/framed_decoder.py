"""What stands between the payloads of a registry's serializers and the decoder of a format: it
reads which schema each was written with, and hands the rest to a decoder for that schema."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from keyrange.formats.format import Format
from keyrange.formats.grouped_rows import Group, together
from keyrange.formats.left_out import fields_beyond, tell
from keyrange.formats.payloads import BadRows, Decoder, Numbers, Payloads, ReadValues
from keyrange.model.value_forms import ReadSettings, Schema, Side, UnfitSchema
from keyrange.registry.prefixes import (
    BadPrefix,
    Prefix,
    common_prefix,
    prefix_sizes,
    read_prefix,
)
from keyrange.registry.registered_schemas import RegisteredSchema, SchemaId
from keyrange.registry.schema_lookup import Schemas

_Array = np.ndarray[Any, Any]
_DECODERS_MAX: Final = 1_000
_NO_HEADERS: Final = "; a schema that is said by a header is read with includeHeaders=true"


class FramedDecoder:
    """A `Decoder` whose payloads say their own schemas, as those of a registry's serializers do. A
    batch of one schema, as most are, is read by one decoder where it lies. `reader` is what
    `reader_schema` said on the driver.

    `read` raises what `Schemas.find` raises: a registry that is away is no bad value.
    """

    def __init__(
        self,
        schemas: Schemas,
        reader: RegisteredSchema,
        format: Format,
        settings: ReadSettings,
        column: Side = "value",
    ) -> None:
        self.type: pa.DataType = format.type_of(reader.schema, settings)
        self._schemas = schemas
        self._reader = reader
        self._format = format
        self._settings = settings
        self._header = f"__{column}_schema_id"
        self._indexed = reader.type == "PROTOBUF"
        self._decoders: dict[bytes, Decoder | str] = {}

    def read(self, payloads: Payloads, headers: pa.ListArray | None = None) -> ReadValues:
        """`headers` are those of the records, list<struct<key: string, value: binary>>. The schema
        of a record with header __value_schema_id, of a key with __key_schema_id, is said there, and
        nothing stands before its payload."""
        told = _last_of_name(headers, self._header)
        if told is None and (prefix := common_prefix(payloads, self._indexed)) is not None:
            return self._read_alike(payloads.behind(len(prefix)), prefix)
        sizes = prefix_sizes(payloads, self._indexed)
        prefixes = Payloads(
            payloads.data, payloads.starts, payloads.starts + sizes, payloads.present & (sizes > 0)
        ).array()
        if told is not None:
            prefixes = pc.if_else(pa.array(payloads.present), pc.coalesce(told, prefixes), None)
            sizes = np.where(told.is_valid().to_numpy(zero_copy_only=False), 0, sizes)
        behind = payloads.behind(sizes)
        groups = [
            Group(rows, self._read_alike(behind.take(rows), prefix))
            for rows, prefix in _alike(prefixes)
        ]
        none = payloads.present & ~prefixes.is_valid().to_numpy(zero_copy_only=False)
        more = "" if headers is not None else _NO_HEADERS
        groups.append(self._without_prefix(payloads, np.flatnonzero(none), more))
        return together(groups, len(payloads), self.type, self._settings.rescues)

    def _read_alike(self, payloads: Payloads, prefix: bytes) -> ReadValues:
        """Payloads without their prefixes, which are all the same."""
        decoder = self._decoders.get(prefix)
        if decoder is None:
            decoder = self._decoder(prefix)
        if not isinstance(decoder, str):
            return decoder.read(payloads)
        bad = np.flatnonzero(payloads.present).tolist()
        return self._all_null(len(payloads), dict.fromkeys(bad, decoder))

    def _decoder(self, prefix: bytes) -> Decoder | str:
        """For payloads with this prefix; a text that says why there is none."""
        try:
            said = read_prefix(prefix, self._indexed)
        except BadPrefix as failure:
            return f"header {self._header}: {failure}"
        found = self._schemas.find(said.id)
        if found is None:
            # Not kept: the registry may know it later.
            return f"schema {said.id} is not known to the registry"
        if len(self._decoders) >= _DECODERS_MAX:
            self._decoders.clear()
        decoder = self._decoders[prefix] = self._made(found, said)
        return decoder

    def _made(self, found: RegisteredSchema, said: Prefix) -> Decoder | str:
        if found.type != self._reader.type:
            return f"schema {said.id} is of type {found.type}, and {self._reader.type} is read"
        try:
            writer = found.schema
            if self._indexed:
                format: Any = self._format
                writer = replace(writer, message=format.message_at(writer, said.indexes))
            decoder = self._format.decoder(self._reader.schema, writer, self._settings)
        except UnfitSchema as failure:
            return f"schema {said.id} cannot be read as the columns: {failure}"
        self._tell_of_others(said.id, writer)
        return decoder

    def _tell_of_others(self, id: SchemaId, writer: Schema) -> None:
        """Of fields that came into the subject since the query began. Whoever gave the schema of
        the columns chose among them, and who rescues loses none."""
        if self._reader.id in (None, id) or self._settings.rescues:
            return
        # What is skipped need not have a type that columns have.
        with suppress(UnfitSchema):
            fields = fields_beyond(self._format.type_of(writer, self._settings), self.type)
            text = self._reader.schema.text
            # A name that the columns' schema has is an alias of Avro's.
            others = [each for each in fields if f'"{each.rpartition(".")[2]}"' not in text]
            tell(f"schema {id} of the registry has", tuple(others))

    def _without_prefix(self, payloads: Payloads, rows: Numbers, more: str) -> Group:
        bad: dict[int, str] = {}
        for at, row in enumerate(rows.tolist()):
            try:
                read_prefix(payloads.row(row) or b"", self._indexed)
            except BadPrefix as failure:
                bad[at] = f"{failure}{more}"
        return Group(rows, self._all_null(len(rows), bad))

    def _all_null(self, count: int, bad: BadRows) -> ReadValues:
        rescued = pa.nulls(count, pa.string()) if self._settings.rescues else None
        return ReadValues(pa.nulls(count, self.type), bad, rescued)


def _last_of_name(headers: pa.ListArray | None, name: str) -> pa.BinaryArray | None:
    """For each record the value of the last of its headers of a name that have one, null where none
    has; None where this holds for all records."""
    if headers is None:
        return None
    entries = headers.flatten()
    if not len(entries):
        return None
    named = pc.and_(pc.equal(entries.field("key"), name), entries.field("value").is_valid())
    named = pc.fill_null(named, False)
    at = np.flatnonzero(named.to_numpy(zero_copy_only=False))
    if not len(at):
        return None
    last = np.full(len(headers), -1, np.int64)
    last[pc.list_parent_indices(headers).to_numpy()[at]] = at
    return entries.field("value").take(pa.array(last, mask=last < 0))


def _alike(prefixes: pa.BinaryArray) -> Iterator[tuple[Numbers, bytes]]:
    """The rows of each prefix, in order; nulls have none."""
    encoded = prefixes.dictionary_encode()
    codes = pc.fill_null(encoded.indices, len(encoded.dictionary)).to_numpy()
    order = np.argsort(codes, kind="stable")
    ends = np.searchsorted(codes[order], np.arange(len(encoded.dictionary)), "right")
    begin = 0
    for end, prefix in zip(ends.tolist(), encoded.dictionary.to_pylist(), strict=True):
        yield order[begin:end], prefix
        begin = end
