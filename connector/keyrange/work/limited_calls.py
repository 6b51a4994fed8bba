"""Calls of a user's function that have a time limit, and what they come to where they fail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from keyrange.work.model.outcome import Cause
from keyrange.work.model.time_limits import Allowance
from keyrange.work.record_alarm import RecordTimeout
from keyrange.work.records import WrongResult
from keyrange.work.task_context import Task
from keyrange.work.user_errors import FAILURES, NOTHING, Said, overtime, said_of


@dataclass(frozen=True, slots=True)
class Failed:
    """Why a function has not done what it was given. `cause` is None where that is handed back: the
    time of the batch is up, and the function is not at fault."""

    cause: Cause | None
    why: Said


_HANDED_BACK: Final = Failed(None, NOTHING)


def called(
    task: Task, function: Callable[[Any], Any], given: Any, count: int, allowance: Allowance
) -> tuple[Any, Failed | None]:
    """What a function answers that is given `count` records, or timers of so many keys; or why it
    fails. Raises what the job is at fault for (`WrongResult`)."""
    try:
        answered = task.alarm.call(function, given, allowance.timeout_ms)
    except RecordTimeout as failure:
        if task.limits.hands_back(allowance, count, task.alarm.now_ms()):
            return None, _HANDED_BACK
        return None, Failed(Cause.TIMED_OUT, overtime(failure, allowance.timeout_ms))
    except WrongResult as failure:
        raise failure.error from None
    except FAILURES as failure:
        return None, Failed(Cause.REJECTED, said_of(failure))
    task.limits.settled()
    return answered, None
