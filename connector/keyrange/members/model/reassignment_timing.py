"""Who takes part, and when key ranges are assigned anew: as seldom as can be.

A static member that is missing keeps its ranges until it is back or `registration_ms` are over,
counted from the one that has been missing longest: then all that are missing lose theirs, in one
reassignment. A dynamic one that is missing will not come back under its name, and loses them at
once. Members that join are gathered for `expansion_ms` from the first of them, and taken in
together; so is one whose capacity has changed. A reassignment for whatever reason takes in all that
have joined. Nobody loses anything while no member is there to take it.

Where somebody has said how many members there are to be, and so many are there, nobody is waited
for: who joins is taken in, and who is missing loses its ranges, in one reassignment. Any other
number changes nothing: a member that never comes does not hold up the others, and who is there is
not put out.

Times are ms of any clock that the caller reads. What counts is how much of it passes: a step back
adds nothing to a timer and takes nothing from it, and the time between `to_json` and `from_json`
does not count either. After a restart of the driver members may need their time to come back.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from keyrange.errors import error
from keyrange.members.model.membership_states import (
    ASSIGNED,
    GATHERED,
    PRESENT,
    TRANSITIONS,
    MemberEvent,
    MembershipState,
)

_VERSION: Final = 1
_NAME_CHARACTERS_MAX: Final = 249


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long a static member may be missing, and how long members that join are gathered."""

    registration_ms: int
    expansion_ms: int


@dataclass(frozen=True, slots=True)
class Present:
    """A member that is there; `capacity` is what its share is in proportion to, such as cores."""

    name: str
    is_static: bool
    capacity: float = 1.0


@dataclass(frozen=True, slots=True)
class MemberState:
    """A name that is kept; it stands so since `since_ms`, on the caller's clock."""

    standing: MembershipState
    is_static: bool
    capacity: float
    since_ms: int
    # What its share was computed with; None for one that has none.
    assigned_capacity: float | None = None


@dataclass(frozen=True, slots=True)
class Reassign:
    """Assign anew to exactly these, name to capacity; `reason` is for people."""

    reason: str
    members: Mapping[str, float]
    forced: bool = field(default=False, compare=False)


