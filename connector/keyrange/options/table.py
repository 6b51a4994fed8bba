"""The option table of `format("keyrange")`: names, defaults, limits and texts, once.

Names are the JVM connector's where it has the option. Validation, `conf/keyrange.toml`,
`keyrange options` and the reference in the docs are made from this table.
"""

from __future__ import annotations

from typing import Final

from keyrange.options import values
from keyrange.options.commit_rows import COMMIT_ROWS
from keyrange.options.key_ranges import KEY_RANGE_ROWS
from keyrange.options.mapping import MAPPING_ROWS
from keyrange.options.member_rows import MEMBER_ROWS
from keyrange.options.option import BATCH, BOTH, INT32_MAX, INT64_MAX, STREAM, Option
from keyrange.options.parsing import (
    NAME_BYTES_MAX,
    boolean,
    duration_ms,
    int_between,
    name_up_to,
    one_of,
    size_between,
)
from keyrange.options.volume_rows import VOLUME_ROWS
from keyrange.source.model.columns import parse_columns

_WHAT = (
    Option(
        "subscribe",
        "subscribe",
        None,
        BOTH,
        values.topics,
        "topic,topic,...",
        "The topics to read. One of subscribe, subscribePattern and assign is required.",
    ),
    Option(
        "subscribePattern",
        "subscribe_pattern",
        None,
        BOTH,
        values.pattern,
        "a regular expression",
        "Reads every topic whose name matches, also those that are created later. Internal topics "
        "are left out.",
    ),
    Option(
        "subscribePatternMatch",
        "subscribe_pattern_match",
        "full",
        BOTH,
        one_of("full", "search"),
        "full, search",
        "full: the pattern describes the whole name, as in Kafka's consumer. search: it is found "
        "somewhere in the name, as Spark's Kafka source has it.",
    ),
    Option(
        "assign",
        "assign",
        None,
        BOTH,
        values.partitions,
        'JSON {"topic": [0, 1]}',
        "The partitions to read; all of them have to exist.",
    ),
)

_WHERE = (
    Option(
        "startingOffsets",
        "starting_offsets",
        None,
        BOTH,
        values.starting_positions,
        values.OFFSETS_TEXT + "; group, or group:NAME",
        "Where a new query starts; a query that resumes starts where its checkpoint says. Default: "
        "latest for a stream, earliest for a batch read. JSON names every partition, or "
        "startingOffsetsDefault says where the others start. group: what the Kafka group of that "
        "name, or of kafka.group.id, has committed. Partitions found later start at their earliest "
        "offset.",
    ),
    Option(
        "startingOffsetsByTimestamp",
        "starting_timestamps",
        None,
        BOTH,
        values.timestamps,
        values.TIMESTAMPS_TEXT,
        "Starts each partition at its first record at or after a time. Goes before "
        "startingOffsets.",
    ),
    Option(
        "startingTimestamp",
        "starting_timestamp_ms",
        None,
        BOTH,
        int_between(0, INT64_MAX),
        "ms since 1970",
        "As startingOffsetsByTimestamp, the same time for all partitions. Goes before it.",
    ),
    Option(
        "startingOffsetsByTimestampStrategy",
        "starting_unmatched",
        "error",
        BOTH,
        values.unmatched,
        "error, latest",
        "What becomes of a partition without a record at or after the starting time.",
    ),
    Option(
        "startingOffsetsDefault",
        "starting_rest",
        None,
        BOTH,
        values.default_position("earliest", "latest"),
        "earliest, latest",
        "Where partitions start that startingOffsets, startingOffsetsByTimestamp or the group's "
        "offsets do not name. Without it every partition has to be named.",
    ),
    Option(
        "endingOffsets",
        "ending_offsets",
        "latest",
        BATCH,
        values.positions,
        values.ENDS_TEXT,
        "Where a batch read ends, exclusive.",
    ),
    Option(
        "endingOffsetsByTimestamp",
        "ending_timestamps",
        None,
        BATCH,
        values.timestamps,
        values.TIMESTAMPS_TEXT,
        "Ends each partition before its first record at or after a time, or at its end where there "
        "is none. Goes before endingOffsets.",
    ),
    Option(
        "endingTimestamp",
        "ending_timestamp_ms",
        None,
        BATCH,
        int_between(0, INT64_MAX),
        "ms since 1970",
        "As endingOffsetsByTimestamp, the same time for all partitions. Goes before it.",
    ),
    Option(
        "endingOffsetsDefault",
        "ending_rest",
        None,
        BATCH,
        values.default_position("latest"),
        "latest",
        "Where partitions end that endingOffsets or endingOffsetsByTimestamp do not name. Without "
        "it every partition has to be named.",
    ),
)

