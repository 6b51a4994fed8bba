"""The error catalogue: every way in which keyrange refuses or fails, in one table.

Names that Spark's Kafka connector or Kafka itself publish are kept as they are
(`KAFKA_DATA_LOSS.*`, `UNKNOWN_TOPIC_OR_PARTITION`).
"""

from __future__ import annotations

from keyrange.errors.commits import COMMIT_CONDITIONS
from keyrange.errors.condition import Condition, Kind
from keyrange.errors.consumer import CONSUMER_CONDITIONS
from keyrange.errors.members import MEMBER_CONDITIONS
from keyrange.errors.volumes import VOLUME_CONDITIONS

_FAIL_ON_DATA_LOSS = (
    "check the topic's retention and whether it was recreated; to read on from what is left, "
    "restart with failOnDataLoss=false"
)

CATALOGUE: dict[str, Condition] = {
    condition.name: condition
    for condition in (
        Condition("INVALID_OPTIONS", Kind.INVALID, False, "correct the named options"),
        Condition(
            "OPTION_NOT_ALLOWED",
            Kind.DENIED,
            False,
            "name a module or path that is allowed, or ask who runs the processes to allow it in "
            "their environment (KEYRANGE_ALLOWED_MODULES, KEYRANGE_ALLOWED_PATHS)",
        ),
        Condition(
            "INVALID_SCHEMA",
            Kind.INVALID,
            False,
            "leave .schema(...) out: option 'columns' says which columns there are, or with option "
            "'mapInArrow' mapInArrowSchema",
        ),
        Condition(
            "MAP_FUNCTION_NOT_FOUND",
            Kind.INVALID,
            False,
            "install the module where the executors' Python finds it, or correct option "
            "'mapInArrow'",
        ),
        Condition(
            "MAP_FUNCTION_UNFIT",
            Kind.INVALID,
            False,
            "name a function in option 'mapInArrow' that takes an iterator of pyarrow.RecordBatch "
            "and returns another, such as a generator function",
        ),
        Condition(
            "MAP_RESULT_MISMATCH",
            Kind.INVALID,
            False,
            "correct option 'mapInArrowSchema', or let the function yield pyarrow.RecordBatch of "
            "exactly these columns; nothing is cast",
        ),
        Condition(
            "MAP_FUNCTION_FAILED",
            Kind.INVALID,
            False,
            "read the function's own error, which stands below, and correct the function",
        ),
        Condition(
            "INVALID_OFFSETS",
            Kind.INVALID,
            False,
            'offsets are JSON such as {"topic": {"0": 23, "1": -2}}',
        ),
        Condition(
            "RANGE_FETCH_NOT_ACCEPTED",
            Kind.INVALID,
            False,
            "read the topic with splitBy=partition, in a query of its own",
        ),
        Condition(
            "KEY_RANGES_MISSING",
            Kind.INVALID,
            False,
            "name every partition, or the whole topic, in keyRanges",
        ),
        Condition(
            "PARTIAL_KEY_RANGES",
            Kind.INVALID,
            False,
            "stop the queries of all ranges at the same offsets, and start anew from there with "
            "startingOffsets",
        ),
        Condition(
            "KEY_RANGES_CHANGED",
            Kind.INVALID,
            False,
            "restore keyRanges and keyRangesCoverage as they were, or let a query with a "
            "checkpoint of its own read the other ranges",
        ),
        Condition(
            "KAFKA_START_OFFSET_DOES_NOT_MATCH_ASSIGNED",
            Kind.INVALID,
            False,
            "name every partition of the subscribed topics and no other (-1 is latest, -2 "
            "earliest), or say where the rest is with startingOffsetsDefault or "
            "endingOffsetsDefault",
        ),
        Condition(
            "KAFKA_TIMESTAMP_OFFSET_DOES_NOT_MATCH_ASSIGNED",
            Kind.INVALID,
            False,
            "name every partition of the subscribed topics and no other, or give one timestamp for "
            "all with startingTimestamp or endingTimestamp",
        ),
        Condition(
            "NO_OFFSET_FOR_TIMESTAMP",
            Kind.INVALID,
            False,
            "name an earlier timestamp, or set startingOffsetsByTimestampStrategy=latest to start "
            "such partitions at their end",
        ),
        Condition(
            "NO_GROUP_OFFSETS",
            Kind.INVALID,
            False,
            "correct the group's name, or say with startingOffsetsDefault where partitions without "
            "a committed offset start",
        ),
        Condition(
            "RESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET",
            Kind.INVALID,
            False,
            "correct startingOffsets or endingOffsets",
        ),
        Condition(
            "UNSUPPORTED_CHECKPOINT",
            Kind.INVALID,
            False,
            "read the checkpoint with the keyrange version that wrote it, or a newer one",
        ),
        Condition(
            "UNCOMMITTED_FOREIGN_BATCH",
            Kind.INVALID,
            False,
            'let format("kafka") finish the batch, then change the format; or give the initial '
            "positions, which `keyrange checkpoint show` prints, as JSON in startingOffsets",
        ),
        Condition(
            "INVALID_CHECKPOINT_PATH",
            Kind.INVALID,
            False,
            "name the checkpointLocation of a query that has planned at least one batch",
        ),
        Condition(
            "BATCH_NOT_COMMITTED",
            Kind.INVALID,
            False,
            "let the query finish the batch (a run with trigger availableNow does) and stop it; or "
            "export the positions alone, without --to",
        ),
        Condition(
            "POSITION_NOT_ON_FILE",
            Kind.INVALID,
            False,
            "let the query finish a batch and export again, or name the positions in "
            "startingOffsets yourself; -2 is earliest",
        ),
        Condition(
            "CHECKPOINT_NOT_WRITTEN",
            Kind.UNAVAILABLE,
            True,
            "remove what was written there, and export again to a place that can be written",
        ),
        Condition(
            "UNSUPPORTED_BROKER",
            Kind.INVALID,
            False,
            "keyrange needs Kafka 2.3 or newer on every broker",
        ),
        Condition(
            "JAVA_NOT_FOUND", Kind.INVALID, False, "install Java 17 or newer, or set JAVA_HOME"
        ),
        Condition(
            "PYSPARK_NOT_FOUND",
            Kind.INVALID,
            False,
            "install pyspark beside keyrange, or set SPARK_HOME",
        ),
        Condition(
            "JARS_NOT_RESOLVED",
            Kind.UNAVAILABLE,
            True,
            "check that a Maven repository can be reached; Ivy's own log is named above",
        ),
        Condition(
            "BROKER_NOT_STARTED",
            Kind.UNAVAILABLE,
            True,
            "read the end of the broker's log, named above",
        ),
        Condition(
            "BROKER_UNREACHABLE",
            Kind.UNAVAILABLE,
            True,
            "check kafka.bootstrap.servers, the brokers' advertised listeners, and the network",
        ),
        Condition(
            "TLS_FAILED",
            Kind.DENIED,
            False,
            "check kafka.security.protocol against the listener, and the certificates",
        ),
        Condition(
            "SASL_AUTHENTICATION_FAILED",
            Kind.DENIED,
            False,
            "check kafka.sasl.mechanism and the credentials",
        ),
        Condition(
            "SECRET_NOT_FOUND",
            Kind.INVALID,
            False,
            "set the variable, or put the file, where driver and executors run; write literal: in "
            "front of a secret that itself begins with env: or file:",
        ),
        Condition(
            "PACKAGE_NOT_FOUND",
            Kind.INVALID,
            False,
            "install the named package into the Python of driver and executors",
        ),
        Condition(
            "STORE_NOT_READ",
            Kind.INVALID,
            False,
            "check the named kafka.ssl.* properties: location, type and password",
        ),
        Condition(
            "TOKEN_REFUSED",
            Kind.DENIED,
            False,
            "check kafka.sasl.oauthbearer.token.endpoint.url, clientId, clientSecret and scope",
        ),
        Condition(
            "TOKEN_ENDPOINT_UNREACHABLE",
            Kind.UNAVAILABLE,
            True,
            "check kafka.sasl.oauthbearer.token.endpoint.url and the network",
        ),
        Condition(
            "AUTHORIZATION_FAILED",
            Kind.DENIED,
            False,
            "grant the principal READ and DESCRIBE on what is named",
        ),
        Condition(
            "GROUP_OFFSETS_REFUSED",
            Kind.DENIED,
            False,
            "name another group id, of a group without members, on which the principal has READ",
        ),
        Condition(
            "GROUP_COORDINATOR_UNAVAILABLE",
            Kind.UNAVAILABLE,
            True,
            "look at the health of the brokers and of topic __consumer_offsets",
        ),
        Condition(
            "UNKNOWN_TOPIC_OR_PARTITION",
            Kind.INVALID,
            False,
            "create the topic, or correct option 'subscribe'",
        ),
        Condition(
            "REQUEST_TIMED_OUT",
            Kind.UNAVAILABLE,
            True,
            "look at the broker's health and load; kafka.request.timeout.ms sets how long to wait",
        ),
        Condition(
            "BROKER_ERROR",
            Kind.UNAVAILABLE,
            True,
            "look the named Kafka error up; the broker's log says more",
        ),
        Condition(
            "KAFKA_DATA_LOSS.ADDED_PARTITION_DOES_NOT_START_FROM_OFFSET_ZERO",
            Kind.DATA_LOSS,
            False,
            _FAIL_ON_DATA_LOSS,
        ),
        Condition("KAFKA_DATA_LOSS.PARTITIONS_DELETED", Kind.DATA_LOSS, False, _FAIL_ON_DATA_LOSS),
        Condition(
            "KAFKA_DATA_LOSS.PARTITION_OFFSET_CHANGED", Kind.DATA_LOSS, False, _FAIL_ON_DATA_LOSS
        ),
        Condition(
            "KAFKA_DATA_LOSS.PARTITIONS_DELETED_AND_GROUP_ID_CONFIG_PRESENT",
            Kind.DATA_LOSS,
            False,
            _FAIL_ON_DATA_LOSS,
        ),
        Condition("KAFKA_DATA_LOSS.LOG_TRUNCATED", Kind.DATA_LOSS, False, _FAIL_ON_DATA_LOSS),
        Condition("KAFKA_DATA_LOSS.TOPIC_RECREATED", Kind.DATA_LOSS, False, _FAIL_ON_DATA_LOSS),
        Condition(
            "KAFKA_DATA_LOSS.COULD_NOT_READ_OFFSET_RANGE",
            Kind.DATA_LOSS,
            False,
            _FAIL_ON_DATA_LOSS,
        ),
        Condition(
            "KAFKA_MALFORMED_RECORD_TIMESTAMP",
            Kind.CORRUPT,
            False,
            "the producer wrote a timestamp that is not in milliseconds; correct the producer",
        ),
        Condition(
            "CORRUPT_BATCH",
            Kind.CORRUPT,
            False,
            "read the same offsets from another replica; if it stays, the log itself is damaged",
        ),
        Condition(
            "CORRUPT_FRAME",
            Kind.CORRUPT,
            True,
            "check that the address belongs to a Kafka broker and that no proxy cuts the stream",
        ),
        Condition(
            "UNSUPPORTED_BATCH_VERSION",
            Kind.CORRUPT,
            False,
            "the topic holds batches of message format v0 or v1; rewrite it with a broker of 0.11 "
            "or newer, or start behind them",
        ),
        Condition(
            "UNSUPPORTED_COMPRESSION",
            Kind.CORRUPT,
            False,
            "keyrange reads gzip, snappy, lz4 and zstd",
        ),
        Condition(
            "BATCH_TOO_LARGE",
            Kind.INVALID,
            False,
            "raise option maxRecordBatchBytes if such batches are meant to be",
        ),
        *COMMIT_CONDITIONS,
        *CONSUMER_CONDITIONS,
        *MEMBER_CONDITIONS,
        *VOLUME_CONDITIONS,
    )
}
