"""Text that fits a width without a word being cut."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence


def wrapped(paragraph: str, width: int, first: str = "", others: str | None = None) -> list[str]:
    """Lines of at most `width`, except where a single word is longer: names are never cut."""
    return textwrap.wrap(
        paragraph,
        width,
        initial_indent=first,
        subsequent_indent=first if others is None else others,
        break_long_words=False,
        break_on_hyphens=False,
    )


def fitted(natural: Sequence[int], least: Sequence[int], room: int) -> list[int] | None:
    """Widths of columns that take no more than `room` together. The widest ones lose first, and
    none is less wide than its longest word, `least`; None where there is no room for that."""
    if sum(least) > room:
        return None
    widths, level = list(natural), max(natural, default=0)
    while sum(widths) > room:
        level -= 1
        pairs = zip(natural, least, strict=True)
        widths = [max(low, min(each, level)) for each, low in pairs]
    return widths


def as_paragraph(columns: Sequence[str], row: Sequence[str], width: int) -> Iterator[str]:
    """A row of a table that is too wide: its cells by name, the first one on a line of its own."""
    named = zip(columns, row, strict=True)
    first, *others = (f"{name} {cell}".strip() if cell else "" for name, cell in named)
    yield from wrapped(first, width, "  ", "    ")
    yield from wrapped(", ".join(filter(None, others)), width, "      ")


def as_entry(name: str, value: str, width: int) -> Iterator[str]:
    """A named value that does not fit beside its name; its own lines stay lines."""
    head, *others = value.splitlines() or [""]
    yield from wrapped(f"{name}: {head}", width, "  ", "      ")
    for line in others:
        yield from wrapped(line, width, "      ") or [""]
