"""The rows of the catalogue about the plain consumer."""

from __future__ import annotations

from typing import Final

from keyrange.errors.condition import Rows

_rows = Rows("consumer.md")

CONSUMER_CONDITIONS: Final = (
    _rows.denied(
        "RANGES_LOST",
        "another consumer of the group has these key ranges: give each consumer ranges of its own, "
        "or call assign or subscribe again to take part",
        "Another consumer of the group has taken over key ranges of this consumer, and receives "
        "the records that this consumer had not committed.",
        "`keyrange members history TABLE_members`: it polled too rarely, or a name is used twice",
    ),
    _rows.denied(
        "MEMBERSHIP_ENDED",
        "close this consumer, and start it again once the cause is mended: give each consumer a "
        "member.name of its own",
        "Another consumer has joined the group under this one's static name, or the group has "
        "refused this one. It has no key ranges, and does not get any again.",
        "the cause in the message; `keyrange members history TABLE_members`",
    ),
    _rows.invalid(
        "INVALID_OFFSET",
        "name offsets by whole numbers from 0 on, as records have them",
        "`acknowledge` or `seek` was given an offset that is no whole number.",
        "the value in the message",
    ),
    _rows.invalid(
        "NOT_DELIVERED",
        "acknowledge only records that poll returned, of key ranges that this consumer owns",
        "The program acknowledged offsets that this consumer has not returned.",
        "the offsets in the message; a range may have moved since poll returned them",
    ),
    _rows.invalid(
        "SEEK_REFUSED",
        "seek between committed(partition) and the end of the log; to read committed records once "
        "more, take another commitGroup with startingOffsets",
        "`seek` was given an offset below which the group has committed records, which are never "
        "handed out again, or one behind the end of the log.",
        "the partition and the offsets in the message",
    ),
    _rows.invalid(
        "GAP_TIMED_OUT",
        "acknowledge the named records to leave them out, raise maxDeliveries or gap.timeout.ms, "
        "or take them with a listener's on_deliveries_spent",
        "The consumer has returned a record `maxDeliveries` times, and nobody has acknowledged "
        "it. Later records of its key wait.",
        "the offsets in the message; `keyrange records --offset TOPIC-PARTITION:OFFSET` shows one",
    ),
    _rows.invalid(
        "INVALID_KEY_RANGES",
        "give assign a dict from (topic, partition) to pairs (lo, hi), both included, that do not "
        "overlap; an empty list is the whole partition",
        "`assign` was given ranges that overlap, or lie outside of [0, 2^63 - 1].",
        "the partition in the message",
    ),
    _rows.invalid(
        "CONSUMER_STATE",
        "call assign or subscribe, one of them, before poll, unsubscribe in between, and nothing "
        "after close; pause, position and seek are for partitions in assignment()",
        "A method was called in the wrong order, with arguments that do not go together, or from "
        "another thread.",
        "the method in the message",
    ),
)
