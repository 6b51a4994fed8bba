"""Keys and values of batches of records, read as their forms say."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from keyrange.errors import error
from keyrange.formats.format import change_format_of, format_of
from keyrange.model.columns import PLACE
from keyrange.model.offsets import TopicPartition
from keyrange.model.value_forms import (
    BAD_COLUMN,
    RAW_COLUMNS,
    ColumnForm,
    RowsForm,
    UnfitSchema,
    ValueForms,
)
from keyrange.options.registry import RegistrySettings

if TYPE_CHECKING:
    from keyrange.formats.payloads import Numbers, Payloads, ReadValues


def type_of(form: ColumnForm) -> pa.DataType:
    """That of a column when it is read. Raises UnfitSchema."""
    try:
        return format_of(form.format).type_of(form.schema, form.settings)
    except UnicodeEncodeError:
        raise UnfitSchema("has a name that is not Unicode") from None


def told(form: ColumnForm) -> ColumnForm:
    """A form as tasks are told it. Raises UnfitSchema where its schema has no columns or such as
    no table has, or one of its writers does not resolve to it."""
    _check_names(type_of(form), form.column)
    format_ = format_of(form.format)
    for number, writer in enumerate(form.writers, 2):
        try:
            format_.decoder(form.schema, writer, form.settings)
        except UnfitSchema as failure:
            text = f"is not what values of schema {number} in its location can be read into"
            raise UnfitSchema(f"{text}: {failure}") from None
    return replace(form, schema=format_.told(form.schema))


def _check_names(kind: pa.DataType, path: str) -> None:
    """The same for all formats: Spark finds columns by their names in any case, and Delta has none
    that differ in it alone."""
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        inside = [kind.value_type] if pa.types.is_list(kind) else [kind.key_type, kind.item_type]
        for each in inside:
            _check_names(each, path)
    if not pa.types.is_struct(kind):
        return
    seen: dict[str, str] = {}
    for field in kind:
        name = field.name
        if name.lower() in seen:
            raise UnfitSchema(
                f"has fields {seen[name.lower()]!r} and {name!r} in {path}: Spark and Delta have "
                "no names that differ in their case alone; leave one out, or, where the format "
                "does not go by names, call it otherwise"
            )
        seen[name.lower()] = name
        _check_names(field.type, f"{path}.{name}")


def _type_in(forms: ValueForms, form: ColumnForm) -> pa.DataType:
    found = type_of(form)
    if forms.rows is None or form is not forms.changes:
        return found
    return change_format_of(form.format).rows_type(found)


def types_of(forms: ValueForms, source: Mapping[str, pa.DataType]) -> dict[str, pa.DataType]:
    """The columns of the source, in their order, with the types that they are read into, and those
    that say more of them. Raises UnfitSchema."""
    read: dict[str, pa.DataType] = {
        form.column: _type_in(forms, form) for form in forms.columns if form.column in source
    }
    found = {name: read.get(name, kind) for name, kind in source.items()}
    if forms.rescued:
        found[forms.rescued] = pa.string()
    if forms.columns and forms.bad == "column":
        found[BAD_COLUMN] = pa.string()
    if forms.keeps_bytes:
        found |= {RAW_COLUMNS[name]: pa.binary() for name in read}
    return found


class ValueReader:
    """Reads batch after batch in one task."""

    def __init__(self, forms: ValueForms, registry: RegistrySettings) -> None:
        """Raises what the registry does, where schemas are its own."""
        from keyrange.formats.payloads import Payloads

        self.bad = forms.bad
        # Of a record that is not to be gone on with.
        self.condition = "BAD_VALUE" if forms.rows is None else "BAD_CHANGE"
        self.reads_values = any(form.column == "value" for form in forms.columns)
        self._forms = forms
        self._payloads = Payloads.of
        self._decoders = {form.column: _decoder(form, registry) for form in forms.columns}
        if forms.rows is not None:
            self._key = _decoder(forms.rows.key, registry)

    def read(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, Mapping[int, str]]:
        """The batch with its columns read, and of the rows that are not to be gone on with why, by
        their numbers: names of fields and kinds, nothing of what is in them."""
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        raw = {RAW_COLUMNS[name]: columns[name] for name in self._decoders if name in columns}
        why: dict[int, str] = {}
        rescued = None
        for name, decoder in self._decoders.items():
            if name not in columns:
                continue
            found = decoder(self._payloads(columns[name]), columns.get("headers"))
            if name == "value" and self._forms.rows is not None:
                found = self._rows(self._forms.rows, found, batch)
            columns[name] = found.column
            if name == "value":
                rescued = found.rescued
            for row, text in found.bad.items():
                told = f"{name}: {text}"
                why[row] = f"{why[row]}; {told}" if row in why else told
        rows = batch.num_rows
        if self._forms.rescued:
            columns[self._forms.rescued] = (
                pa.nulls(rows, pa.string()) if rescued is None else rescued
            )
        if self._forms.bad == "column":
            columns[BAD_COLUMN] = _texts(why, rows)
        if self._forms.keeps_bytes:
            columns |= raw
        goes_on = self._forms.bad in ("null", "column")
        return pa.RecordBatch.from_pydict(columns), {} if goes_on else why

    def _rows(self, form: RowsForm, changes: ReadValues, batch: pa.RecordBatch) -> ReadValues:
        """The rows after changes."""
        assert self._forms.changes is not None
        key = self._payloads(batch.column("key"))
        headers = batch.column("headers") if "headers" in batch.schema.names else None

        def read_keys(rows: Numbers) -> ReadValues:
            own = None if headers is None else headers.take(pa.array(rows))
            return self._key(key.take(rows), own)

        present = batch.column("value").is_valid().to_numpy(zero_copy_only=False)
        format_ = change_format_of(self._forms.changes.format)
        return format_.rows(changes, present, form.keys, read_keys)

    def read_keys(self, keys: pa.Array) -> pa.Array:
        """Keys alone, as records have them; one that cannot be read is null."""
        return self.read(pa.RecordBatch.from_arrays([keys], names=["key"]))[0].column("key")

    def read_all(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with its columns read. Raises BAD_VALUE or BAD_CHANGE for the first row that is
        not to be gone on with, of a batch that says which record it is."""
        read, unreadable = self.read(batch)
        if unreadable:
            row = min(unreadable)
            topic, partition, offset = (batch.column(name)[row].as_py() for name in PLACE)
            at = TopicPartition(topic, partition)
            raise error(self.condition, unreadable[row], partition=at, offset=offset)
        return read


