"""The rows of the catalogue about records: those that are gone, and those that cannot be read."""

from __future__ import annotations

from typing import Final

from keyrange.errors.condition import Rows

_rows = Rows("on-call.md")
_no_guide = Rows()

_FAIL_ON_DATA_LOSS = (
    "check the topic's retention and whether it was recreated; to read on from the first record "
    "that is left, restart with failOnDataLoss=false"
)

_PARTITIONS_GONE = (
    "name again what the options left out, or begin with a new checkpoint; to read on without the "
    "partitions, and keep where they stood, restart with failOnDataLoss=false"
)

RECORD_CONDITIONS: Final = (
    _rows.data_loss(
        "KAFKA_DATA_LOSS.ADDED_PARTITION_DOES_NOT_START_FROM_OFFSET_ZERO",
        _FAIL_ON_DATA_LOSS,
        "A partition that was added while the query ran has lost its first records already.",
        "the topic's retention, and how long the query stood still",
    ),
    _rows.data_loss(
        "KAFKA_DATA_LOSS.PARTITIONS_DELETED",
        _PARTITIONS_GONE,
        "Partitions that the query has a position in are not in the cluster any more, or brokers "
        "do not tell this principal of them; or the options do not name them any more: the "
        "message says which. With failOnDataLoss=false the query reads on and keeps its position "
        "in them: if a topic returns with its id, or the options name it again, the query "
        "continues there.",
        "whether the topic was deleted on purpose, and subscribe, subscribePattern or assign "
        "beside `keyrange checkpoint show LOCATION`",
    ),
    _rows.data_loss(
        "KAFKA_DATA_LOSS.PARTITION_OFFSET_CHANGED",
        _FAIL_ON_DATA_LOSS,
        "A partition ends before the position of the query: its log was truncated or replaced.",
        "an unclean leader election in the brokers' logs, or a topic that was made anew",
    ),
    _rows.data_loss(
        "KAFKA_DATA_LOSS.PARTITIONS_DELETED_AND_GROUP_ID_CONFIG_PRESENT",
        _PARTITIONS_GONE,
        "As PARTITIONS_DELETED, for a query with `kafka.group.id`.",
        "whether the topic was deleted on purpose",
    ),
    _rows.data_loss(
        "KAFKA_DATA_LOSS.LOG_TRUNCATED",
        _FAIL_ON_DATA_LOSS,
        "A log was truncated below records that the query has read (unclean leader election). "
        "They may be in the sink, and are not in Kafka any more.",
        "the offsets in the message, and the brokers' logs around the change of the leader",
    ),
    _rows.data_loss(
        "KAFKA_DATA_LOSS.TOPIC_RECREATED",
        _FAIL_ON_DATA_LOSS,
        "The topic has another id than before: it was deleted and created anew. Its offsets begin "
        "anew too.",
        "the tool or person that created the topic anew; with failOnDataLoss=false the query "
        "reads the new topic from its start",
    ),
    _rows.data_loss(
        "KAFKA_DATA_LOSS.COULD_NOT_READ_OFFSET_RANGE",
        _FAIL_ON_DATA_LOSS,
        "Records of a planned batch are not in the log any more, mostly because retention has "
        "deleted them.",
        "the partition and offsets in the message, against `retention.ms` and `retention.bytes`",
    ),
    _no_guide.corrupt(
        "KAFKA_MALFORMED_RECORD_TIMESTAMP",
        "the producer wrote a timestamp that is not in milliseconds; correct the producer",
        "A record has a timestamp that Spark's type cannot hold.",
        "the record at the named offset; its producer writes seconds or microseconds",
    ),
    _no_guide.corrupt(
        "CORRUPT_BATCH",
        "read the same offsets from another replica; if it stays, the log itself is damaged",
        "The bytes of a record batch do not agree with their own checksum or lengths, and those of "
        "another replica in sync, if there is one, do not either. The task handed on nothing of "
        "the batch.",
        "the partition and offset in the message; the warning before it says which replicas",
    ),
    _no_guide.corrupt(
        "CORRUPT_FRAME",
        "check that the address belongs to a Kafka broker and that no proxy cuts the stream",
        "The bytes that a connection delivered are no answer of Kafka's protocol.",
        "the address in the message: a proxy, or a port of something else",
        passes=True,
    ),
    _no_guide.corrupt(
        "UNSUPPORTED_BATCH_VERSION",
        "the topic holds batches of message format v0 or v1; rewrite it with a broker of 0.11 "
        "or newer, or start behind them",
        "The topic holds batches in a format that Kafka before 0.11 wrote.",
        "the offset in the message; startingOffsets behind it",
    ),
    _no_guide.corrupt(
        "UNSUPPORTED_COMPRESSION",
        "let producers use gzip, snappy, lz4 or zstd, which keyrange reads",
        "A record batch is compressed by a codec that is not known.",
        "the offset in the message",
    ),
    _rows.invalid(
        "BATCH_TOO_LARGE",
        "raise option maxRecordBatchBytes if such batches are meant to be",
        "A record batch is larger than `maxRecordBatchBytes`, which bounds the memory of a task.",
        "the size in the message, and the topic's `max.message.bytes`",
        guide="tuning.md",
    ),
)
