"""Timers for which the function raised: as people are told of them, and the letters of those that
were given up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

from keyrange.model.offsets import TopicPartition
from keyrange.work.model.outcome import Cause

if TYPE_CHECKING:
    from keyrange.individual_commits.batch_deliveries import BatchPlan
    from keyrange.individual_commits.table.dead_letters import TimerLetter

_KINDS_SHOWN: Final = 3


class FailedTimer(NamedTuple):
    """As a task hands it on; the fields of member `failed_timer` of `work/outcome_rows.py`."""

    topic: str
    partition: int
    key: bytes
    key_hash: int
    at_us: int
    deliveries: int
    cause: int
    error: str | None
    frames: list[str] | None
    given_up: bool


FAILED_TIMERS: Final = {"failed_timer": FailedTimer._fields}


def failed_timers_text(rows: Iterable[FailedTimer]) -> str:
    """Failed timers in one line; "" of none. Of an error the name of its exception alone: its text
    may quote a state."""
    kinds: Counter[str] = Counter()
    firsts: dict[str, str] = {}
    given_up = 0
    for each in rows:
        name = (each.error or "").partition(":")[0]
        kinds[name] += 1
        partition = TopicPartition(each.topic, each.partition)
        place = f"key hash {each.key_hash} of {partition}, due at {each.at_us} us"
        firsts.setdefault(name, place)
        given_up += bool(each.given_up)
    if not kinds:
        return ""
    shown = ", ".join(
        f"{name} {count} (such as {firsts[name]})"
        for name, count in kinds.most_common(_KINDS_SHOWN)
    )
    return f"{kinds.total():,} timers failed, {given_up:,} of them for the last time: {shown}"


def timer_letters(plan: BatchPlan, failed: Iterable[FailedTimer], now_ms: int) -> list[TimerLetter]:
    """A letter for each timer that a batch gave up."""
    from keyrange.individual_commits.table.dead_letters import TimerLetter

    planned = plan.planned
    return [
        TimerLetter(
            group=plan.commits.group,
            source_id=planned.mark.source_id,
            query_id=planned.query_id,
            batch_id=planned.batch_id,
            topic=each.topic,
            topic_id=planned.end.topic_ids.get(each.topic, ""),
            partition=each.partition,
            key=each.key,
            timer_at_us=each.at_us,
            error=each.error or "",
            frames=tuple(each.frames or ()),
            cause=Cause(each.cause),
            attempts=each.deliveries,
            last_at_ms=now_ms,
        )
        for each in failed
        if each.given_up
    ]
