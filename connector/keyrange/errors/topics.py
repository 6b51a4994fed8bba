"""The rows of the catalogue about writing to topics: rows that become no records."""

from __future__ import annotations

from typing import Final

from keyrange.errors.condition import Rows

_rows = Rows()

TOPIC_CONDITIONS: Final = (
    _rows.invalid(
        "INVALID_TOPIC_COLUMNS",
        "give the rows a column value and, where they are wanted, key, headers, timestamp and "
        "partition, each of the type in the message",
        "The columns of rows for a topic are not those of a record. Nothing was sent.",
        "the column and the type in the message",
    ),
    _rows.invalid(
        "INVALID_RECORD",
        "give the row's headers names, a timestamp that the topic takes, and a partition that the "
        "topic has",
        "A row cannot become a record of the topic, or the broker refused its record. The "
        "transaction that had it, if there was one, was aborted.",
        "the row in the message; message.timestamp.type, message.timestamp.before.max.ms and "
        "message.timestamp.after.max.ms of the topic",
    ),
    _rows.invalid(
        "MESSAGE_TOO_LARGE",
        "make the row smaller, or raise max.request.size and the topic's max.message.bytes",
        "A record is larger than the producer sends or the topic takes. The transaction that had "
        "it, if there was one, was aborted.",
        "the row and its size in the message: `kafka-configs --describe --topic TOPIC`",
    ),
)
