"""What a group is, what it is given, and where groups are found.

A new group is a new file in `bench/groups` that holds a `GROUP`: nothing else has to be changed.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeVar

from bench import groups
from bench.figures import Figure, Target

Scale = Literal["full", "quick", "tiny"]
T = TypeVar("T")
# How many measured runs each side gets.
REPETITIONS: Mapping[Scale, int] = {"full": 5, "quick": 3, "tiny": 1}


@dataclass(frozen=True)
class Bench:
    """What a group is given. `directory` is empty and goes away after the run."""

    group: str
    scale: Scale
    bootstrap_servers: str
    directory: Path
    started: float = field(default_factory=time.monotonic)

    def pick(self, *, full: T, quick: T, tiny: T) -> T:
        """The value for the scale of this run."""
        return {"full": full, "quick": quick, "tiny": tiny}[self.scale]

    @property
    def runs(self) -> int:
        """How many measured runs each side gets."""
        return REPETITIONS[self.scale]

    def progress(self, text: str) -> None:
        """A line for who waits."""
        seconds = time.monotonic() - self.started
        print(f"[{self.group} {seconds:4.0f} s] {text}", file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Group:
    """Some figures that are measured together, in a process of their own.

    Figures leave `run` as soon as they are known. `order` says where the group comes in the table.
    `own_broker` is for groups that need none, or start one of other settings themselves.
    """

    name: str
    order: int
    run: Callable[[Bench], Iterator[Figure]]
    targets: Mapping[str, Target] = field(default_factory=dict)
    own_broker: bool = False


def all_groups() -> list[Group]:
    """Every group there is, in the order of the table."""
    modules = (
        importlib.import_module(f"{groups.__name__}.{found.name}")
        for found in pkgutil.iter_modules(groups.__path__)
    )
    found = [module.GROUP for module in modules if hasattr(module, "GROUP")]
    return sorted(found, key=lambda group: (group.order, group.name))
