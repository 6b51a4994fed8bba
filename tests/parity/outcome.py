"""What a scenario says, and what playing it comes to: facts that can be compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Rows = tuple[tuple[Any, ...], ...]


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """One row of a table.

    `topics` are read by both sides and never altered; `own` are made anew for each side. In
    `options`, `<name>` stands for the real name of a topic. `expect` is what `kafka` does, in the
    words of `Outcome.result`. `tasks` are the tasks that it makes of each batch; they are compared
    where they are given.
    """

    name: str
    expect: str
    play: Callable[[Any], None]
    topics: tuple[str, ...] = ()
    own: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    keyrange_only: Mapping[str, str] = field(default_factory=dict)
    tasks: str = ""
    slow: bool = False


@dataclass
class Run:
    """One read, or one run of a query: where it ended (`done`, or the phase of its failure), the
    rows of each batch (a read has one), and what Spark wrote and counted for each batch."""

    ended: str = "done"
    cause: str = ""
    batches: list[Rows] = field(default_factory=list)
    offsets: list[str] = field(default_factory=list)
    input_rows: list[int] = field(default_factory=list)
    tasks: list[int] = field(default_factory=list)
    schema: str = ""

    def result(self, whole: bool) -> str:
        """Rows of each batch, or of all where batches are cut by chance; and how it failed."""
        sizes = [len(rows) for rows in self.batches]
        counts = "+".join(map(str, sizes if whole else [sum(sizes)]))
        read = [f"{counts} rows"] if sizes else []
        failed = [f"{self.ended}: {self.cause}"] if self.ended != "done" else []
        return ", ".join(read + failed) or "no batch"


class Outcome:
    """What one side made of a scenario, as facts that can be compared."""

    def __init__(self, runs: Sequence[tuple[Run, bool]], notes: Sequence[str]) -> None:
        self._runs = runs
        self.notes = notes
        self.result = " | ".join(run.result(whole) for run, whole in runs)
        if notes:
            self.result = " | ".join(filter(None, [self.result, *notes]))

    def fact(self, name: str) -> str:
        """A fact as text; `rows` are told by what they hold, the others are lists by batch."""
        of_runs = []
        for run, whole in self._runs:
            if name == "rows":
                rows = sorted((row for batch in run.batches for row in batch), key=repr)
                of_runs.append(str(run.batches if whole else rows))
            elif name == "schema":
                of_runs.append(run.schema)
            elif whole:
                of_runs.append(" ".join(map(str, getattr(run, name))) or "none")
        return " | ".join(of_runs)


def differing(scenario: Scenario, kafka: Outcome, keyrange: Outcome) -> dict[str, str]:
    """What keyrange says where it differs, by fact. With another result no more is looked at."""
    if kafka.result != keyrange.result:
        return {"result": keyrange.result}
    facts = ["rows", "schema", "offsets", "input_rows", *(["tasks"] if scenario.tasks else [])]
    return {name: keyrange.fact(name) for name in facts if kafka.fact(name) != keyrange.fact(name)}
