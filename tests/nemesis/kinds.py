"""Every kind of fault: how long it lasts, what it needs, and what may come of it by design."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of fault.

    `hold_s` is how long it lasts before it is healed, from and to, in seconds. `needs` names what a
    mode has to have (`modes.py`). A query may end with one of `ends` because of it, by an error's
    name; KILLED is an end without one. With `fences` the query that runs ends so whenever it
    commits next. With `loses` records are gone by design; while it `cuts_off` no broker can be
    reached, or hardly.
    """

    hold_s: tuple[float, float] = (0.0, 0.0)
    needs: frozenset[str] = frozenset()
    ends: frozenset[str] = frozenset()
    loses: bool = False
    cuts_off: bool = False
    fences: bool = False


def _kind(
    *needs: str,
    hold_s: tuple[float, float] = (0.0, 0.0),
    ends: str = "",
    loses: bool = False,
    cuts_off: bool = False,
    fences: bool = False,
) -> Kind:
    return Kind(hold_s, frozenset(needs), frozenset(ends.split()), loses, cuts_off, fences)


# Shorter and longer than the session of the members, which is 10 s.
_SHORT: Final = (1.0, 6.0)
_LONG: Final = (13.0, 20.0)
# Long enough for key ranges to move.
_AWAY: Final = (15.0, 50.0)
# A table or a checkpoint that cannot be written ends a query: nothing else can be done.
_UNWRITABLE: Final = (
    "COMMITS_UNWRITABLE SINK_UNWRITABLE VERDICT_UNWRITABLE STATE_UNWRITABLE NO_SPACE"
)
_DENIED: Final = (
    f"{_UNWRITABLE} COMMITS_UNREADABLE CHECKPOINT_UNREADABLE VERDICT_UNREADABLE STATE_UNREADABLE "
    "ASSIGNMENT_UNREADABLE ASSIGNMENT_UNWRITABLE "
    # The checkpoint is there too, and Spark names no error of its own.
    "STREAM_FAILED"
)
_FENCED: Final = "COMMITS_FENCED CONCURRENT_QUERY ASSIGNMENT_CHANGED"

KINDS: Final[dict[str, Kind]] = {
    "kill-driver": _kind("spark", ends="KILLED"),
    "change-options": _kind("spark", ends="KILLED"),
    "kill-executor": _kind("executors"),
    "kill-executors": _kind("executors"),
    "kill-worker": _kind("executors"),
    "roll-executors": _kind("executors"),
    "add-host": _kind("hosts", hold_s=_AWAY),
    "lose-host": _kind("hosts", hold_s=_AWAY),
    "kill-member": _kind("members"),
    "kill-consumer": _kind("consumers"),
    "pause-driver": _kind("spark", hold_s=_SHORT),
    "stall-driver": _kind("spark", hold_s=_LONG),
    "pause-executor": _kind("executors", hold_s=_SHORT),
    "stall-executor": _kind("executors", hold_s=_LONG),
    "pause-worker": _kind("executors", hold_s=_SHORT),
    "pause-member": _kind("members", hold_s=_SHORT),
    "stall-member": _kind("members", hold_s=_LONG),
    "pause-consumer": _kind("consumers", hold_s=_SHORT),
    "stall-consumer": _kind("consumers", hold_s=_LONG),
    "kill-broker": _kind(hold_s=(1.0, 6.0), cuts_off=True),
    "restart-broker": _kind(cuts_off=True),
    "move-leader": _kind("three"),
    "move-coordinator": _kind("three", "senders", hold_s=(1.0, 6.0), cuts_off=True),
    "unclean-election": _kind("three", hold_s=(3.0, 6.0), loses=True, cuts_off=True),
    "recreate-topic": _kind(hold_s=(0.0, 2.0), loses=True),
    "add-partition": _kind(),
    "delete-done": _kind("spark"),
    "delete-ahead": _kind(loses=True),
    "empty-memory": _kind("private", "executors"),
    "fill-memory": _kind("private", "executors", hold_s=(3.0, 12.0)),
    "remove-slots": _kind("members"),
    "fill-disk": _kind("private", "files", hold_s=(3.0, 8.0), ends=_UNWRITABLE),
    # A store that answers some calls so, and the same one twice running at the most, ends no query.
    "slow-store": _kind("s3", hold_s=(5.0, 20.0)),
    "throttle-store": _kind("s3", hold_s=(5.0, 20.0)),
    "fail-store": _kind("s3", hold_s=(5.0, 20.0)),
    "lose-answers": _kind("s3", hold_s=(5.0, 20.0)),
    "deny-store": _kind("s3", hold_s=(3.0, 8.0), ends=_DENIED),
    # What a schema registry has told once is not asked for again, so each begins with a new schema.
    "grow-schema": _kind("registry", "spark", ends="KILLED"),
    "kill-registry": _kind("registry", hold_s=(1.0, 8.0), ends="REGISTRY_UNREACHABLE"),
    "fail-registry": _kind("registry", hold_s=(3.0, 12.0), ends="REGISTRY_UNREACHABLE"),
    "trickle": _kind("proxy", hold_s=(3.0, 15.0), cuts_off=True),
    "hang": _kind("proxy", hold_s=(3.0, 15.0), cuts_off=True),
    "cut": _kind("proxy", hold_s=(1.0, 8.0), cuts_off=True),
    "step-clock": _kind("any clock", hold_s=(2.0, 12.0)),
    # The other one may go on between the second one's looks at the checkpoint and at the commits.
    "second-driver": _kind("spark", ends=f"{_FENCED} COMMITS_AHEAD"),
    "reset-commits": _kind("individual", ends=_FENCED, fences=True),
    "replay-letters": _kind("individual", ends=_FENCED, fences=True),
    "rebalance": _kind("members"),
}


def possible(has: frozenset[str]) -> list[str]:
    """The kinds that a mode with these can suffer, in the order of the table."""
    return [name for name, kind in KINDS.items() if kind.needs <= has]
