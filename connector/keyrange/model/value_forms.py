"""How keys and values are read, as options say it and tasks are told it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final, Literal

Side = Literal["key", "value"]
# The formats of keys and values beside raw: each is a folder of `keyrange.formats`.
FORMATS: Final = ("string", "json", "avro", "protobuf", "connect", "debezium")
# Of these the values say what becomes of rows.
CHANGES: Final = ("debezium",)
# In these columns are written.
WRITTEN: Final = ("json", "avro", "protobuf")
# Of these a registry may have the schemas.
REGISTERED: Final = ("avro", "protobuf", "json", "connect", "debezium")
# Of these the records may bring it with them.
SELF_DESCRIBED: Final = ("connect", "debezium")
# Types that are used again and again make columns without end out of a short text.
COLUMNS_MAX: Final = 10_000
# The column of what could not be read, with badValues=column.
BAD_COLUMN: Final = "_bad_value"
# The columns with the bytes of keys and values that are read, where dead letters may need them.
RAW_COLUMNS: Final[Mapping[str, str]] = {"key": "_raw_key", "value": "_raw_value"}
# Of rows that changes leave, beside the rows' own columns: whether a row deletes its key, and the
# names of the columns that it leaves as they are.
DELETED: Final = "_keyrange_deleted"
KEPT: Final = "_keyrange_kept"


def is_ddl(form: str, text: str) -> bool:
    """Whether a schema's text is DDL of columns: a JSON Schema is a JSON object, and so is an Avro
    schema, which some formats have too."""
    return form in ("json", *SELF_DESCRIBED) and not text.lstrip().startswith("{")


def locations(form: str, named: str) -> list[str]:
    """The files that an option names: where payloads may say by which schema they were written,
    several."""
    return [each.strip() for each in named.split(",")] if form == "avro" else [named]


def raw_column(column: str, names: Collection[str]) -> str:
    """Which of the columns of records has keys or values as Kafka has them: one of its own where
    they were read and this is kept, else the column itself."""
    raw = RAW_COLUMNS.get(column, column)
    return raw if raw in names else column


@dataclass(frozen=True, slots=True)
class Schema:
    """How a format lays its bytes out, as its own tools write it.

    `text` is Avro's JSON, the source of a .proto file or a FileDescriptorSet in base64, a JSON
    Schema, or Spark's JSON of columns. `message` names one of several that a text defines.
    `references` are other texts by the names under which this one uses them, each behind those that
    it uses itself.
    """

    text: str
    message: str = ""
    references: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class ReadSettings:
    """`time_zone` is that of times that name none. With `rescues` a decoder also answers with what
    the reader's schema has no place for."""

    time_zone: str = "UTC"
    rescues: bool = False


class UnfitSchema(ValueError):
    """A schema that its format does not read, or that another cannot be resolved to. The text says
    which part of it, and why."""


@dataclass(frozen=True, slots=True)
class ColumnForm:
    """How one column of bytes is read: `column` is key or value, `schema` the reader's.

    `framed`: each payload says by which schema of a registry it was written. `schema_id` is the
    reader's own there, None where an option says it. Of others a payload may say that it was
    written by one of `writers`.
    """

    column: Side
    format: str
    schema: Schema
    settings: ReadSettings
    framed: bool = False
    schema_id: int | str | None = None
    writers: tuple[Schema, ...] = ()


@dataclass(frozen=True, slots=True)
class WrittenForm:
    """How keys or values are written: `column` is key or value. Each payload begins with `prefix`,
    which says its schema."""

    column: Side
    format: str
    schema: Schema
    prefix: bytes = b""


@dataclass(frozen=True, slots=True)
class RowsForm:
    """Values that are changes are read as the rows after them, each by its `keys`. `key` says how
    the records' keys are read, which have these columns."""

    keys: tuple[str, ...]
    key: ColumnForm


@dataclass(frozen=True, slots=True)
class ValueForms:
    """The columns that are read; the others stay as they are. `bad` is what comes of a record that
    cannot be read: null, fail, deadLetter or column. `rescued` names a column for what schemas have
    no place for. `rows`: as what changes are read; None for as changes. With `keeps_bytes` columns
    `RAW_COLUMNS` have what was read."""

    columns: tuple[ColumnForm, ...] = ()
    bad: str = "fail"
    rescued: str = ""
    rows: RowsForm | None = None
    keeps_bytes: bool = False

    @property
    def changes(self) -> ColumnForm | None:
        """That of values that are changes of rows."""
        found = (each for each in self.columns if each.column == "value" and each.format in CHANGES)
        return next(found, None)


# Every column as its bytes.
RAW: Final = ValueForms()