def reader_of(forms: ValueForms, registry: RegistrySettings) -> ValueReader | None:
    """None where all columns stay as they are."""
    return ValueReader(forms, registry) if forms.columns else None


_Decode = Callable[["Payloads", "pa.ListArray | None"], "ReadValues"]


def _decoder(form: ColumnForm, registry: RegistrySettings) -> _Decode:
    """What reads payloads, with the headers of their records where these were read."""
    format_ = format_of(form.format)
    if not form.framed:
        decoder = format_.unframed_decoder(form.schema, form.writers, form.settings)
        return lambda payloads, _: decoder.read(payloads)
    from keyrange.registry.framed_decoder import FramedDecoder
    from keyrange.registry.registered_schemas import RegisteredSchema
    from keyrange.registry.schema_lookup import schemas_of

    reader = RegisteredSchema(form.schema_id, _schema_type(form), form.schema)
    schemas = schemas_of(registry, reader)
    return FramedDecoder(schemas, reader, format_, form.settings, form.column).read


def _schema_type(form: ColumnForm) -> str:
    """What a registry calls the schemas by which these are written: those of JSON say no columns,
    which an option says."""
    from keyrange.formats.connect.format import is_avro
    from keyrange.registry.registered_schemas import SCHEMA_TYPES

    has_columns = form.format in ("connect", "debezium") and not is_avro(form.schema)
    return "JSON" if has_columns else SCHEMA_TYPES[form.format]


def _texts(why: Mapping[int, str], rows: int) -> pa.StringArray:
    if not why:
        return pa.nulls(rows, pa.string())
    return pa.array([why.get(row) for row in range(rows)], pa.string())
