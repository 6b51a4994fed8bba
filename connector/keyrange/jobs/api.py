"""`keyrange.job`: a job that is given to the source, and runs in the tasks that read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, Final, Literal

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType

from keyrange.errors import error, invalid_options
from keyrange.formats.schema_document import struct_type
from keyrange.individual_commits.each_batch import EachBatch
from keyrange.individual_commits.reported_outcomes import HIDDEN_SPARK, schema_of
from keyrange.jobs.batch_writer import JobTable, WriteIndividually, WriteWhole
from keyrange.jobs.data_source import data_source_of
from keyrange.jobs.definition import JobDefinition, pickled
from keyrange.jobs.query_table import check_checkpoint
from keyrange.jobs.table_writer import TableWriter
from keyrange.keyed_state.model.figures import OBSERVED_PREFIX
from keyrange.keyed_state.variables import State, Variable, variables_of
from keyrange.model.columns import COLUMNS, PLACE, chosen_columns
from keyrange.options import SourceOptions, parse_options
from keyrange.options.commits import path_mistake
from keyrange.options.locations import misplaced
from keyrange.options.option import OptionValue
from keyrange.source.schema import source_schema, typed_schema
from keyrange.storage.data_files import TARGET_BYTES
from keyrange.storage.directory import no_place
from keyrange.storage.locations import as_spark_names
from keyrange.storage.model.partition_columns import partition_columns
from keyrange.values.forms import in_zone, value_forms
from keyrange.work.function_signature import call_mistake
from keyrange.work.outcome_rows import HIDDEN, HIDDEN_TYPE

if TYPE_CHECKING:
    from keyrange.storage.sink_table import SinkTable

_RECORD: Final = ("key", "value", "timestamp", "headers")
_OPTIMIZED: Final = "spark.sql.extensions"


def job(
    options: Mapping[str, OptionValue],
    function: Callable[[Any], Any] | None = None,
    schema: str | StructType | None = None,
    mode: Literal["record", "arrow"] = "record",
    state: Mapping[str, State] | None = None,
) -> TableJob:
    """A job on the records of topics, which runs in the tasks that read them: no record goes to
    the JVM.

    `options` are those of the source. `function`, `schema` and `mode` as of `keyrange.process`; a
    record of `function` has the columns that `options` choose, key and value with the types that
    keyFormat and valueFormat say: `record.value.price`. With commitMode=batch a record for
    which it raises fails the batch; with individual it comes again, as with `keyrange.each_batch`.
    Without a function the records' own columns are taken, and each field of a value that has fields
    is a column.

    With `state`, variables by their names, `function` keeps state for each key of a partition. It
    is called with a record and the state of its key, `state.NAME`; in mode arrow with a batch of
    records, an array that says of each record the number of its key, and a batch with the state of
    each key, nulls where there is none, and answers with (output, new state) or (output, new state,
    which keys are cleared). It needs commitMode=individual.

    `function` is sent to the tasks by value, as cloudpickle does it. Raises INVALID_OPTIONS, and
    UNPICKLABLE_FUNCTION where it cannot be sent.
    """
    parsed = parse_options(options, "stream")
    kept = _variables(state)
    _check(parsed, function, schema, mode)
    forms = value_forms(parsed)
    parsed = replace(parsed, forms=forms)
    if kept:
        _check_state(parsed, function)
    if function is not None:
        assert schema is not None
        if (mistake := call_mistake(function, mode, bool(kept))) is not None:
            raise invalid_options([mistake])
        return TableJob(options, parsed, _table_columns(schema), mode, pickled(function), kept)
    return TableJob(options, parsed, _own_columns(parsed), "arrow")


def _check(options: SourceOptions, function: object, schema: object, mode: str) -> None:
    wrong = []
    if mode not in ("record", "arrow"):
        wrong.append(f"mode must be record or arrow, and is {mode[:40]!r}")
    if (function is None) != (schema is None):
        wrong.append("function and schema go together: the schema is that of what it answers with")
    if options.map_in_arrow is not None:
        wrong.append("option 'mapInArrow' is not for keyrange.job, which takes a function itself")
    if options.commits.transactional:
        wrong.append("keyrange.job needs commit.isolation=immediate")
    if wrong:
        raise invalid_options(wrong)


def _table_columns(schema: str | StructType) -> StructType:
    """The columns of a table, whose names differ in more than upper and lower case."""
    columns = schema_of(schema)
    names = [name.lower() for name in columns.names]
    if not names:
        raise invalid_options(["schema names no column"])
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise invalid_options([f"schema names column {twice[0]!r} twice"])
    if not_null := [a.name for a, b in zip(columns, columns.toNullable(), strict=True) if a != b]:
        text = f"column {not_null[0]!r} of schema is not nullable, and rows are not held to it"
        raise invalid_options([f"{text}: leave NOT NULL out"])
    for field in columns.jsonValue()["fields"]:
        try:
            struct_type({"fields": [field]})
        except KeyError as kind:
            text = (
                f"column {field['name']!r} of schema is of a type that a job cannot write: {kind}"
            )
            raise invalid_options([text]) from None
    return columns


def _check_types(
    table: object, checkpoint: object, moved: object, size: object, every: object, evolve: object
) -> None:
    """Of the arguments of `into` that are compared or opened before Spark sees them."""
    path, number = (str, PathLike), int
    kinds: list[tuple[str, object, Any, str]] = [
        ("table", table, path, "a path or a URI"),
        ("checkpoint", checkpoint, path, "a path or a URI"),
        ("moved_from", moved, path, "a path or a URI"),
        ("target_bytes", size, number, "a whole number"),
        ("optimize_every", every, number, "a whole number"),
    ]
    wrong = [
        f"{name} must be {what}, and is {value!r}"[:200]
        for name, value, kind, what in kinds
        if not isinstance(value, kind)
    ]
    if evolve not in ("none", "add"):
        wrong.append(f"evolve must be none or add, and is {evolve!r}"[:200])
    if wrong:
        raise invalid_options(wrong)


def _state_figures() -> list[Column]:
    kept = F.col(f"{HIDDEN}.state_work")
    names = HIDDEN_TYPE.field("state_work").type.names
    return [F.sum(kept[name]).alias(f"{OBSERVED_PREFIX}{name}") for name in names]


def _variables(state: Mapping[str, State] | None) -> tuple[Variable, ...]:
    try:
        return () if state is None else variables_of(state)
    except ValueError as failure:
        raise invalid_options([str(failure)]) from None


def _check_state(options: SourceOptions, function: object) -> None:
    wrong = []
    if function is None:
        wrong.append("state is for jobs with a function")
    if not options.commits.individual:
        wrong.append("state needs commitMode=individual")
    if options.key_ranges.split_by != "keyRange":
        wrong.append("state needs splitBy=keyRange")
    if not options.commits.keeps_order:
        wrong.append("state needs keyOrder=keep: it is made of a key's records in their order")
    if wrong:
        raise invalid_options(wrong)


def _own_columns(options: SourceOptions) -> StructType:
    """The columns of a table that takes records as they are, or what is in their values."""
    fields: list[StructField] = []
    for field in typed_schema(source_schema(_chosen(options)), options.forms):
        kind = field.dataType
        if field.name == "value" and isinstance(kind, StructType):
            fields += kind.fields
        else:
            fields.append(field)
    names = [field.name.lower() for field in fields]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        text = f"two columns {twice[0]!r}: see option columns, which can leave the source's out"
        raise invalid_options([f"key, value and the source's columns together have {text}"])
    return StructType(fields)


def _chosen(options: SourceOptions) -> tuple[str, ...]:
    """What a job reads: a value whose fields are columns is among it, whatever `columns` says."""
    names = chosen_columns(options.columns, options.include_headers, options.include_key_hash)
    if options.values.format == "raw":
        return names
    return tuple(name for name in COLUMNS if name in (*names, "value"))


# Options may hold secrets: they are not shown.
@dataclass(eq=False, repr=False)
class TableJob:
    """A job that is defined, and has no table yet."""

    _given: Mapping[str, OptionValue]
    _options: SourceOptions
    _schema: StructType
    _mode: str
    _function: bytes = b""
    _state: tuple[Variable, ...] = ()

    def __post_init__(self) -> None:
        if HIDDEN in self._schema.names:
            raise error("UNSUITABLE_FRAME", f"column {HIDDEN!r} is keyrange's own")
        self._given, self._schema = dict(self._given), self._schema.toNullable()

    def into(
        self,
        table: str | PathLike[str],
        checkpoint: str | PathLike[str],
        *,
        partition_by: Sequence[str] | str | None = None,
        compression: Literal["snappy", "zstd"] = "snappy",
        target_bytes: int = TARGET_BYTES,
        optimize_every: int = 0,
        moved_from: str | PathLike[str] = "",
        evolve: Literal["none", "add"] = "none",
        spark: SparkSession | None = None,
    ) -> TableWriter:
        """A query that appends the output to a Delta table, each record's once; set its trigger and
        start it.

        `table` is a path or URI and is made where there is none, partitioned by `partition_by`:
        columns of the output, or `day(c)`, `date(c)` or `hour(c)` of a timestamp c; None for what a
        table that is there is partitioned by. Executors write its files and the driver its log
        with the credentials of options `objectStore.`, or of their environments. `checkpoint` is
        the query's checkpointLocation. Every `optimize_every` batches the session's Delta runs
        OPTIMIZE; 0 for never. `moved_from`: the path that the table had when the query last ran, if
        it was moved since; another table than the query's own is refused (OTHER_TABLE).

        With `evolve="add"` the table gets the columns and nested fields of the output that it
        lacks, in the transaction of the first batch that has them; where it has type widening, also
        wider integers, and double for float. With "none" the error says what would add them.

        Raises INVALID_OPTIONS, SINK_UNSUITABLE, SINK_UNWRITABLE.
        """
        from keyrange.storage.sink_table import SinkTable

        _check_types(table, checkpoint, moved_from, target_bytes, optimize_every, evolve)
        table, checkpoint, moved_from = fspath(table), fspath(checkpoint), fspath(moved_from)
        session = spark or SparkSession.active()
        self._check_table(session, table, checkpoint, compression, target_bytes, optimize_every)
        storage = self._options.commits.revealed_storage()
        # As Spark's own partitionBy takes one name too.
        names = [partition_by] if isinstance(partition_by, str) else partition_by
        columns = None if names is None else partition_columns(names)
        output = to_arrow_schema(self._schema, timezone="UTC")
        sink = SinkTable(table.rstrip("/"), output, storage, columns, evolves=evolve == "add")
        verdicts = as_spark_names(self._options.commits.verdict_directory, checkpoint)
        check_checkpoint(checkpoint, verdicts, sink, moved_from, storage)
        sink.prepare()
        definition = self._definition(sink, compression, target_bytes, session)
        # Who writes the log calls no function.
        written = JobTable(
            replace(definition, function=b""), storage, optimize_every, moved_from, sink.evolves
        )
        source = data_source_of(definition)
        session.dataSource.register(source)
        rows = session.readStream.format(source.name()).options(**self._given).load()
        done, file = F.col(f"{HIDDEN}.done"), F.col(f"{HIDDEN}.file")
        counted = rows.observe(
            "keyrange",
            F.sum(done.records).alias("records"),
            F.sum(file.rows).alias("rows"),
            F.count(file).alias("files"),
            F.sum(file.size_bytes).alias("bytes"),
            *(self._state and _state_figures()),
        )
        write: Any = WriteWhole(written, checkpoint)
        if self._options.commits.individual:
            write = EachBatch(
                WriteIndividually(written), self._options, checkpoint, looks_late=True
            )
        writer = counted.writeStream.foreachBatch(write)
        return TableWriter(writer.option("checkpointLocation", checkpoint))

    def _check_table(
        self,
        spark: SparkSession,
        table: str,
        checkpoint: str,
        compression: str,
        target_bytes: int,
        every: int,
    ) -> None:
        wrong = []
        for name, path in (("table", table), ("checkpoint", checkpoint)):
            if (mistake := path_mistake(path)) is not None:
                wrong.append(f"{name} {mistake}")
        wrong += misplaced(table, checkpoint, self._options.commits, self._options.members)
        if (why := no_place(table)) is not None:
            wrong.append(f"table must be a Delta table or an empty directory, and {why}")
        if compression not in ("snappy", "zstd"):
            wrong.append("compression must be snappy or zstd")
        if target_bytes < 1 << 20:
            wrong.append("target_bytes must be at least 1 MiB")
        if every < 0:
            wrong.append("optimize_every must be a number of batches, or 0 for never")
        if every > 0 and "delta" not in (spark.conf.get(_OPTIMIZED, "") or "").lower():
            wrong.append(
                "optimize_every needs delta-spark in the session, whose spark.sql.extensions "
                "name io.delta.sql.DeltaSparkSessionExtension"
            )
        if wrong:
            raise invalid_options(wrong)

    def _definition(
        self, sink: SinkTable, codec: str, target_bytes: int, spark: SparkSession
    ) -> JobDefinition:
        needed = {*_chosen(self._options), *PLACE}
        if self._options.commits.individual:
            # What is given up is kept as it was.
            needed.update(_RECORD)
        return JobDefinition(
            sink.uri,
            self._schema.json(),
            StructType([]).add(HIDDEN, HIDDEN_SPARK).json(),
            self._mode,
            tuple(name for name in COLUMNS if name in needed),
            self._function,
            sink.partition_by,
            codec,
            target_bytes,
            self._state,
            # Spark's from_json takes the session's zone too.
            in_zone(self._options, spark.conf.get("spark.sql.session.timeZone") or "UTC"),
        )
