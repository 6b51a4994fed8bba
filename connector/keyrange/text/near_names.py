"""Names that may be meant where there is none of the name that was given."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def near_names(name: str, known: Iterable[str], most: int = 1, likeness: float = 0.6) -> list[str]:
    """The known names that are most like it, the nearest first; none where none is near."""
    return difflib.get_close_matches(name, list(known), most, likeness)


def did_you_mean(names: Iterable[str]) -> str:
    """Names as the end of a sentence, behind which any mark may stand; "" where there is none."""
    meant = " or ".join(f"'{each}'" for each in names)
    return f" (did you mean {meant}?)" if meant else ""
