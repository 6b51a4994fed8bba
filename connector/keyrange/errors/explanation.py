"""What is told of a condition beside its remedy."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Explanation:
    """One condition in words, for the person who meets it.

    `meaning` is what has happened, and what has not. `look` is what to look at next. `guide` names
    a page of the guides, or is empty.
    """

    meaning: str
    look: str
    guide: str = ""
