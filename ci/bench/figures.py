"""What a benchmark yields: figures, the targets they are held to, and medians of runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True, slots=True)
class Figure:
    """One number with the spread of the runs it comes from."""

    name: str
    value: float
    unit: str
    minimum: float
    maximum: float
    samples: list[float]

    @property
    def runs(self) -> int:
        return len(self.samples)


@dataclass(frozen=True, slots=True)
class Target:
    """What a figure must reach."""

    limit: float
    at_least: bool

    def met(self, value: float) -> bool:
        return value >= self.limit if self.at_least else value <= self.limit

    def __str__(self) -> str:
        return f"{'>=' if self.at_least else '<='} {self.limit:g}"


def at_least(limit: float) -> Target:
    return Target(limit, at_least=True)


def at_most(limit: float) -> Target:
    return Target(limit, at_least=False)


def from_runs(name: str, values: Sequence[float], unit: str) -> Figure:
    """The median of some runs."""
    return Figure(name, median(values), unit, min(values), max(values), list(values))


def highest(name: str, values: Sequence[float], unit: str) -> Figure:
    """The highest of some runs, for a bound that has to hold in every one."""
    return Figure(name, max(values), unit, min(values), max(values), list(values))


def ratio(name: str, ours: Sequence[float], theirs: Sequence[float]) -> Figure:
    """The median of the ratios of pairs, which ran next to each other.

    Not the ratio of two medians: those may come from different rounds, so that a busy moment of the
    machine counts against one side alone, and the result may lie outside the spread of the pairs.
    """
    return from_runs(name, [a / b for a, b in zip(ours, theirs, strict=True)], "ratio")


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that `share` of all values do not exceed (nearest rank)."""
    ordered = sorted(values)
    return ordered[max(math.ceil(share * len(ordered)) - 1, 0)]
