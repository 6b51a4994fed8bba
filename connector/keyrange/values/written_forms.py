"""How keys and values are written: what arguments and options say of it, made whole on the driver.

As of what is read, tasks are told the forms and ask nobody.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from keyrange.errors import error
from keyrange.formats.format import WrittenFormat, written_format_of
from keyrange.model.value_forms import Schema, Side, WrittenForm

if TYPE_CHECKING:
    import pyarrow as pa

    from keyrange.options.registry import RegistrySettings
    from keyrange.options.topic_options import TopicValues


def written_form(
    side: Side,
    kind: pa.DataType,
    written: TopicValues,
    topic: str,
    storage: Mapping[str, str],
) -> WrittenForm:
    """The form of keys or values, whose columns are of type `kind`, in a topic, "" of one that rows
    name. `storage` are settings of the object store with a file that has the schema.

    Raises UnfitSchema, INVALID_OPTIONS for a file, and what the registry does.
    """
    name, text, location, message = written.values.form(side)
    format_ = written_format_of(name)
    if name == "json":
        return WrittenForm(side, name, format_.schema_of(kind))
    if location:
        from keyrange.values.schema_files import schema_in

        text = schema_in(side, name, location, storage)
    schema = Schema(text, message) if text else None
    if written.registry.urls:
        subject = written.subject(side, topic)
        schema, prefix = _registered(name, format_, schema, message, kind, written, subject)
    else:
        assert schema is not None
        prefix = b"" if written.encoding == "binary" else format_.own_prefix(schema)
    return WrittenForm(side, name, format_.told(schema), prefix)


def _registered(
    name: str,
    format_: WrittenFormat,
    given: Schema | None,
    message: str,
    kind: pa.DataType,
    written: TopicValues,
    subject: str,
) -> tuple[Schema, bytes]:
    """The schema, and what stands before each payload."""
    from keyrange.registry.prefixes import prefix_of
    from keyrange.registry.subjects import schema_id

    settings: RegistrySettings = written.registry
    if given is None and not written.registers:
        schema, id = _latest(settings, subject, name)
        schema = replace(schema, message=message)
    else:
        schema = given or format_.schema_of(kind)
        # Who has columns that do not fit registers nothing.
        format_.encoder(kind, format_.told(schema), b"")
        text = format_.registered(schema)
        id = schema_id(settings, subject, name, text, registers=written.registers)
    indexes: tuple[int, ...] = ()
    if name == "protobuf":
        indexed: Any = format_
        indexes = indexed.indexes_of(schema)
    return schema, prefix_of(id, indexes)


def _latest(settings: RegistrySettings, subject: str, name: str) -> tuple[Schema, int]:
    from keyrange.registry.subjects import reader_schema

    found = reader_schema(settings, subject, name)
    if not isinstance(found.id, int):
        text = "the registry does not say the number of the latest schema"
        raise error("REGISTRY_ANSWER_UNFIT", text, subject=subject)
    return found.schema, found.id
