"""The rows of the catalogue about writing to topics: rows that become no records, and transactions
that do not come to their end."""

from __future__ import annotations

from typing import Final

from keyrange.errors.condition import Rows

_rows = Rows()

TOPIC_CONDITIONS: Final = (
    _rows.invalid(
        "INVALID_TOPIC_COLUMNS",
        "give the rows a column value and, where they are wanted, key, headers, timestamp and "
        "partition, each of the type in the message; with value_format or key_format the columns "
        "that the schema has",
        "The columns of rows for a topic are not those of a record, or the schema of its keys or "
        "values does not take them. Nothing was sent.",
        "the column and the type in the message",
    ),
    _rows.invalid(
        "INVALID_RECORD",
        "give the row's headers names, a timestamp that the topic takes, and a partition that the "
        "topic has; a batch that was made before the topic's settings changed, or by a host whose "
        "clock was wrong, is sent when the topic takes it",
        "A row cannot become a record of the topic, or the broker refused its record. The "
        "transaction that had it, if there was one, was aborted.",
        "the row in the message; message.timestamp.type, message.timestamp.before.max.ms and "
        "message.timestamp.after.max.ms of the topic; the clocks of executors: a row without a "
        "timestamp has their time, and others are compared with it",
    ),
    _rows.invalid(
        "MESSAGE_TOO_LARGE",
        "make the row smaller, or raise max.request.size and the topic's max.message.bytes; a "
        "batch that was made before the topic took less is sent when it takes as much again",
        "A record is larger than the producer sends or the topic takes. The transaction that had "
        "it, if there was one, was aborted.",
        "the row and its size in the message: `kafka-configs --describe --topic TOPIC`",
    ),
    _rows.unavailable(
        "RECORDS_NOT_DELIVERED",
        "look at the brokers and the network; raise delivery.timeout.ms if they need longer",
        "Brokers did not take a step of a transaction within delivery.timeout.ms. The transaction "
        "is not committed, or whether it is could not be learned: the next sender of the "
        "transactional id asks.",
        "Kafka's last error in the message, and the replicas of the partition: `kafka-topics "
        "--describe --topic TOPIC`",
    ),
    _rows.unavailable(
        "TRANSACTION_ABORTED",
        "nothing: the transaction is sent once more; if it happens again and again, look at the "
        "brokers' logs",
        "A broker asked to abort the transaction, or the order of its batches was lost. Nothing of "
        "it is seen with read_committed.",
        "Kafka's error and the partition in the message",
    ),
    _rows.unavailable(
        "PRODUCER_FENCED",
        "end one of them if two senders have one transactional id; if the transaction took longer "
        "than kafka.transaction.timeout.ms, raise it, and where it is more than the brokers' "
        "transaction.max.timeout.ms that too, or make batches smaller",
        "Another sender of the transactional id began, or the transaction took too long. What this "
        "one had not committed is aborted, and it sends nothing more.",
        "the transactional id in the message: `kafka-transactions.sh describe "
        "--transactional-id ID`",
    ),
    _rows.invalid(
        "TRANSACTION_REFUSED",
        "change what Kafka's error in the message is about: transaction.timeout.ms is at most the "
        "brokers' transaction.max.timeout.ms, the group of the marks has no members, and the mark "
        "fits in offset.metadata.max.bytes",
        "A broker refuses a step of a transaction, and would refuse it again.",
        "Kafka's error in the message",
    ),
    _rows.invalid(
        "OTHER_TOPIC",
        "give the topic to which the query has written; for another one start with a checkpoint of "
        "its own, and startingOffsets that say from where on",
        "The query's last batch went to other topics, or these lack it, as one does that was "
        "deleted and made again. Nothing was sent: what the query has read so far would not come "
        "into the topic.",
        "the batch in the message, and the checkpoint's manifests",
    ),
    _rows.invalid(
        "TOPIC_OUTPUT_FORGOTTEN",
        "look whether the topic has rows of the batch, with isolation.level=read_committed; then "
        'start once with if_forgotten="send" if it has none of them, or with "skip" if it has '
        'them all: "send" doubles rows that are there, "skip" loses those that are not',
        "A batch was decided and perhaps sent, the query ended before it could write that down, "
        "and Kafka does not know any more whether it was sent: it forgets a group's offsets after "
        "offsets.retention.minutes, and where somebody deletes the group or the topic. Nothing was "
        "sent since.",
        "the group in the message: `kafka-consumer-groups --describe --group GROUP`",
    ),
)
