"""The option table of `format("keyrange")`: names, defaults, limits and texts, once.

Validation, `conf/keyrange.toml`, `keyrange options` and the reference in the docs are made from
this table. Names are the JVM connector's where it has the option, and are not case-sensitive. All
violations are reported together, before the first connection.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from keyrange.client_options import ClientSettings, parse_client_options
from keyrange.core.checkpoint import is_topic_name, read_positions
from keyrange.core.columns import chosen_columns, parse_columns
from keyrange.core.offsets import EARLIEST, LATEST, TopicPartition
from keyrange.errors import InvalidError, invalid_options
from keyrange.parsing import Violations, boolean, int_between, size_between

Mode = Literal["batch", "stream"]

# One position for all partitions (EARLIEST, LATEST), or a position each.
PositionSpec = int | Mapping[TopicPartition, int]

_INT64_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """All options of one source, validated. Plain data; it holds secrets only as `Secret`."""

    subscribe: tuple[str, ...]
    starting_offsets: PositionSpec | None
    ending_offsets: PositionSpec
    max_offsets_per_trigger: int | None
    max_bytes_per_trigger: int | None
    min_partitions: int | None
    bytes_per_task: int
    min_tasks: int
    include_headers: bool
    columns: tuple[str, ...] | None
    filter_pushdown: bool
    fail_on_data_loss: bool
    max_batch_rows: int
    max_batch_bytes: int
    max_record_batch_bytes: int
    poll_timeout_ms: int
    client: ClientSettings

    @property
    def chosen_columns(self) -> tuple[str, ...]:
        """The columns of the DataFrame, in the source's order."""
        return chosen_columns(self.columns, self.include_headers)


@dataclass(frozen=True, slots=True)
class Option:
    """One row. `default` is the text that stands for "not given"; None means that there is none."""

    name: str
    field: str
    default: str | None
    modes: tuple[Mode, ...]
    parse: Callable[[str], Any]
    values: str
    doc: str


def _topics(value: str) -> tuple[str, ...]:
    topics = tuple(dict.fromkeys(filter(None, (part.strip() for part in value.split(",")))))
    if not topics:
        raise ValueError("must name at least one topic")
    for topic in topics:
        if not is_topic_name(topic):
            raise ValueError(f"must hold names of topics, and '{topic}' cannot be one")
    return topics


def _positions(value: str) -> PositionSpec:
    folded = value.strip().lower()
    if folded in ("earliest", "latest"):
        return EARLIEST if folded == "earliest" else LATEST
    try:
        return read_positions(json.loads(value))
    except (json.JSONDecodeError, RecursionError):
        raise ValueError(
            'must be earliest, latest, or JSON such as {"topicA": {"0": 23, "1": -1}}'
        ) from None
    except InvalidError as failure:
        raise ValueError(f"must hold offsets: {failure.message}") from None


_BOTH: tuple[Mode, ...] = ("batch", "stream")
_OFFSETS_TEXT = 'earliest, latest, or JSON {"topic": {"0": 23, "1": -2}} (-2 earliest, -1 latest)'

OPTIONS: Final = (
    Option(
        "subscribe",
        "subscribe",
        None,
        _BOTH,
        _topics,
        "topic,topic,...",
        "The topics to read. Required.",
    ),
    Option(
        "startingOffsets",
        "starting_offsets",
        None,
        _BOTH,
        _positions,
        _OFFSETS_TEXT,
        "Where a new query starts; a query that resumes starts where its checkpoint says. Default: "
        "latest for a stream, earliest for a batch read. JSON must name every partition.",
    ),
    Option(
        "endingOffsets",
        "ending_offsets",
        "latest",
        ("batch",),
        _positions,
        _OFFSETS_TEXT,
        "Where a batch read ends, exclusive.",
    ),
    Option(
        "maxOffsetsPerTrigger",
        "max_offsets_per_trigger",
        None,
        ("stream",),
        int_between(1, _INT64_MAX),
        "a number of offsets",
        "About how many offsets a micro-batch takes, shared by what is pending per partition.",
    ),
    Option(
        "maxBytesPerTrigger",
        "max_bytes_per_trigger",
        None,
        ("stream",),
        size_between(1, _INT64_MAX),
        "bytes, such as 64m",
        "About how many bytes of log (as stored, compressed) a micro-batch takes. The size of "
        "records is sampled where each partition stands. With maxOffsetsPerTrigger the lower of "
        "the two holds.",
    ),
    Option(
        "minPartitions",
        "min_partitions",
        None,
        _BOTH,
        int_between(1, 2**31 - 1),
        "a number of tasks",
        "At least about this many tasks: large partitions are cut into ranges of offsets.",
    ),
    Option(
        "bytesPerTask",
        "bytes_per_task",
        "8m",
        _BOTH,
        size_between(0, _INT64_MAX),
        "bytes, such as 8m",
        "Partitions with less pending than this share a task, because a task costs more than "
        "reading a little. 0: every partition has its own task.",
    ),
    Option(
        "minTasks",
        "min_tasks",
        "1",
        _BOTH,
        int_between(1, 2**31 - 1),
        "a number of tasks",
        "The least tasks to use while there are that many partitions with new data, for jobs "
        "whose own work per record is slow.",
    ),
    Option(
        "includeHeaders",
        "include_headers",
        "false",
        _BOTH,
        boolean,
        "true, false",
        "Adds the column headers.",
    ),
    Option(
        "columns",
        "columns",
        None,
        _BOTH,
        parse_columns,
        "key,value,topic,partition,offset,timestamp,timestampType,headers",
        "The columns to have, without the others: what is left out is not copied either. Spark "
        "does not tell a Python source which columns a query uses. Default: all but headers.",
    ),
    Option(
        "filterPushdown",
        "filter_pushdown",
        "false",
        ("batch",),
        boolean,
        "true, false",
        "Filters on topic, partition, offset and timestamp say what is read, where "
        "spark.sql.python.filterPushdown.enabled is true. Only for a load() that one query uses "
        "once: Spark 4.2 reads the same part for all other uses of it, and rows are missing.",
    ),
    Option(
        "failOnDataLoss",
        "fail_on_data_loss",
        "true",
        _BOTH,
        boolean,
        "true, false",
        "Whether the query fails where records it should read are gone (retention, a deleted or "
        "recreated topic). false: it warns and reads on from what is left.",
    ),
    Option(
        "maxBatchRows",
        "max_batch_rows",
        "32768",
        _BOTH,
        int_between(1, 1_000_000),
        "a number of rows",
        "Rows of one Arrow batch that is handed to Spark, at the most.",
    ),
    Option(
        "maxBatchBytes",
        "max_batch_bytes",
        "4m",
        _BOTH,
        size_between(1024, 2**30),
        "bytes, such as 4m",
        "Keys and values of one Arrow batch; one record more than this is still one batch. What "
        "fits the processor's cache is handed over faster.",
    ),
    Option(
        "maxRecordBatchBytes",
        "max_record_batch_bytes",
        "128m",
        _BOTH,
        size_between(1024 * 1024, 2**31 - 2**20),
        "bytes, such as 128m",
        "The largest record batch that is read, compressed or decompressed; a larger one is "
        "refused by name. It bounds the memory of a task, see ARCHITECTURE.md.",
    ),
    Option(
        "kafkaConsumer.pollTimeoutMs",
        "poll_timeout_ms",
        "120000",
        _BOTH,
        int_between(1, 2**31 - 1),
        "milliseconds",
        "How long a task waits for the next records of its range, broker restarts included.",
    ),
)

