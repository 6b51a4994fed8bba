"""What each condition means and where to look further: the text of `keyrange errors`.

Apart from the catalogue, because who raises an error does not need it. A test holds the two to one
another.
"""

from __future__ import annotations

from typing import Final

from keyrange.errors.explained_commits import COMMIT_EXPLANATIONS, CONSUMER_EXPLANATIONS
from keyrange.errors.explained_members import MEMBER_EXPLANATIONS, VOLUME_EXPLANATIONS
from keyrange.errors.explanation import Explanation

_READING: Final = {
    "INVALID_OPTIONS": Explanation(
        "One or more options do not exist, have a value that cannot be read, or contradict each "
        "other. All of them are named at once, before the first connection. Nothing was read.",
        "`keyrange options` has every option with its values; `keyrange doctor --option NAME=VALUE`"
        " checks names",
    ),
    "OPTION_NOT_ALLOWED": Explanation(
        "An option names a module or a path, and the environment of the process that reads the "
        "option, or that would open what it names, has a list of prefixes without it. Nothing was "
        "imported or opened.",
        "the variable in the message, where the driver and the executors were started",
        "security.md",
    ),
    "INVALID_SCHEMA": Explanation(
        "`.schema(...)` was called on the reader with another schema than the source has.",
        "option `columns` chooses columns",
        "reading.md",
    ),
    "MAP_FUNCTION_NOT_FOUND": Explanation(
        "An executor could not import the function that option `mapInArrow` names.",
        "the import error that stands in the message, and `spark.sparkContext.addPyFile`",
        "reading.md",
    ),
    "MAP_FUNCTION_UNFIT": Explanation(
        "What `mapInArrow` names is no function, or returned something that is no iterator.",
        "the type that the message names",
        "reading.md",
    ),
    "MAP_RESULT_MISMATCH": Explanation(
        "The function of `mapInArrow` yielded a batch whose columns are not exactly those of "
        "`mapInArrowSchema`.",
        "both schemas, which stand in the message; a timestamp is timestamp[us, tz=UTC]",
        "reading.md",
    ),
    "MAP_FUNCTION_FAILED": Explanation(
        "The function of `mapInArrow` raised an error. The task fails, and Spark tries it again.",
        "the function's traceback, below the message in the executor's and the driver's log",
        "reading.md",
    ),
    "INVALID_OFFSETS": Explanation(
        "A text that should hold offsets as JSON does not.",
        "the text and the place in it that the message names",
    ),
    "RANGE_FETCH_NOT_ACCEPTED": Explanation(
        "The query would split a topic whose records need the order of their partition: "
        "`accept.range.fetch` says so.",
        "who set `accept.range.fetch`, and why",
        "key-ranges.md",
    ),
    "KEY_RANGES_MISSING": Explanation(
        "`keyRanges` names some partitions, and the query reads others too.",
        "the partitions that the message names; `keyrange ranges plan --suggest` prints ranges "
        "for all",
        "key-ranges.md",
    ),
    "PARTIAL_KEY_RANGES": Explanation(
        "The query reads some keys of its partitions only, so its positions say nothing of the "
        "others. What was asked for would skip them.",
        "`keyrange checkpoint show` of each query that has a part",
        "key-ranges.md",
    ),
    "KEY_RANGES_CHANGED": Explanation(
        "A query with `keyRangesCoverage=partial` came back with other ranges than its checkpoint "
        "has. It would go on behind records that nobody has read.",
        "the ranges in the message: those of the checkpoint, and those of the options",
        "key-ranges.md",
    ),
    "KAFKA_START_OFFSET_DOES_NOT_MATCH_ASSIGNED": Explanation(
        "`startingOffsets` or `endingOffsets` names other partitions than the query reads.",
        "the partitions in the message; `keyrange doctor --topic TOPIC` lists those of a topic",
    ),
    "KAFKA_TIMESTAMP_OFFSET_DOES_NOT_MATCH_ASSIGNED": Explanation(
        "An option with a time for each partition names other partitions than the query reads.",
        "the partitions in the message; `keyrange doctor --topic TOPIC` lists those of a topic",
    ),
    "NO_OFFSET_FOR_TIMESTAMP": Explanation(
        "A partition has no record at or after the time that the query should start at.",
        "the partition and the time in the message",
    ),
    "NO_GROUP_OFFSETS": Explanation(
        "`startingOffsets=group`, and the Kafka group has no committed offset for a partition.",
        "`kafka-consumer-groups --describe --group GROUP`",
        "reading.md",
    ),
    "RESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET": Explanation(
        "After offsets and times were looked up, a partition would end before it starts.",
        "both offsets in the message",
    ),
    "UNSUPPORTED_CHECKPOINT": Explanation(
        "The offset in the checkpoint has a form that this version does not know. Nothing was "
        "read, and the checkpoint is as it was.",
        "`keyrange --version`, here and where the checkpoint was written",
    ),
    "UNCOMMITTED_FOREIGN_BATCH": Explanation(
        "The checkpoint is one of Spark's Kafka source, whose first batch was planned and never "
        "committed. Where that batch began only that source can read.",
        "`keyrange checkpoint show LOCATION`",
        "../../MIGRATION.md",
    ),
    "INVALID_CHECKPOINT_PATH": Explanation(
        "There is no checkpoint at the place that was named, or it cannot be read.",
        "the path: it is the query's checkpointLocation, the directory that holds `offsets`",
    ),
    "BATCH_NOT_COMMITTED": Explanation(
        "A batch is planned and not committed. It will be read as it was planned, so what was "
        "asked for would not hold for it.",
        "`keyrange checkpoint show LOCATION`",
        "on-call.md",
    ),
    "POSITION_NOT_ON_FILE": Explanation(
        "The checkpoint does not say where a partition would be read next.",
        "`keyrange checkpoint show LOCATION`, column `committed`",
    ),
    "CHECKPOINT_NOT_WRITTEN": Explanation(
        "The copy of a checkpoint is not complete. The checkpoint that was copied is untouched.",
        "the reason in the message; whether the query still runs",
    ),
    "UNSUPPORTED_BROKER": Explanation(
        "A broker does not speak a version of Kafka's protocol that keyrange needs.",
        "the versions in the message; `keyrange doctor --bootstrap-servers HOST:PORT`",
    ),
    "JAVA_NOT_FOUND": Explanation(
        "No Java was found, or one that is too old, for the broker of `keyrange broker` or for "
        "fetching jars.",
        "`keyrange doctor`",
    ),
    "PYSPARK_NOT_FOUND": Explanation(
        "A command needs the jars that pyspark brings, and there is no pyspark.",
        "`keyrange doctor`; `pip install 'keyrange[spark]'`",
    ),
    "JARS_NOT_RESOLVED": Explanation(
        "Jars that are fetched when first needed could not be had.",
        "Ivy's log, which the message names; a proxy or a mirror that Ivy has to be told of",
    ),
    "BROKER_NOT_STARTED": Explanation(
        "The broker of `keyrange broker start` did not start, or did not end.",
        "the log that the message names",
    ),
    "BROKER_UNREACHABLE": Explanation(
        "No broker answered, or a connection was lost. A stream goes on when it is started again; "
        "no position has moved.",
        "`keyrange doctor --bootstrap-servers HOST:PORT` on the driver's host and on an "
        "executor's: the address in the message is the broker's advertised one",
    ),
    "TLS_FAILED": Explanation(
        "The broker was reached, and TLS could not be agreed on.",
        "the certificate's text in the message, and which listener the port belongs to",
        "security.md",
    ),
    "SASL_AUTHENTICATION_FAILED": Explanation(
        "The broker was reached and refused who asks. It is not tried again.",
        "mechanism and credentials; the broker's log has the reason it does not tell clients",
        "security.md",
    ),
    "SECRET_NOT_FOUND": Explanation(
        "An option refers to an environment variable or a file (`env:`, `file:`) that is not "
        "there in the process that connects: the driver, or an executor.",
        "the reference in the message, on the host that raised it",
        "security.md",
    ),
    "PACKAGE_NOT_FOUND": Explanation(
        "What was asked for needs a Python package that is not installed.",
        "the extra that the message names, such as `keyrange[kerberos]`",
        "security.md",
    ),
    "STORE_NOT_READ": Explanation(
        "A trust store or key store could not be read.",
        "the file in the message, on the host that raised it, and its password",
        "security.md",
    ),
    "TOKEN_REFUSED": Explanation(
        "The token endpoint answered, and gave no token that could be used.",
        "the HTTP status or the certificate's text in the message",
        "security.md",
    ),
    "TOKEN_ENDPOINT_UNREACHABLE": Explanation(
        "The token endpoint did not answer.",
        "the address in the message, from the host that raised it",
        "security.md",
    ),
    "AUTHORIZATION_FAILED": Explanation(
        "The principal is known, and may not do what was asked.",
        "the topic, group or cluster in the message: `kafka-acls --list`",
        "security.md",
    ),
    "GROUP_OFFSETS_REFUSED": Explanation(
        "Offsets could not be written to the Kafka group that mirrors them. It is a warning once "
        "and a counter in the progress; the query goes on, and its own positions are unaffected.",
        "`kafka-consumer-groups --describe --group GROUP --members`",
        "reading.md",
    ),
    "GROUP_COORDINATOR_UNAVAILABLE": Explanation(
        "The broker that coordinates a Kafka group did not answer.",
        "the brokers' health; partitions of __consumer_offsets without a leader",
    ),
    "UNKNOWN_TOPIC_OR_PARTITION": Explanation(
        "A topic or partition that was named is not in the cluster.",
        "the name in the message; `keyrange doctor --bootstrap-servers HOST:PORT --topic TOPIC`",
    ),
    "REQUEST_TIMED_OUT": Explanation(
        "A broker took longer to answer than `kafka.request.timeout.ms`, or gave no records for "
        "longer than `kafkaConsumer.pollTimeoutMs`.",
        "the broker's load; a fetch of huge batches over a slow link",
    ),
    "BROKER_ERROR": Explanation(
        "A broker answered with an error of its own, or partitions have no leader.",
        "the name of Kafka's error in the message, and that broker's log",
    ),
    "KAFKA_DATA_LOSS.ADDED_PARTITION_DOES_NOT_START_FROM_OFFSET_ZERO": Explanation(
        "A partition that was added while the query ran has lost its first records already.",
        "the topic's retention, and how long the query stood still",
        "on-call.md",
    ),
    "KAFKA_DATA_LOSS.PARTITIONS_DELETED": Explanation(
        "Partitions that the query has a position in are not in the cluster any more, or brokers "
        "do not tell this principal of them. Read on with failOnDataLoss=false, the query keeps "
        "where they stood: a topic that is back with its id is read on from there.",
        "whether the topic was deleted on purpose",
        "on-call.md",
    ),
    "KAFKA_DATA_LOSS.PARTITION_OFFSET_CHANGED": Explanation(
        "A partition ends before the position of the query: its log was cut back or replaced.",
        "an unclean leader election in the brokers' logs, or a topic that was made anew",
        "on-call.md",
    ),
    "KAFKA_DATA_LOSS.PARTITIONS_DELETED_AND_GROUP_ID_CONFIG_PRESENT": Explanation(
        "As PARTITIONS_DELETED, for a query with `kafka.group.id`.",
        "whether the topic was deleted on purpose",
        "on-call.md",
    ),
    "KAFKA_DATA_LOSS.LOG_TRUNCATED": Explanation(
        "A log was cut back below records that were read (unclean leader election). They may be "
        "in the sink, and are not in Kafka any more.",
        "the offsets in the message, and the brokers' logs around the change of the leader",
        "on-call.md",
    ),
    "KAFKA_DATA_LOSS.TOPIC_RECREATED": Explanation(
        "The topic has another id than before: it was deleted and created anew. Its offsets begin "
        "anew too.",
        "who made it anew; with failOnDataLoss=false the new topic is read from its start",
        "on-call.md",
    ),
    "KAFKA_DATA_LOSS.COULD_NOT_READ_OFFSET_RANGE": Explanation(
        "Records of a planned batch are not in the log any more, mostly because retention has "
        "deleted them.",
        "the partition and offsets in the message, against `retention.ms` and `retention.bytes`",
        "on-call.md",
    ),
    "KAFKA_MALFORMED_RECORD_TIMESTAMP": Explanation(
        "A record has a timestamp that Spark's type cannot hold.",
        "the record at the named offset; its producer writes seconds or microseconds",
    ),
    "CORRUPT_BATCH": Explanation(
        "The bytes of a record batch do not agree with their own checksum or lengths, and were not "
        "better from another replica, where there is one in sync. Nothing of the batch was handed "
        "on.",
        "the partition and offset in the message; the warning before it says which replicas",
    ),
    "CORRUPT_FRAME": Explanation(
        "What came over a connection is no answer of Kafka's.",
        "the address in the message: a proxy, or a port of something else",
    ),
    "UNSUPPORTED_BATCH_VERSION": Explanation(
        "The topic holds batches in a format that Kafka before 0.11 wrote.",
        "the offset in the message; startingOffsets behind it",
    ),
    "UNSUPPORTED_COMPRESSION": Explanation(
        "A record batch is compressed by a codec that is not known.",
        "the offset in the message",
    ),
    "BATCH_TOO_LARGE": Explanation(
        "A record batch is larger than `maxRecordBatchBytes`, which bounds the memory of a task.",
        "the size in the message, and the topic's `max.message.bytes`",
        "tuning.md",
    ),
}

EXPLANATIONS: Final[dict[str, Explanation]] = {
    **_READING,
    **COMMIT_EXPLANATIONS,
    **CONSUMER_EXPLANATIONS,
    **MEMBER_EXPLANATIONS,
    **VOLUME_EXPLANATIONS,
}
