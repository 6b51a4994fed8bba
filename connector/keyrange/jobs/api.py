"""`keyrange.job`: a job that is given to the source, and runs in the tasks that read."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from os import PathLike, fspath
from typing import Any, Final, Literal, Unpack

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from keyrange.errors import error, invalid_options
from keyrange.individual_commits.dead_letter_sink import LettersOfWholeBatches
from keyrange.individual_commits.each_batch import EachBatch
from keyrange.individual_commits.reported_outcomes import HIDDEN_SPARK
from keyrange.jobs.batch_writer import JobTables, WriteIndividually, WriteWhole
from keyrange.jobs.data_source import data_source_of
from keyrange.jobs.definition import JobDefinition, JobFunctions, pickled
from keyrange.jobs.initial_state import InitialArgument, checked_initial
from keyrange.jobs.job_arguments import (
    check_held,
    check_job,
    check_state,
    check_types,
    parts_of_job,
    state_variables,
    time_of,
)
from keyrange.jobs.observed import observed_columns
from keyrange.jobs.output_checks import check_files, check_no_files, check_places
from keyrange.jobs.output_tables import (
    TableArguments,
    arguments_of,
    prepared,
    resolved,
    without_topics,
    written_by,
)
from keyrange.jobs.query_table import manifests_of_whole_batches
from keyrange.jobs.record_columns import columns_read, schema_without_function
from keyrange.jobs.table_schemas import Schema, table_schemas
from keyrange.jobs.table_writer import TableWriter, WithoutTable
from keyrange.jobs.topic import (
    CARRIED,
    PreparedTopic,
    Topic,
    TopicArguments,
    carried,
    prepared_topic,
)
from keyrange.keyed_state.variables import State, Variable, timer_variables
from keyrange.model.columns import COLUMNS, OFFSET, PLACE, RECORD
from keyrange.model.value_forms import ValueForms
from keyrange.options import SourceOptions, parse_options
from keyrange.options.option import OptionValue
from keyrange.storage.data_files import TARGET_BYTES
from keyrange.storage.locations import as_spark_names
from keyrange.values.forms import in_zone, rows_after, value_forms
from keyrange.windowing.operators import Operator
from keyrange.work.function_signature import call_mistake
from keyrange.work.job_time import EventTime, JobTime, ProcessingTime
from keyrange.work.model.output_table import OutputTable
from keyrange.work.outcome_rows import HIDDEN

Path = str | PathLike[str]
Columns = Sequence[str] | str
Evolve = Literal["none", "add"]

_log = logging.getLogger(__name__)
_RECORD: Final = (*RECORD, "headers")


def job(
    options: Mapping[str, OptionValue],
    function: Callable[..., Any] | Operator | None = None,
    schema: Schema | Mapping[str, Schema] | None = None,
    mode: Literal["record", "arrow"] = "record",
    state: Mapping[str, State] | None = None,
    time: EventTime | ProcessingTime | None = None,
    on_timer: Callable[..., Any] | None = None,
    initial_state: DataFrame | Path | None = None,
) -> TableJob:
    """A job on the records of topics, which runs in the tasks that read them: no record goes to
    the JVM.

    `options` are those of the source. `function`, `schema` and `mode` as of `keyrange.process`; a
    record of `function` has the columns that `options` choose, with the types that keyFormat and
    valueFormat say: `record.value.price`. With commitMode=batch a record for
    which it raises fails the batch; with individual it comes again, as with `keyrange.each_batch`.
    Without a function the records' own columns are taken, and each field of a value that has fields
    is a column.

    With `state`, variables by their names, `function` keeps state for each key of a partition. It
    is called with a record and the state of its key, `state.NAME`; in mode arrow with a batch of
    records, an array that says of each record the number of its key, and a batch with the state of
    each key, nulls where there is none, and answers with (output, new state) or (output, new state,
    which keys are cleared). It needs commitMode=individual.

    With `time`, `keyrange.EventTime` or `keyrange.ProcessingTime`, functions set timers for their
    keys, `state.timers.set(at)`, and `on_timer(key, at, state)` is called when one is due, and
    answers as `function` does; in mode arrow with a batch of columns `key` and `at`, the number of
    each row's key, and the states, which have the list column `timers`. By event time a record
    may be late.

    `initial_state`, a DataFrame or the path of a Delta table, is imported before the first batch:
    a column `key`, and columns named as the variables; of windows a row for each that is open.

    With a mapping of schemas `function` answers with rows for several tables: a dictionary with a
    row, or a list of rows, for some of the names; in mode arrow with batches by their names.

    `keyrange.windows`, `keyrange.deduplicate` and `keyrange.last` stand in the place of `function`,
    and say schema and state themselves.

    `function` is sent to the tasks by value, as cloudpickle does it. Raises INVALID_OPTIONS, and
    UNPICKLABLE_FUNCTION where it cannot be sent.
    """
    parsed = parse_options(options, "stream")
    if isinstance(function, Operator):
        given = {"schema": schema, "state": state, "on_timer": on_timer}
        made, columns = parts_of_job(parsed, columns_read(parsed), function, time, **given)
        begins = checked_initial(parsed, initial_state, made.kept)
        whole = job(options, made.function, columns, "arrow", made.state, time, made.on_timer)
        again = partial(job, function=function, time=time, initial_state=initial_state)
        whole = replace(whole, _replaces=made.replaces, _only_timers=made.only_timers)
        return replace(whole, _initial=begins, _again=again)
    kept = state_variables(state)
    check_job(parsed, function, schema, mode)
    forms = value_forms(parsed)
    parsed = replace(parsed, forms=forms)
    check_state(parsed, function, bool(kept))
    goes_by = time_of(parsed, time, on_timer, mode, kept)
    if goes_by is not None:
        kept = (*kept, *timer_variables(goes_by.words))
    if function is not None:
        assert schema is not None
        if (mistake := call_mistake(function, mode, bool(kept))) is not None:
            raise invalid_options(mistake)
        functions = pickled(JobFunctions(function, on_timer))
        schemas = table_schemas(schema)
        begins = checked_initial(parsed, initial_state, state=kept)
        return TableJob(options, parsed, schemas, mode, functions, kept, goes_by, begins)
    return TableJob(options, parsed, {"": schema_without_function(parsed)}, "arrow")


# Options may hold secrets: they are not shown.
@dataclass(eq=False, repr=False)
class TableJob(WithoutTable):
    """A job that is defined, and has no table yet."""

    _given: Mapping[str, OptionValue]
    _options: SourceOptions
    _schemas: Mapping[str, StructType]
    _mode: str
    _function: bytes = b""
    _state: tuple[Variable, ...] = ()
    _time: JobTime | None = None
    _initial: InitialArgument | None = None
    _replaces: tuple[str, ...] = ()
    _only_timers: bool = False
    # Of an operator: the same job with other options.
    _again: Callable[[Mapping[str, OptionValue]], TableJob] | None = None

    def __post_init__(self) -> None:
        if any(HIDDEN in each.names for each in self._schemas.values()):
            raise error("UNSUITABLE_FRAME", f"column {HIDDEN!r} is keyrange's own")
        self._given = dict(self._given)
        self._schemas = {name: each.toNullable() for name, each in self._schemas.items()}

    def into(
        self,
        table: Path | Topic | Mapping[str, Path | Topic],
        checkpoint: str | PathLike[str],
        *,
        partition_by: Columns | Mapping[str, Columns] | None = None,
        compression: Literal["snappy", "zstd"] = "snappy",
        target_bytes: int = TARGET_BYTES,
        optimize_every: int = 0,
        moved_from: Path | Mapping[str, Path] = "",
        evolve: Evolve | Mapping[str, Evolve] = "none",
        keys: Columns | Mapping[str, Columns] | None = None,
        deletes: str | Mapping[str, str] | None = None,
        spark: SparkSession | None = None,
    ) -> TableWriter:
        """A query that appends the output to a Delta table, each record's once, or with `keys`
        merges it; set its trigger and start it.

        `table` is a path or URI, or the name of a Delta table in the session's catalog, such as
        `main.shop.orders`. At a path it is made where there is none, partitioned by `partition_by`:
        columns of the output, or `day(c)`, `date(c)` or `hour(c)` of a timestamp c; None for what a
        table that is there is partitioned by. Executors write its files and the driver its log
        with the credentials of options `objectStore.`, or of their environments. `checkpoint` is
        the query's checkpointLocation. Every `optimize_every` batches the session's Delta runs
        OPTIMIZE; 0 for never. `moved_from`: the path that the table had when the query last ran, if
        it was moved since; another table than the query's own is refused (OTHER_TABLE).

        With `evolve="add"` the table gets the columns and nested fields of the output that it
        lacks, in the transaction of the first batch that has them; where it has type widening, also
        wider integers, and double for float. With "none" the error says what would add them. A job
        without a function also adds fields that come into the schema of a registry, or of the
        records, while the query runs.

        With `keys`, columns of the output, the table holds the last row of each key, by the offsets
        of the records. A row whose boolean column `deletes` is true deletes its key, and so does a
        record without a value where there is no function; the column is not in the table. Values
        that are changes of rows (valueFormat=debezium) say by themselves what they delete. The
        driver merges; the session's Delta does where that is too much, or the table has rules.

        A job with several schemas has a mapping with the path of each table, and each argument of a
        table may be a mapping too. A `keyrange.Topic` may stand in the place of a table.

        Raises INVALID_OPTIONS, SINK_UNSUITABLE, SINK_UNWRITABLE.
        """
        check_types(checkpoint, target_bytes, optimize_every)
        topics, table = without_topics(list(self._schemas), table)
        check_no_files(topics if not table else {}, compression, target_bytes, optimize_every)
        given = arguments_of(
            [name for name in self._schemas if name not in topics],
            table,
            partition_by=partition_by,
            moved_from=moved_from,
            evolve=evolve,
            keys=keys,
            deletes=deletes,
        )
        checkpoint = fspath(checkpoint)
        session = spark or SparkSession.active()
        given = resolved(given, session)
        whole = self._copying() if topics else self
        return whole._with_rows(given)._into(
            given, topics, checkpoint, compression, target_bytes, optimize_every, session
        )

    def into_topic(
        self,
        topic: str,
        checkpoint: str | PathLike[str],
        *,
        spark: SparkSession | None = None,
        **of_topic: Unpack[TopicArguments],
    ) -> TableWriter:
        """A query that sends the output to a topic, each row once for readers of committed records:
        `into` with a `keyrange.Topic` of these arguments. Raises as `into` does,
        INVALID_TOPIC_COLUMNS, and what a first contact raises."""
        return self.into(Topic(topic, **of_topic), checkpoint, spark=spark)

    def _copying(self) -> TableJob:
        """The job that copies records to a topic, where `columns` does not say what of them."""
        if self._again is None or self._options.columns is not None:
            return self
        wanted = (*CARRIED, OFFSET) if self._options.commits.transactional else CARRIED
        copied = [name for name in wanted if name in columns_read(self._options)]
        return self._again({**self._given, "columns": ",".join(copied)})

    def _with_rows(self, given: list[TableArguments]) -> TableJob:
        """The job of a table that holds the last row of each key: values that are changes of rows
        are read as these, and columns of the source are in the table where `columns` names them."""
        keys = given[0].keys if given else None
        if self._function or keys is None:
            return self
        forms = rows_after(self._options.forms, (keys,) if isinstance(keys, str) else tuple(keys))
        if forms is self._options.forms:
            return self
        options = replace(self._options, forms=forms)
        return replace(self, _options=options, _schemas={"": schema_without_function(options)})

    def _into(
        self,
        given: list[TableArguments],
        topics: Mapping[str, Topic],
        checkpoint: str,
        compression: str,
        target_bytes: int,
        optimize_every: int,
        session: SparkSession,
    ) -> TableWriter:
        check_places(given, checkpoint, self._options)
        check_files(session, compression, target_bytes, optimize_every)
        # Spark's from_json takes the session's zone too.
        zone = session.conf.get("spark.sql.session.timeZone") or "UTC"
        forms = in_zone(self._options, zone)
        commits = self._options.commits
        storage = commits.revealed_storage()
        verdicts = as_spark_names(commits.verdict_directory, checkpoint)
        outputs = [each.output(self._schemas[each.name], not self._function) for each in given]
        if self._calls_for_batches:
            check_held(self._options, self._schemas)
        self._check_keys(outputs)
        sent = {name: self._prepared(name, each) for name, each in topics.items()}
        addresses = {name: each.address for name, each in sent.items()}
        outputs = prepared(given, outputs, session, checkpoint, verdicts, storage, addresses)
        definition = self._definition(outputs, sent, checkpoint, compression, target_bytes, forms)
        tables = JobTables(
            # Who writes the log calls no function.
            replace(definition, function=b""),
            storage,
            optimize_every,
            {each.name: fspath(each.moved_from) for each in given},
            {each.name: as_spark_names(each.uri, checkpoint) for each in definition.tables},
            sent,
        )
        source = data_source_of(definition)
        session.dataSource.register(source)
        rows = session.readStream.format(source.name()).options(**self._given).load()
        counted = rows.observe("keyrange", *observed_columns(bool(self._state)))
        write: Any = WriteWhole(tables, checkpoint, LettersOfWholeBatches(self._options))
        if self._options.commits.individual:
            individually = WriteIndividually(tables)
            write = EachBatch(
                individually, self._options, checkpoint, looks_late=True, time=self._time
            )
        writer = counted.writeStream.foreachBatch(write)
        writer = writer.option("checkpointLocation", checkpoint)
        initial = self._initial
        begin = partial(initial.begin, session, self._options, self._state) if initial else None
        return TableWriter(writer, written_by(definition.tables, sent), begin)

    def _prepared(self, name: str, topic: Topic) -> PreparedTopic:
        schema = self._schemas[name]
        if not self._function:
            schema = carried(schema, topic, self._options)
        storage = self._options.commits.revealed_storage()
        of_records = self._options.commits.transactional and self._calls_for_batches
        return prepared_topic(name, topic, schema, self._options, storage, of_records)

    @property
    def _calls_for_batches(self) -> bool:
        """Whether a function of the user's makes rows of many records at once."""
        return bool(self._function) and self._mode == "arrow" and not self._only_timers

    def _check_keys(self, outputs: list[OutputTable]) -> None:
        if self._replaces and not any(each.keys for each in outputs):
            _log.warning(
                "the job writes a row for each change: with into(..., keys=%s) the table holds the "
                "last one, and without keys it gets them all",
                [*self._replaces],
            )
        if any(each.keys for each in outputs) and not self._options.commits.keeps_order:
            raise invalid_options(
                "keys need keyOrder=keep: a record that comes again would be put over a newer "
                "row of its key"
            )

    def _definition(
        self,
        tables: list[OutputTable],
        topics: Mapping[str, PreparedTopic],
        checkpoint: str,
        codec: str,
        target_bytes: int,
        forms: ValueForms,
    ) -> JobDefinition:
        needed = {*columns_read(self._options), *PLACE}
        if self._options.commits.individual or self._options.values.bad == "deadLetter":
            # What is given up is kept as it was.
            needed.update(_RECORD)
        if any(each.is_staged for each in tables):
            needed.add("timestamp")
        if any(each.tombstones for each in tables):
            # A record without a value deletes by its key.
            needed.update(("key", "value"))
        if forms.rows is not None:
            needed.add("key")
        manifests = self._options.commits.verdict_directory
        if not self._options.commits.individual:
            manifests = manifests_of_whole_batches(checkpoint)
        return JobDefinition(
            tuple(tables),
            StructType([]).add(HIDDEN, HIDDEN_SPARK).json(),
            self._mode,
            tuple(name for name in COLUMNS if name in needed),
            self._function,
            codec,
            target_bytes,
            self._state,
            self._time,
            forms,
            manifests,
            tuple(each.output for each in topics.values()),
            self._options.commits.transactional,
        )
