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

    def reading(self, topic: str, start: str = "earliest") -> dict[str, str]:
        """What a query is told of the topic that it reads."""
        return {
            "kafka.bootstrap.servers": self.bootstrap_servers,
            "subscribe": topic,
            "startingOffsets": start,
        }

    def by_turns(
        self,
        what: str,
        sides: Mapping[str, Callable[[], float]],
        runs: int | None = None,
        warm_up: bool = True,
    ) -> dict[str, list[float]]:
        """What the runs of each side come to; every other round goes through them backwards. What
        a session does for the first time is not the sides' work: a round before does not count."""
        found: dict[str, list[float]] = {name: [] for name in sides}
        first = -self.pick(full=1, quick=1, tiny=0) if warm_up else 0
        for number in range(first, runs or self.runs):
            for name in sorted(sides, reverse=number % 2 == 1):
                value = sides[name]()
                if number >= 0:
                    found[name].append(value)
            shown = ", ".join(f"{name} {each[-1]:.3f}" for name, each in found.items() if each)
            self.progress(f"{what}: {shown or 'warmed up'}")
        return found

    def progress(self, text: str) -> None:
        """A line for who waits."""
        seconds = time.monotonic() - self.started
        print(f"[{self.group} {seconds:4.0f} s] {text}", file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Group:
    """Some figures that are measured together, in a process of their own, called as the file with
    `run`.

    Figures leave `run` as soon as they are known. `order` says where the group comes in the table.
    `own_broker` is for groups that need none, or start one of other settings themselves.
    """

    order: int
    run: Callable[[Bench], Iterator[Figure]]
    targets: Mapping[str, Target] = field(default_factory=dict)
    own_broker: bool = False

    @property
    def name(self) -> str:
        return self.run.__module__.rpartition(".")[2]


def all_groups() -> list[Group]:
    """Every group there is, in the order of the table."""
    modules = (
        importlib.import_module(f"{groups.__name__}.{found.name}")
        for found in pkgutil.iter_modules(groups.__path__)
    )
    found = [module.GROUP for module in modules if hasattr(module, "GROUP")]
    return sorted(found, key=lambda group: (group.order, group.name))
