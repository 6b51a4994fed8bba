"""All options of one source, validated: those that are about no capability of their own, and the
settings of each capability."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Final

from keyrange.model.columns import COLUMNS, IDENTIFYING, chosen_columns, parse_columns
from keyrange.model.offsets import LATEST
from keyrange.model.position_options import Everywhere, PositionSpec
from keyrange.model.subscription import Subscribe, Subscription
from keyrange.model.value_forms import RAW, RAW_COLUMNS, ValueForms
from keyrange.options.commits import CommitOptions
from keyrange.options.kafka_properties import ClientSettings
from keyrange.options.key_ranges import KeyRangeOptions
from keyrange.options.map_in_arrow import MapInArrow, MappingOptions
from keyrange.options.members import MemberOptions
from keyrange.options.option import (
    BATCH,
    BOTH,
    INT32_MAX,
    INT64_MAX,
    STREAM,
    made_of,
    option,
    option_fields,
    rows_of,
    text_option,
)
from keyrange.options.positions import EndOptions, StartOptions, SubscriptionOptions
from keyrange.options.registry import RegistrySettings
from keyrange.options.value_format import ValueOptions
from keyrange.options.value_parsers import (
    NAME_BYTES_MAX,
    boolean,
    duration_or_ms,
    int_between,
    name_up_to,
    size_between,
    variable,
)
from keyrange.options.volumes import VolumeOptions

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """All options of one source, validated. Plain data; it holds secrets only as `Secret`.

    `group_id_prefix` is "" where positions are mirrored to `client.group_id` or not at all;
    `fetch_offset_tries` None stands for the default, which depends on whether the cluster has
    answered before.
    """

    subscription: Subscription = made_of(SubscriptionOptions, Subscribe(()), BOTH)
    start: PositionSpec = made_of(
        StartOptions, PositionSpec("startingOffsets", Everywhere(LATEST)), BOTH
    )
    end: PositionSpec = made_of(
        EndOptions, PositionSpec("endingOffsets", Everywhere(LATEST)), BATCH
    )
    max_offsets_per_trigger: int | None = option(
        "maxOffsetsPerTrigger",
        int_between(1, INT64_MAX, "a number of offsets"),
        "About how many offsets a micro-batch takes; partitions share them in proportion to "
        "their unread offsets.",
        ignored=True,
    )
    min_offsets_per_trigger: int | None = option(
        "minOffsetsPerTrigger",
        int_between(1, INT64_MAX, "a number of offsets"),
        "A micro-batch waits until so many offsets are unread, no longer than maxTriggerDelay. "
        "The first one of a run does not wait, and a run with availableNow reads all unread "
        "offsets.",
        ignored=True,
    )
    max_trigger_delay_ms: int = option(
        "maxTriggerDelay",
        duration_or_ms,
        "How long minOffsetsPerTrigger may hold a micro-batch back.",
        values="a time, such as 15m; a bare number is ms",
        default="15m",
        ignored=True,
    )
    max_bytes_per_trigger: int | None = option(
        "maxBytesPerTrigger",
        size_between(1, INT64_MAX, "64m"),
        "About how many bytes of log (as stored, compressed) a micro-batch takes. The size of "
        "records is sampled where each partition stands. With maxOffsetsPerTrigger the lower of "
        "the two holds.",
        ignored=True,
    )
    min_partitions: int | None = option(
        "minPartitions",
        int_between(1, INT32_MAX, "a number of tasks"),
        "At least about this many tasks: large partitions are cut into ranges of offsets.",
    )
    max_records_per_partition: int | None = option(
        "maxRecordsPerPartition",
        int_between(1, INT64_MAX, "a number of offsets"),
        "At most this many offsets in a task: partitions are cut into ranges of offsets, each with "
        "its own task.",
    )
    bytes_per_task: int = option(
        "bytesPerTask",
        size_between(0, INT64_MAX, "8m"),
        "Partitions with less unread than this share a task, because a task costs more than "
        "reading a little. 0: every partition, or every key range of it, has its own task.",
        default="8m",
    )
    min_tasks: int = option(
        "minTasks",
        int_between(1, INT32_MAX, "a number of tasks"),
        "The least tasks to use while there are that many partitions with new data, for jobs "
        "whose own work per record is slow.",
        default="1",
    )
    key_ranges: KeyRangeOptions = made_of(KeyRangeOptions, KeyRangeOptions(), BOTH)
    include_headers: bool = option(
        "includeHeaders",
        boolean,
        "Adds the column headers.",
        default="false",
    )
    include_key_hash: bool = option(
        "includeKeyHash",
        boolean,
        "Adds the column keyHash: the key's hash, by which key ranges are cut.",
        default="false",
    )
    columns: tuple[str, ...] | None = option(
        "columns",
        parse_columns,
        "The columns of the DataFrame. keyrange does not copy the columns that are left out; "
        "Spark does not tell a Python source which columns a query uses. Default: all but "
        "headers and keyHash.",
        values=",".join(COLUMNS),
    )
    filter_pushdown: bool = option(
        "filterPushdown",
        boolean,
        "Filters on topic, partition, offset and timestamp restrict the read, if "
        "spark.sql.python.filterPushdown.enabled is true. Only for a load() that one query uses "
        "once: Spark 4.2 reads the same restricted part for all its other uses, which then lack "
        "rows.",
        default="false",
        modes=BATCH,
    )
    fail_on_data_loss: bool = option(
        "failOnDataLoss",
        boolean,
        "Whether the query fails if records that it should read are gone (retention, a deleted or "
        "recreated topic, a truncated log). false: it warns and reads on from the first record "
        "that is left.",
        default="true",
    )
    max_batch_rows: int = option(
        "maxBatchRows",
        int_between(1, 1_000_000, "a number of rows"),
        "The most rows in an Arrow batch that a task hands to Spark.",
        default="32768",
    )
    max_batch_bytes: int = option(
        "maxBatchBytes",
        size_between(1024, 2**30, "4m"),
        "Bytes of keys and values in one Arrow batch; a larger record is a batch of its own. "
        "Batches that fit the processor's cache go to Spark faster.",
        default="4m",
    )
    max_record_batch_bytes: int = option(
        "maxRecordBatchBytes",
        size_between(1024 * 1024, 2**31 - 2**20, "128m"),
        "The largest record batch that a task reads, compressed or decompressed; it refuses a "
        "larger one with topic, partition and offset. This bounds the memory of a task, see "
        "ARCHITECTURE.md.",
        default="128m",
    )
    map_in_arrow: MapInArrow | None = made_of(MappingOptions, None, BOTH)
    values: ValueOptions = made_of(ValueOptions, ValueOptions(), BOTH)
    registry: RegistrySettings = made_of(RegistrySettings, RegistrySettings(), BOTH)
    # What the driver made of these: tasks read by it.
    forms: ValueForms = RAW
    commits: CommitOptions = made_of(CommitOptions, CommitOptions())
    members: MemberOptions = made_of(MemberOptions, MemberOptions())
    volumes: VolumeOptions = made_of(VolumeOptions, VolumeOptions())
    group_id_prefix: str = text_option(
        "groupIdPrefix",
        name_up_to(NAME_BYTES_MAX - 33),
        "Mirrors the query's committed offsets to a Kafka group whose name begins with this text; "
        "the checkpoint stores the name. kafka.group.id names the whole group and takes "
        "precedence. A batch read mirrors nothing.",
        values="the beginning of a group's name",
    )
    mirror_offsets: bool = option(
        "mirrorOffsets",
        boolean,
        "Whether the driver also writes the committed offsets to the Kafka group, so that Kafka's "
        "tools show the query's lag. It never resumes from them. Default: true if kafka.group.id "
        "or groupIdPrefix is given and not empty.",
        unset=False,
        modes=STREAM,
    )
    fetch_offset_tries: int | None = option(
        "fetchOffset.numRetries",
        int_between(1, INT32_MAX, "a number of tries"),
        "How often the driver asks for metadata and offsets before a batch fails, with new "
        "connections each time. Default: 3, and 1 at the first contact, so that a wrong address is "
        "named soon.",
    )
    fetch_offset_pause_ms: int = option(
        "fetchOffset.retryIntervalMs",
        int_between(0, INT32_MAX, "milliseconds"),
        "The pause between two such tries.",
        default="1000",
    )
    poll_timeout_ms: int = option(
        "kafkaConsumer.pollTimeoutMs",
        int_between(1, INT32_MAX, "milliseconds"),
        "How long a task waits for the next records of its range, broker restarts included.",
        default="120000",
    )
    rack_variable: str = text_option(
        "client.rack.env",
        variable,
        "The environment variable of the executors that holds their rack: each executor reads "
        "from the replica in its own rack. kafka.client.rack has one value for all executors. "
        "Executors without the variable read from leaders.",
    )
    client: ClientSettings = field(default_factory=ClientSettings)

    @property
    def chosen_columns(self) -> tuple[str, ...]:
        """The columns that are read, in the source's order; those of the DataFrame where no
        function of mapInArrow works on them.

        What is done of a record is said by its topic, partition, offset and keyHash: a query that
        commits individually has them, whatever else was chosen.
        """
        chosen = chosen_columns(self.columns, self.include_headers, self.include_key_hash)
        needed = IDENTIFYING if self.commits.individual else ()
        return tuple(name for name in COLUMNS if name in chosen or name in needed)

    @property
    def raw_columns(self) -> tuple[str, ...]:
        """The columns in which a DataFrame has the bytes of keys and values: dead letters are made
        of them, where a query commits individually."""
        if not self.commits.individual:
            return ()
        read = self.values.read_columns
        return tuple(RAW_COLUMNS[name] if name in read else name for name in RAW_COLUMNS)


# The option table of `format("keyrange")`. Names are the JVM connector's where it has the option.
# `conf/keyrange.toml`, `keyrange options` and OPTIONS.md are made from it.
OPTIONS: Final = rows_of(SourceOptions, BOTH)


_INDIVIDUALLY: Final = "commitMode=individual"
_INDIVIDUAL: Final = (
    f"{_INDIVIDUALLY}, but for the first batch of a query that has committed individually"
)


def idle_options(options: SourceOptions, works: bool = False) -> Iterator[str]:
    """Options that are given and change nothing, each with the one that would make it count: no
    error, since a query may keep them over a change of that one, and rarely meant. `works`: of a
    job, which has some of these for whole batches, and for state, too."""
    volumes, members, keys = options.volumes, options.members, options.key_ranges
    commits = options.commits
    limited = (volumes.min_available_bytes, volumes.min_available_ratio) != (None, None)
    # Members have a key range of each partition, however many are asked for.
    cuts = keys.split_by == "keyRange" and not members.pinned
    cutting = "pin=off" if members.pinned else "splitBy=keyRange"
    is_split = keys.split_by != "partition"
    # With a split 0 alone says something: a task for each range.
    shared = options.bytes_per_task not in (0, SourceOptions().bytes_per_task)
    for name, given, counts, needed in (
        ("commitTable", commits.table, commits.individual, _INDIVIDUAL),
        ("commit.isolation", commits.transactional, commits.individual, _INDIVIDUALLY),
        ("record.timeout", commits.record_timeout_ms, commits.individual, _INDIVIDUALLY),
        ("batch.time.budget", commits.batch_time_budget_ms, commits.individual, _INDIVIDUALLY),
        ("memberTable", members.table, members.pinned or commits.table, "pin"),
        ("min.available.*", limited, volumes.admission, "guard.admission=true"),
        ("keyRangesPerPartition", keys.ranges_per_partition is not None, cuts, cutting),
        ("parallelism", keys.cores is not None, is_split, "splitBy=keyRange or splitBy=offset"),
        ("bytesPerTask", shared, not is_split, "splitBy=partition"),
    ):
        if given and not counts:
            yield f"option '{name}' changes nothing without {needed}"
    if not works and not options.commits.individual:
        # These are made of commitTable where they are not given.
        made = ("dead_letter_table", "verdict_directory", "state_directory")
        said = ("table", "transactional", "record_timeout_ms", "batch_time_budget_ms")
        but = ("group", "allow_individual", *said, *(made if commits.table else ()))
        for name in _given(commits, CommitOptions(), but):
            yield f"option '{name}' changes nothing without {_INDIVIDUALLY}"
    if not members.pinned:
        # Copies of a job's state are below slot.directory without members too.
        but = ("table", "group", *(("slot_directory",) if works else ()))
        for name in _given(members, MemberOptions(), but):
            yield f"option '{name}' changes nothing without pin"


def _given(settings: object, usual: object, but: Collection[str]) -> Iterator[str]:
    """The options that say something else than they do by default; `but` are fields."""
    for each, name in option_fields(type(usual)).items():
        if each not in but and getattr(settings, each) != getattr(usual, each):
            yield name


def warn_of_idle(options: SourceOptions, works: bool) -> None:
    """A WARN for each. To be called once a run, where it begins."""
    for text in idle_options(options, works):
        _log.warning("%s", text)
