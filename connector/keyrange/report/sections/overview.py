"""What somebody wants to know first: in which state the query is and why, and what to do."""

from __future__ import annotations

from keyrange.report.page_parts import Section, Sources
from keyrange.text.formats import number


def overview_section(sources: Sources) -> Section:
    """The chapter on top."""
    partitions = len(sources.checkpoint["positions"])
    facts = [*sources.state.facts, ("partitions", number(partitions)), *_letters(sources)]
    return Section("overview", "State", facts, state=sources.state)


def _letters(sources: Sources) -> list[tuple[str, str]]:
    known = sources.letters.document
    if known is None:
        return []
    dead = sum(row["status"] == "dead" for row in known)
    return [("dead letters", number(dead) if dead else "none")]
