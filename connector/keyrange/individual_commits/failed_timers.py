"""Timers for which the function raised, as people are told of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

from keyrange.model.offsets import TopicPartition

FAILED_TIMERS: Final = {
    "failed_timer": ("topic", "partition", "key_hash", "at_us", "error", "given_up")
}
_KINDS_SHOWN: Final = 3


def failed_timers_text(rows: Iterable[tuple[Any, ...]]) -> str:
    """Rows with the fields of `FAILED_TIMERS` in one line; "" of none. Of an error the name of its
    exception alone: its text may quote a state."""
    kinds: Counter[str] = Counter()
    firsts: dict[str, str] = {}
    given_up = 0
    for topic, number, key_hash, at_us, text, is_last in rows:
        name = (text or "").partition(":")[0]
        kinds[name] += 1
        place = f"key hash {key_hash} of {TopicPartition(topic, number)}, due at {at_us} us"
        firsts.setdefault(name, place)
        given_up += bool(is_last)
    if not kinds:
        return ""
    shown = ", ".join(
        f"{name} {count} (such as {firsts[name]})"
        for name, count in kinds.most_common(_KINDS_SHOWN)
    )
    return f"{kinds.total():,} timers failed, {given_up:,} of them for the last time: {shown}"