_HOW_MUCH = (
    Option(
        "maxOffsetsPerTrigger",
        "max_offsets_per_trigger",
        None,
        STREAM,
        int_between(1, INT64_MAX),
        "a number of offsets",
        "About how many offsets a micro-batch takes, shared by what is pending per partition.",
        ignored=True,
    ),
    Option(
        "minOffsetsPerTrigger",
        "min_offsets_per_trigger",
        None,
        STREAM,
        int_between(1, INT64_MAX),
        "a number of offsets",
        "A micro-batch waits until so many offsets are pending, no longer than maxTriggerDelay. "
        "The first one of a run does not wait, and a run with availableNow takes what is there.",
        ignored=True,
    ),
    Option(
        "maxTriggerDelay",
        "max_trigger_delay_ms",
        "15m",
        STREAM,
        duration_ms,
        "a time, such as 15m; a bare number is ms",
        "How long minOffsetsPerTrigger may hold a micro-batch back.",
        ignored=True,
    ),
    Option(
        "maxBytesPerTrigger",
        "max_bytes_per_trigger",
        None,
        STREAM,
        size_between(1, INT64_MAX),
        "bytes, such as 64m",
        "About how many bytes of log (as stored, compressed) a micro-batch takes. The size of "
        "records is sampled where each partition stands. With maxOffsetsPerTrigger the lower of "
        "the two holds.",
        ignored=True,
    ),
    Option(
        "minPartitions",
        "min_partitions",
        None,
        BOTH,
        int_between(1, INT32_MAX),
        "a number of tasks",
        "At least about this many tasks: large partitions are cut into ranges of offsets.",
    ),
    Option(
        "maxRecordsPerPartition",
        "max_records_per_partition",
        None,
        BOTH,
        int_between(1, INT64_MAX),
        "a number of offsets",
        "At most this many offsets in a task: partitions are cut into ranges of offsets, each with "
        "its own task.",
    ),
    Option(
        "bytesPerTask",
        "bytes_per_task",
        "8m",
        BOTH,
        size_between(0, INT64_MAX),
        "bytes, such as 8m",
        "Partitions with less pending than this share a task, because a task costs more than "
        "reading a little. 0: every partition, or every key range of it, has its own task.",
    ),
    Option(
        "minTasks",
        "min_tasks",
        "1",
        BOTH,
        int_between(1, INT32_MAX),
        "a number of tasks",
        "The least tasks to use while there are that many partitions with new data, for jobs "
        "whose own work per record is slow.",
    ),
)

_ROWS_OUT = (
    Option(
        "includeHeaders",
        "include_headers",
        "false",
        BOTH,
        boolean,
        "true, false",
        "Adds the column headers.",
    ),
    Option(
        "includeKeyHash",
        "include_key_hash",
        "false",
        BOTH,
        boolean,
        "true, false",
        "Adds the column keyHash: the key's place in the hash space that key ranges cut.",
    ),
    Option(
        "columns",
        "columns",
        None,
        BOTH,
        parse_columns,
        "key,value,topic,partition,offset,timestamp,timestampType,headers,keyHash",
        "The columns to have, without the others: what is left out is not copied either. Spark "
        "does not tell a Python source which columns a query uses. Default: all but headers "
        "and keyHash.",
    ),
    Option(
        "filterPushdown",
        "filter_pushdown",
        "false",
        BATCH,
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
        BOTH,
        boolean,
        "true, false",
        "Whether the query fails where records it should read are gone (retention, a deleted or "
        "recreated topic, a log that was cut back). false: it warns and reads on from what is "
        "left.",
    ),
    Option(
        "maxBatchRows",
        "max_batch_rows",
        "32768",
        BOTH,
        int_between(1, 1_000_000),
        "a number of rows",
        "Rows of one Arrow batch that is handed to Spark, at the most.",
    ),
    Option(
        "maxBatchBytes",
        "max_batch_bytes",
        "4m",
        BOTH,
        size_between(1024, 2**30),
        "bytes, such as 4m",
        "Keys and values of one Arrow batch; one record more than this is still one batch. What "
        "fits the processor's cache is handed over faster.",
    ),
    Option(
        "maxRecordBatchBytes",
        "max_record_batch_bytes",
        "128m",
        BOTH,
        size_between(1024 * 1024, 2**31 - 2**20),
        "bytes, such as 128m",
        "The largest record batch that is read, compressed or decompressed; a larger one is "
        "refused by name. It bounds the memory of a task, see ARCHITECTURE.md.",
    ),
)

_CLUSTER = (
    Option(
        "groupIdPrefix",
        "group_id_prefix",
        None,
        BOTH,
        name_up_to(NAME_BYTES_MAX - 33),  # a dash and 32 hexadecimal digits follow
        "the beginning of a group's name",
        "Mirrors the query's committed offsets to a Kafka group whose name begins so and is kept "
        "in the checkpoint. kafka.group.id names the whole group and goes before it. A batch read "
        "mirrors nothing.",
    ),
    Option(
        "mirrorOffsets",
        "mirror_offsets",
        None,
        STREAM,
        boolean,
        "true, false",
        "Whether the committed offsets are written to the Kafka group too, so that Kafka's tools "
        "show the query's lag. They are never read back. Default: true where kafka.group.id or "
        "groupIdPrefix is given; an empty one is none.",
    ),
    Option(
        "fetchOffset.numRetries",
        "fetch_offset_tries",
        None,
        BOTH,
        int_between(1, INT32_MAX),
        "a number of tries",
        "How often the driver asks for metadata and offsets before a batch fails, with new "
        "connections each time. Default: 3, and 1 at the first contact, so that a wrong address is "
        "named soon.",
    ),
    Option(
        "fetchOffset.retryIntervalMs",
        "fetch_offset_pause_ms",
        "1000",
        BOTH,
        int_between(0, INT32_MAX),
        "milliseconds",
        "The pause between two such tries.",
    ),
    Option(
        "kafkaConsumer.pollTimeoutMs",
        "poll_timeout_ms",
        "120000",
        BOTH,
        int_between(1, INT32_MAX),
        "milliseconds",
        "How long a task waits for the next records of its range, broker restarts included.",
    ),
)

OPTIONS: Final = (
    *_WHAT,
    *_WHERE,
    *_HOW_MUCH,
    *KEY_RANGE_ROWS,
    *_ROWS_OUT,
    *MAPPING_ROWS,
    *COMMIT_ROWS,
    *MEMBER_ROWS,
    *VOLUME_ROWS,
    *_CLUSTER,
)
