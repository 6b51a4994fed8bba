"""State diagrams, drawn from the transition tables.

`PYTHONPATH=connector python tests/commands/diagrams.py members` prints what design-members.md
shows, `volumes` what design-guard.md shows.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from keyrange.guard.model import enforcement_states, throttle_factor
from keyrange.members.model import group_member_states, membership_states

_DOT: Final = "[*]"


@dataclass(frozen=True)
class Diagram:
    """A table (state, event) to state, and how it is drawn.

    Where `begins_unknown`, `begin` is no state to draw but Mermaid's dot.
    """

    title: str
    transitions: Mapping[tuple[Any, Any], Any]
    begin: StrEnum
    ends: Collection[StrEnum] = ()
    begins_unknown: bool = False

    def mermaid(self) -> str:
        """Without what changes nothing; events between the same two states share an arrow."""
        names = {self.begin: _DOT} if self.begins_unknown else {}
        arrows: dict[tuple[str, str], list[str]] = {}
        for (source, event), target in self.transitions.items():
            if source != target:
                ends = names.get(source, str(source)), names.get(target, str(target))
                arrows.setdefault(ends, []).append(str(event))
        lines = ["```mermaid", "stateDiagram-v2"]
        if not self.begins_unknown:
            lines.append(f"    {_DOT} --> {self.begin}")
        for (left, right), events in arrows.items():
            lines.append(f"    {left} --> {right}: {' / '.join(events)}")
        lines += [f"    {end} --> {_DOT}" for end in sorted(map(str, self.ends))]
        return "\n".join([*lines, "```"])


CHAPTERS: Final = {
    "members": (
        Diagram(
            "A name, as the driver or the group's leader sees it (`membership_states.py`)",
            membership_states.TRANSITIONS,
            membership_states.MembershipState.UNKNOWN,
            begins_unknown=True,
        ),
        Diagram(
            "A member of a group, as its own process sees it (`group_member_states.py`)",
            group_member_states.TRANSITIONS,
            group_member_states.GroupState.UNJOINED,
            group_member_states.ENDS,
        ),
    ),
    "volumes": (
        Diagram(
            "The state behind the throttle factor (`throttle_factor.py`)",
            throttle_factor.TRANSITIONS,
            throttle_factor.ThrottleState.UNKNOWN,
        ),
        Diagram(
            "A guard that enforces (`enforcement_states.py`)",
            enforcement_states.TRANSITIONS,
            enforcement_states.GuardState.UNKNOWN,
        ),
    ),
}


def chapter(name: str) -> str:
    """The diagrams of `members` or `volumes`, with a line above each."""
    return "\n\n".join(f"{each.title}:\n\n{each.mermaid()}" for each in CHAPTERS[name])


if __name__ == "__main__":
    print(chapter(sys.argv[1]))