class Membership:
    """The state; all methods that take `now_ms` let time pass.

    In order, between two batches: `observe`, `due`; if it answers something, write the assignment
    and then say `applied`.
    """

    def __init__(self, timeouts: Timeouts, expected: int | None = None) -> None:
        """`expected`: how many members there are to be by the options; None where these do not."""
        self._timeouts = timeouts
        self._option = expected
        # What counts: a command may have said another number.
        self.expected = expected
        # Their since_ms is time that has passed here, not the caller's.
        self._states: dict[str, MemberState] = {}
        self._forced = False
        self._passed_ms = 0
        self._now_ms: int | None = None

    @property
    def members(self) -> dict[str, MemberState]:
        """All names that are kept."""
        shift_ms = (self._now_ms or 0) - self._passed_ms
        return {
            name: replace(state, since_ms=state.since_ms + shift_ms)
            for name, state in sorted(self._states.items())
        }

    @property
    def standings(self) -> dict[str, str]:
        return {name: str(state.standing) for name, state in sorted(self._states.items())}

    @property
    def taken_in(self) -> dict[str, float]:
        """Those that have ranges, and the capacity that these were computed with."""
        return {
            name: state.assigned_capacity
            for name, state in sorted(self._states.items())
            if state.assigned_capacity is not None
        }

    def observe(self, present: Collection[Present], now_ms: int) -> None:
        """Take in who is there, all of them; who is not named is missing from this time on.

        Raises NO_STATIC_MEMBER_INFO_SET and DUPLICATE_STATIC_MEMBER, and takes nothing in then.
        """
        _check(present)
        self._pass(now_ms)
        seen = {each.name: each for each in present}
        for name in self._states.keys() - seen.keys():
            self._sign(name, MemberEvent.MISSING)
        for name, each in seen.items():
            before = self._states.get(name)
            share = before.assigned_capacity if before is not None else None
            resized = share is not None and share != each.capacity
            self._sign(name, MemberEvent.SEEN_RESIZED if resized else MemberEvent.SEEN, each)

    def remove(self, name: str, now_ms: int) -> bool:
        """Take a name out at once, by command; whether there is one. If it is alive it joins."""
        self._pass(now_ms)
        if name not in self._states:
            return False
        self._sign(name, MemberEvent.REMOVE)
        return True

    def force(self, now_ms: int) -> None:
        """Assign anew as soon as can be, by command, to those who are there and nobody else."""
        self._pass(now_ms)
        self._forced = True

    def scale(self, expected: int, now_ms: int) -> None:
        """Say how many members there are to be, by command."""
        self._pass(now_ms)
        self.expected = expected

    @property
    def _is_complete(self) -> bool:
        return self.expected is not None and len(self._named(PRESENT)) == self.expected

    def due(self, now_ms: int) -> Reassign | None:
        """The reassignment whose time has come; the same one until it is `applied`."""
        self._pass(now_ms)
        states = self._states
        if not self._named(PRESENT):
            return None
        lost = [name for name in self._leaving() if self._patience_ms(name) <= self._passed_ms]
        is_overdue = any(
            states[name].is_static and states[name].standing is MembershipState.ABSENT
            for name in lost
        )
        if self._forced or is_overdue or self._is_complete:
            lost = self._leaving()
        joined = [name for name in self._named(GATHERED) if name not in lost]
        gathered = joined and (self._is_complete or self._gathered_ms() <= self._passed_ms)
        if not (self._forced or lost or gathered):
            return None
        stay = sorted(states.keys() - set(lost))
        return Reassign(
            self._reason(lost, joined), {name: states[name].capacity for name in stay}, self._forced
        )

    def applied(self, reassign: Reassign, now_ms: int) -> None:
        """Say that the assignment to these members is written."""
        self._pass(now_ms)
        if reassign.forced:
            self._forced = False
        for name, capacity in reassign.members.items():
            # A name that has vanished since counts as static: it has ranges, and time to come back.
            gone = Present(name, True, capacity)
            self._sign(name, MemberEvent.TAKEN_IN, gone if name not in self._states else None)
            state = self._states[name]
            if state.capacity != capacity and state.standing is MembershipState.ASSIGNED:
                state = replace(state, standing=MembershipState.RESIZED)
            self._states[name] = replace(state, assigned_capacity=capacity)
        for name in self._states.keys() - reassign.members.keys():
            self._sign(name, MemberEvent.LEFT_OUT)

    def copy(self) -> Membership:
        """One that goes on from here by itself."""
        made = Membership(self._timeouts, self._option)
        made.expected = self.expected
        made._states = dict(self._states)
        made._forced, made._passed_ms = self._forced, self._passed_ms
        made._now_ms = self._now_ms
        return made

    def next_due_ms(self) -> int | None:
        """When `due` will answer something if nothing else happens, on the caller's clock."""
        if self._now_ms is None or not self._named(PRESENT):
            return None
        times = [self._patience_ms(name) for name in self._leaving()]
        if self._named(GATHERED):
            times.append(self._gathered_ms())
        if self._forced:
            times.append(self._passed_ms)
        if not times:
            return None
        if self._is_complete:
            return self._now_ms
        return self._now_ms + max(min(times) - self._passed_ms, 0)

    def to_json(self) -> dict[str, Any]:
        """What `from_json` reads: times as how long ago. For people `dueInMs` is beside it: when
        `due` will answer something."""
        due_ms = self.next_due_ms()
        members = {
            name: {
                "standing": str(state.standing),
                "static": state.is_static,
                "capacity": state.capacity,
                "assignedCapacity": state.assigned_capacity,
                "forMs": self._passed_ms - state.since_ms,
            }
            for name, state in sorted(self._states.items())
        }
        return {
            "version": _VERSION,
            "forced": self._forced,
            "expected": self.expected,
            "expectedByOption": self._option,
            "members": members,
            "dueInMs": None if due_ms is None else due_ms - (self._now_ms or 0),
        }

    @classmethod
    def from_json(
        cls, document: Any, timeouts: Timeouts, now_ms: int, expected: int | None = None
    ) -> Membership:
        """Go on from `now_ms` with timers as they stood; raises INVALID_ASSIGNMENT. What a command
        has said of the number of members counts until the option `expected` is another one."""
        membership = cls(timeouts, expected)
        try:
            if document["version"] != _VERSION:
                raise ValueError(f"it is of version {document['version']}")
            forced, members = document["forced"], document["members"]
            states = {_read_name(name): _read_state(each) for name, each in members.items()}
            if not isinstance(forced, bool):
                raise ValueError("'forced' is neither true nor false")
            counts = _read_count(document["expected"]), _read_count(document["expectedByOption"])
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as failure:
            raise error(
                "INVALID_ASSIGNMENT", f"the membership's state cannot be read: {failure!r}"
            ) from None
        membership._forced = forced
        membership._states = states
        if counts[1] == expected:
            membership.expected = counts[0]
        membership._now_ms = now_ms
        return membership

    def _pass(self, now_ms: int) -> None:
        before_ms = now_ms if self._now_ms is None else self._now_ms
        self._passed_ms += max(now_ms - before_ms, 0)
        self._now_ms = now_ms

    def _sign(self, name: str, sign: MemberEvent, seen: Present | None = None) -> None:
        before = self._states.get(name)
        standing = TRANSITIONS[before.standing if before else MembershipState.UNKNOWN, sign]
        if standing is MembershipState.UNKNOWN:
            self._states.pop(name, None)
            return
        if before is None:
            assert seen is not None
            before = MemberState(
                MembershipState.UNKNOWN, seen.is_static, seen.capacity, self._passed_ms
            )
        state = before
        if seen is not None:
            state = replace(state, is_static=seen.is_static, capacity=seen.capacity)
        if standing is not before.standing:
            state = replace(state, standing=standing, since_ms=self._passed_ms)
        if standing is MembershipState.JOINING:
            state = replace(state, assigned_capacity=None)
        self._states[name] = state

    def _named(self, standings: Collection[MembershipState]) -> list[str]:
        return sorted(name for name, each in self._states.items() if each.standing in standings)

    def _leaving(self) -> list[str]:
        return self._named({MembershipState.ABSENT, MembershipState.REMOVED})

    def _patience_ms(self, name: str) -> int:
        """Until when a name that is missing or removed keeps its ranges."""
        state = self._states[name]
        waits = state.standing is MembershipState.ABSENT and state.is_static
        return state.since_ms + (self._timeouts.registration_ms if waits else 0)

    def _gathered_ms(self) -> int:
        first_ms = min(self._states[name].since_ms for name in self._named(GATHERED))
        return first_ms + self._timeouts.expansion_ms

    def _reason(self, lost: Collection[str], joined: Collection[str]) -> str:
        by: dict[str, list[str]] = {"forced": []} if self._forced else {}
        for name in lost:
            removed = self._states[name].standing is MembershipState.REMOVED
            by.setdefault("removed" if removed else "lost", []).append(name)
        for name in joined:
            resized = self._states[name].standing is MembershipState.RESIZED
            by.setdefault("resized" if resized else "joined", []).append(name)
        return "; ".join(
            f"{what}: {', '.join(names)}" if names else what for what, names in by.items()
        )


