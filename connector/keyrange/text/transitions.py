"""Tables of state machines, as text: which events lead from which states to which."""

from __future__ import annotations

from enum import Enum
from typing import TypeVar

_State = TypeVar("_State", bound=Enum)
_Event = TypeVar("_Event", bound=Enum)


def transitions(
    states: type[_State], events: type[_Event], table: str
) -> dict[tuple[_State, _Event], _State]:
    """A table, by state. Its lines are `EVENT EVENT: STATE STATE -> STATE`, with `same` for the
    state that it leads from; `#` begins a comment."""
    found: dict[tuple[_State, _Event], _State] = {}
    for line in filter(None, (each.partition("#")[0].strip() for each in table.splitlines())):
        signs, _, ways = line.partition(": ")
        sources, _, target = ways.partition(" -> ")
        for source in sources.split():
            for sign in signs.split():
                to = states[source if target == "same" else target]
                found[states[source], events[sign]] = to
    order = list(states)
    return dict(sorted(found.items(), key=lambda each: order.index(each[0][0])))