# Options of the JVM connector that have no row yet: said so, not taken for a spelling mistake.
_NOT_YET = (
    "assign",
    "subscribePattern",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "maxRecordsPerPartition",
    "groupIdPrefix",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
)

_BY_NAME: Final = {row.name.lower(): row for row in OPTIONS}
_NOT_YET_BY_NAME: Final = {name.lower(): name for name in _NOT_YET}


def parse_options(options: Mapping[str, str], mode: Mode | None = None) -> SourceOptions:
    """All options of `format("keyrange")`; raises one InvalidError that names everything wrong.

    Spark makes a source before it says whether a batch or a stream will be read: `mode` None checks
    what holds for both.
    """
    violations = Violations()
    values: dict[str, Any] = {}
    client: dict[str, str] = {}
    for given, value in options.items():
        name = given.lower()
        if name.startswith("kafka."):
            client[name.removeprefix("kafka.")] = value
        elif name in _BY_NAME:
            row = _BY_NAME[name]
            if mode is not None and mode not in row.modes:
                violations.add(row.name, f"is not valid in {_reading(mode)}")
            with violations.collecting(row.name):
                values[row.field] = row.parse(value)
        else:
            violations.add(given, _unknown(name))
    for row in OPTIONS:
        if row.field not in values:
            values[row.field] = row.parse(row.default) if row.default is not None else None
    if "subscribe" not in {name.lower() for name in options}:
        violations.add("subscribe", "must be specified")
    values["client"] = parse_client_options(client, violations)
    if values["include_headers"] and values["columns"] and "headers" not in values["columns"]:
        violations.add(
            "includeHeaders", "must not be true where option 'columns' leaves headers out"
        )
    if mode == "batch":
        _check_batch(values, violations)
    if violations.messages:
        raise invalid_options(violations.messages)
    return SourceOptions(**values)


def _reading(mode: Mode) -> str:
    return "batch reads" if mode == "batch" else "streaming queries"


def _unknown(name: str) -> str:
    if name in _NOT_YET_BY_NAME:
        return "is an option of Spark's Kafka source that keyrange does not support"
    near = difflib.get_close_matches(name, _BY_NAME, 1)
    hint = f"; did you mean '{_BY_NAME[near[0]].name}'?" if near else ""
    return f"does not exist{hint}"


def _check_batch(values: Mapping[str, Any], violations: Violations) -> None:
    _no_position(values["starting_offsets"], LATEST, "startingOffsets", violations)
    _no_position(values["ending_offsets"], EARLIEST, "endingOffsets", violations)
    start, end = values["starting_offsets"], values["ending_offsets"]
    if isinstance(start, Mapping) and isinstance(end, Mapping):
        if start.keys() != end.keys():
            violations.add("endingOffsets", "must name the same partitions as startingOffsets")
        for partition in sorted(start.keys() & end.keys()):
            if 0 <= end[partition] < start[partition]:
                violations.add(
                    "endingOffsets",
                    f"must not lie before startingOffsets: {partition} from {start[partition]} "
                    f"to {end[partition]}",
                )


def _no_position(
    spec: PositionSpec | None, refused: int, name: str, violations: Violations
) -> None:
    word = "latest" if refused == LATEST else "earliest"
    if spec == refused:
        violations.add(name, f"can't be {word} for batch queries")
    elif isinstance(spec, Mapping):
        for partition in sorted(partition for partition, at in spec.items() if at == refused):
            violations.add(name, f"for {partition} can't be {word} for batch queries")
