"""The rows of the catalogue about the plain consumer."""

from __future__ import annotations

from typing import Final

from keyrange.errors.condition import Condition, Kind

CONSUMER_CONDITIONS: Final = (
    Condition(
        "RANGES_LOST",
        Kind.DENIED,
        False,
        "another consumer of the group has these key ranges: give each consumer ranges of its own, "
        "or call assign or subscribe again to take part",
    ),
    Condition(
        "NOT_DELIVERED",
        Kind.INVALID,
        False,
        "acknowledge only what poll returned, of key ranges that this consumer has",
    ),
    Condition(
        "GAP_TIMED_OUT",
        Kind.INVALID,
        False,
        "acknowledge the named records to leave them out, raise maxDeliveries or gap.timeout.ms, "
        "or take them with a listener's on_deliveries_spent",
    ),
    Condition(
        "INVALID_KEY_RANGES",
        Kind.INVALID,
        False,
        "give assign a dict from (topic, partition) to pairs (lo, hi), both included, that do not "
        "overlap; an empty list is the whole partition",
    ),
    Condition(
        "CONSUMER_STATE",
        Kind.INVALID,
        False,
        "call assign or subscribe, one of them, before poll, and nothing after close",
    ),
)