def _check(present: Collection[Present]) -> None:
    names: set[str] = set()
    for each in present:
        if not each.name.strip():
            raise error("NO_STATIC_MEMBER_INFO_SET", "a member has no name")
        if each.name in names:
            raise error("DUPLICATE_STATIC_MEMBER", "two members have one name", name=each.name)
        if not 0 < each.capacity < float("inf"):
            raise ValueError(f"{each.name} has capacity {each.capacity}")
        names.add(each.name)


def _read_name(name: Any) -> str:
    if not isinstance(name, str) or not 0 < len(name) <= _NAME_CHARACTERS_MAX:
        raise ValueError(f"{str(name)[:80]!r} is no name")
    return name


def _read_count(document: Any) -> int | None:
    if document is not None and (type(document) is not int or document < 1):
        raise ValueError(f"{str(document)[:80]!r} is no number of members")
    return document


def _read_state(document: Any) -> MemberState:
    standing = MembershipState(document["standing"])
    assigned = document["assignedCapacity"]
    since_ms = document["forMs"]
    if standing is MembershipState.UNKNOWN or (assigned is not None) != (standing in ASSIGNED):
        raise ValueError(f"{standing} with a share of {assigned}")
    for number in (document["capacity"], 1 if assigned is None else assigned):
        if type(number) not in (int, float) or not 0 < float(number) < float("inf"):
            raise ValueError(f"{number} is no capacity")
    if not isinstance(document["static"], bool) or type(since_ms) is not int or since_ms < 0:
        raise ValueError("'static' or 'forMs' is not what it has to be")
    return MemberState(
        standing,
        document["static"],
        float(document["capacity"]),
        -since_ms,
        None if assigned is None else float(assigned),
    )
