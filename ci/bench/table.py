"""What a table of the pages is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Table:
    """A table of one group. A row is a label and the names of its figures, one for each column."""

    group: str
    columns: tuple[str, ...]
    rows: Mapping[str, tuple[str, ...]]


def one_figure_a_row(group: str, labels: Mapping[str, str]) -> Table:
    """A table with one figure in each row."""
    return Table(group, ("figure", "value (range)"), {k: (v,) for v, k in labels.items()})
