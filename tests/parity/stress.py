"""Topics made, deleted, made again and written to at random while a query reads them by pattern."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from brokers.real_broker import Record
from parity.harness import RUN_TIMEOUT_S, Following, Side
from parity.stage import SINCE_MS


@dataclass
class Life:
    """A topic between its creation and its deletion, and the values it was given."""

    name: str
    partitions: int
    number: int
    values: set[bytes] = field(default_factory=set)


def stress(seconds: float, seed: int) -> Callable[[Side], None]:
    """Do that for about so long, then compare what came with what was written.

    The result tells whether the query failed, and of topics that lived to the end how many values
    are missing and how many came twice. Of a topic that was deleted nothing may come twice either.
    """

    def play(side: Side) -> None:
        chance = random.Random(seed)
        lives: list[Life] = []
        dead: list[Life] = []
        until = time.monotonic() + seconds
        _born(side, lives, "stress.0")
        with side.follow() as run:
            while time.monotonic() < until:
                _step(side, chance, lives, dead)
            _settled(run, lives)
        _note(side, run, lives, dead)

    return play


def _born(side: Side, lives: list[Life], name: str, number: int = 0) -> None:
    real = f"{name}-{side.stage.token}"
    side.stage.names[name] = real
    side.topics.create_named(real, 1 + number % 3, {"retention.ms": "-1"})
    lives.append(Life(name, 1 + number % 3, number))


def _step(side: Side, chance: random.Random, lives: list[Life], dead: list[Life]) -> None:
    action = chance.choices(("write", "create", "delete", "again", "grow"), (60, 10, 6, 8, 6))[0]
    number = len(lives) + len(dead)
    if action == "create" and len(lives) < 6:
        _born(side, lives, f"stress.{number}", number)
        return
    life = chance.choice(lives[1:] or lives)
    if action in ("delete", "again") and len(lives) > 1:
        side.topics.delete_topic(side.names[life.name])
        lives.remove(life)
        dead.append(life)
        if action == "again":
            _born(side, lives, life.name, number)
        return
    if action == "grow" and life.partitions < 4:
        life.partitions += 1
        side.topics.add_partitions(side.names[life.name], life.partitions)
    _write(side, chance, life)


def _write(side: Side, chance: random.Random, life: Life) -> None:
    first = len(life.values)
    values = [b"%s/%d/%d" % (life.name.encode(), life.number, first + n) for n in range(20)]
    side.topics.produce(
        side.names[life.name],
        [Record(each, None, chance.randrange(life.partitions), SINCE_MS) for each in values],
    )
    life.values.update(values)


def _settled(run: Following, lives: list[Life]) -> None:
    expected = set().union(*(life.values for life in lives))
    deadline = time.monotonic() + RUN_TIMEOUT_S
    run.until(lambda: expected <= run.values() or time.monotonic() > deadline)


def _note(side: Side, run: Following, lives: list[Life], dead: list[Life]) -> None:
    ran, _ = side.runs[-1]
    came = [row[1] for rows in run.sink.batches.values() for row in rows]
    # What came is chance; whether it is right is not.
    ran.batches.clear()
    missing = set().union(*(life.values for life in lives)) - set(came)
    unknown = set(came) - set().union(*(life.values for life in [*lives, *dead]))
    side.note(f"{len(missing)} missing, {len(came) - len(set(came))} twice, {len(unknown)} unknown")
