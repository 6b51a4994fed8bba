"""The options about what keys and values of records are, and what they are read into."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Final, Literal

from keyrange.model.ddl import parse_ddl
from keyrange.model.value_forms import (
    BAD_COLUMN,
    CHANGES,
    FORMATS,
    RAW_COLUMNS,
    REGISTERED,
    SELF_DESCRIBED,
    Side,
    is_ddl,
    locations,
)
from keyrange.options.commits import path_mistake
from keyrange.options.option import GivenOptions, option, text_option
from keyrange.options.registry import RegistrySettings
from keyrange.options.value_parsers import Violations, name_up_to, one_of, path_or_uri

_SCHEMA: Final = (
    "json: the columns, as DDL, or a JSON Schema. avro: a schema as JSON. protobuf: a "
    "FileDescriptorSet in base64, or the source of a .proto file. connect: the columns, as DDL, or "
    "an Avro schema. debezium: the columns of the captured table, as DDL, or the envelope's Avro "
    "schema."
)
_FILES: Final = "Of protobuf it is a .proto file, or a FileDescriptorSet as protoc writes it."
_SCHEMA_VALUES: Final = "DDL such as id bigint, name string; or a schema in the format's own form"


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueOptions:
    """What keys and values are. Of formats whose schemas are columns, a schema is Spark's JSON of
    them."""

    format: str = option(
        "valueFormat",
        one_of("raw", *FORMATS),
        "What the values of records are. The tasks that read them turn them into the type of "
        "valueSchema, and the column value has that type; keyrange.job without a function makes "
        "a column of each field. string: UTF-8. json: objects, as Spark's from_json reads them. "
        "connect: what the converters of Kafka Connect write. debezium: changes of tables, which "
        "keyrange.job without a function merges into a table with keys.",
        default="raw",
    )
    schema: str = text_option(
        "valueSchema",
        str,
        f"What values are read into. {_SCHEMA}",
        values=_SCHEMA_VALUES,
    )
    location: str = text_option(
        "valueSchema.location",
        path_or_uri,
        "A file that holds valueSchema, for all that have the same one. The driver reads it once, "
        f"when the query starts, with the settings objectStore.NAME. {_FILES} Of "
        "avro other files may follow, separated by commas: schemas by which values were written "
        "that name them in Avro's single-object header.",
    )
    message: str = text_option(
        "valueMessage",
        name_up_to(1000),
        "The message of valueSchema that values are, with valueFormat=protobuf; the first one "
        "without it.",
        values="its name, with or without its package",
    )
    key_format: str = option(
        "keyFormat",
        one_of("raw", *(each for each in FORMATS if each not in CHANGES)),
        "What the keys of records are, as valueFormat. Key ranges and state keep to the bytes.",
        default="raw",
    )
    key_schema: str = text_option(
        "keySchema",
        str,
        "What keys are read into, as valueSchema.",
        values=_SCHEMA_VALUES,
    )
    key_location: str = text_option(
        "keySchema.location",
        path_or_uri,
        "A file that holds keySchema, as valueSchema.location.",
    )
    key_message: str = text_option(
        "keyMessage",
        name_up_to(1000),
        "The message of keySchema that keys are, as valueMessage.",
        values="its name, with or without its package",
    )
    bad: Literal["null", "fail", "deadLetter", "column"] = option(
        "badValues",
        one_of("null", "fail", "deadLetter", "column"),
        "What keyrange does with a record whose key or value does not fit its schema. null: its "
        "columns are null. fail: the batch fails, and names it. deadLetter: it goes to the dead "
        "letters, and later records of its key do not wait for it; for keyrange.job, with "
        "deadLetterTable or commitTable. column: its columns are null, and column "
        f"{BAD_COLUMN} says why.",
        default="fail",
    )
    rescued: str = text_option(
        "rescuedData",
        name_up_to(200),
        "A column with what of a value valueSchema has no place for, as JSON text: fields that it "
        "lacks.",
    )
    time_zone: str = text_option(
        "timeZone",
        name_up_to(100),
        "The zone of times in JSON values that name none. Without it keyrange.job takes "
        "spark.sql.session.timeZone, and a DataFrame UTC.",
        values="such as Europe/Berlin or +02:00",
    )

    def form(self, side: Side) -> tuple[str, str, str, str]:
        """The format of keys or values; of their schema the text, the file, the message."""
        if side == "key":
            return self.key_format, self.key_schema, self.key_location, self.key_message
        return self.format, self.schema, self.location, self.message

    @property
    def typed(self) -> bool:
        """Whether a column is read into something else than its bytes."""
        return bool(self.read_columns)

    @property
    def read_columns(self) -> tuple[Side, ...]:
        """The columns that are read into something else than their bytes."""
        return tuple(side for side in ("key", "value") if self.form(side)[0] != "raw")


def choose_values(
    given: GivenOptions,
    columns: Collection[str],
    dead_letter_table: str,
    registry: RegistrySettings,
    violations: Violations,
) -> ValueOptions:
    """The formats of keys and values; `columns` are those of the source."""
    chosen = given.settings(ValueOptions)
    # Of what was given and is wrong, what follows from its lack is not said too.
    has = bool(registry.urls) or given.names("schemaRegistry.url")
    schema, key_schema = (
        "" if _is_wrong(given, side) else _schema(side, *chosen.form(side), has, violations)
        for side in ("value", "key")
    )
    if not chosen.typed:
        # One with a default may stay in a file of options.
        said = {"badValues": chosen.bad != "fail", "rescuedData": chosen.rescued}
        for name, is_said in (said | {"timeZone": chosen.time_zone}).items():
            if is_said:
                violations.add(name, "needs valueFormat or keyFormat")
    if chosen.bad == "deadLetter" and not dead_letter_table:
        violations.add("badValues", "is deadLetter, which needs deadLetterTable or commitTable")
    taken = {name.lower() for name in columns} | {BAD_COLUMN, *RAW_COLUMNS.values()}
    if chosen.rescued.lower() in taken:
        violations.add("rescuedData", f"is {chosen.rescued}, a column that there is already")
    return replace(chosen, schema=schema, key_schema=key_schema)


def _is_wrong(given: GivenOptions, side: str) -> bool:
    names = (f"{side}Format", f"{side}Schema")
    return any(given.names(each) and not given.has(each) for each in names)


def _schema(
    side: str,
    form: str,
    text: str,
    location: str,
    message: str,
    has_registry: bool,
    violations: Violations,
) -> str:
    """The schema of keys or values, of those that are DDL as Spark's JSON; "" where a registry or a
    file says it."""
    name = f"{side}Schema"
    if message and form != "protobuf":
        violations.add(f"{side}Message", f"needs {side}Format=protobuf")
    if form in ("raw", "string"):
        for option_name, given in ((name, text), (f"{name}.location", location)):
            if given:
                what = f"needs {side}Format=json, avro, protobuf, connect or debezium"
                violations.add(option_name, what)
        return ""
    if location:
        named = locations(form, location)
        for mistake in filter(None, map(path_mistake, named)):
            violations.add(f"{name}.location", mistake)
        if has_registry and len(named) > 1:
            what = "names one file: a registry has the schemas by which values were written"
            violations.add(f"{name}.location", what)
        if text:
            violations.add(f"{name}.location", f"is not for a query with {name}: give one of them")
    elif not text:
        is_registered = has_registry and form in REGISTERED
        if form not in SELF_DESCRIBED and not is_registered:
            what = f"needs {name} or {name}.location: what {side}s are read into"
            if form in REGISTERED:
                what += "; or schemaRegistry.url, where a registry has the schemas"
            violations.add(f"{side}Format", what)
    elif is_ddl(form, text):
        with violations.collecting(name):
            return json.dumps(parse_ddl(text))
    return text
