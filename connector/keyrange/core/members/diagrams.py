"""State diagrams of a member's life, drawn from the transition tables.

`python -m keyrange.core.members.diagrams` prints what stands in ARCHITECTURE.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import TypeVar

from keyrange.core.members import group_states, member_states
from keyrange.core.members.group_states import State
from keyrange.core.members.member_states import Standing


def mermaid(
    transitions: Iterable[tuple[str, str, str]], begin: str, ends: Iterable[str] = ()
) -> str:
    """A state diagram of (from, event, to); events between the same two states share an arrow.

    A state that is the begin or an end by name `[*]` is drawn as Mermaid's dot.
    """
    arrows: dict[tuple[str, str], list[str]] = {}
    for source, event, target in transitions:
        arrows.setdefault((source, target), []).append(event)
    lines = ["```mermaid", "stateDiagram-v2"]
    if begin != "[*]":
        lines.append(f"    [*] --> {begin}")
    for (source, target), events in arrows.items():
        lines.append(f"    {source} --> {target}: {' / '.join(events)}")
    lines += [f"    {end} --> [*]" for end in ends]
    return "\n".join([*lines, "```"])


_State = TypeVar("_State", bound=StrEnum)
_Event = TypeVar("_Event", bound=StrEnum)


def _rows(table: Mapping[tuple[_State, _Event], _State]) -> list[tuple[str, str, str]]:
    """A table without what changes nothing."""
    dot = {str(Standing.UNKNOWN): "[*]"}
    return [
        (dot.get(source, source), str(event), dot.get(target, target))
        for (source, event), target in table.items()
        if source != target
    ]


def group_member() -> str:
    """A member of a Kafka group, as `group_member.py` moves it."""
    ends = sorted(str(state) for state in group_states.ENDS)
    return mermaid(_rows(group_states.TRANSITIONS), str(State.UNJOINED), ends)


def membership() -> str:
    """What a name is to the assignment, as `membership.py` moves it."""
    return mermaid(_rows(member_states.TRANSITIONS), "[*]")


def chapter() -> str:
    """Both, with a line above each."""
    return "\n\n".join(
        [
            "A name, in the eyes of who assigns (`member_states.py`):",
            membership(),
            "A member, in the eyes of its group (`group_states.py`):",
            group_member(),
        ]
    )


if __name__ == "__main__":
    print(chapter())
