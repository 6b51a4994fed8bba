"""Runs against their meaning: of each key the newest run that has it."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from random import Random

import pytest

from keyrange.keyed_state.model import state_runs
from keyrange.keyed_state.model.state_runs import (
    MadeRun,
    StateRun,
    after_batch,
    clipped,
    last_seq,
    needed,
    newest_first,
    to_merge,
)
from keyrange.model.key_ranges import SPACE, KeyRange, split_evenly, subtract
from project.forms import by_form

KEYS = 64
_STEP = SPACE.size // KEYS


def hash_of(key: int) -> int:
    return key * _STEP


def cut(random: Random, pieces: int) -> list[KeyRange]:
    borders = sorted(random.sample(range(1, KEYS), pieces - 1))
    bounds = [0, *(hash_of(border) for border in borders), SPACE.until_hash]
    return [KeyRange(a, b) for a, b in pairwise(bounds)]


@dataclass
class World:
    """Files of states as dictionaries; `truth`: of each key the batch that changed it last."""

    runs: list[StateRun] = field(default_factory=list)
    files: dict[str, dict[int, int]] = field(default_factory=dict)
    truth: dict[int, int] = field(default_factory=dict)
    seq: int = 0
    batches: int = 0

    def taken_up(self) -> None:
        """By a query with another checkpoint, whose commits begin with 1."""
        self.seq = 0

    def batch(self, random: Random, merges: bool = True) -> None:
        seq = self.seq + random.choice([1, 1, 1, 2])
        self.batches += 1
        # Other partitions may have newer runs.
        planned_seq = last_seq(self.runs, self.seq) + random.choice([0, 0, 0, 5])
        made: list[MadeRun] = []
        for span in cut(random, random.randint(1, 5)):
            own = [key for key in range(KEYS) if span.contains(hash_of(key))]
            share = random.choice([0.1, 0.5])
            changed = {key: self.batches for key in own if random.random() < share}
            if not changed:
                continue
            made.append(self._write(span, planned_seq + 1, changed))
            known = clipped(self.runs, span)
            chosen = to_merge(known, len(changed)) if merges else []
            if chosen:
                rows: dict[int, int] = {}
                for run in reversed(newest_first(chosen)):
                    inside = self.files[run.file].items()
                    rows |= {k: at for k, at in inside if run.span.contains(hash_of(k))}
                from_seq = min(run.from_seq for run in chosen)
                made.append(self._write(span, from_seq, rows | changed))
            self.truth |= changed
        self.runs = after_batch(self.runs, made, seq)
        self.seq = seq

    def _write(self, span: KeyRange, from_seq: int, rows: dict[int, int]) -> MadeRun:
        name = f"s/{len(self.files)}.parquet"
        self.files[name] = rows
        return MadeRun(name, (0, 1), span, from_seq, len(rows), 10 * len(rows), 0)

    def read(self, key: int) -> int | None:
        for run in newest_first(self.runs):
            if run.span.contains(hash_of(key)) and key in self.files[run.file]:
                return self.files[run.file][key]
        return None


@pytest.mark.parametrize("seed", range(by_form(4, 20, 200)))
def test_of_each_key_the_newest_run_that_has_it(seed: int) -> None:
    random = Random(seed)
    world = World()
    for _ in range(60):
        world.batch(random, merges=random.random() < 0.8)
        if random.random() < 0.05:
            world.taken_up()
        assert {key: world.read(key) for key in world.truth} == world.truth
        assert needed(world.runs) == newest_first(world.runs)


def test_runs_stay_few() -> None:
    random = Random(1)
    world = World()
    for _ in range(400):
        world.batch(random)
        at = [run for run in world.runs if run.span.contains(hash_of(KEYS // 3))]
        assert len(at) <= 10


@pytest.mark.parametrize("seed", range(50))
def test_without_is_what_is_left(seed: int) -> None:
    random = Random(seed)
    taken = [KeyRange(a, a + random.randint(1, 9)) for a in random.choices(range(40), k=5)]
    span = KeyRange(5, 30)
    left = subtract([span], taken)
    points = {at for each in left for at in range(each.from_hash, each.until_hash)}
    assert points == {at for at in range(5, 30) if not any(each.contains(at) for each in taken)}
    assert all(a.until_hash < b.from_hash for a, b in pairwise(left))


def test_only_runs_that_share_keys_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each batch asks it, of hundreds of key ranges with a few runs each."""
    runs = [
        StateRun(f"s/{number}-{seq}", (0, 1), span, seq, seq + 1, 1, 1, 0)
        for number, span in enumerate(split_evenly(SPACE, 64))
        for seq in range(1, 5)
    ]
    compared = []
    whole = state_runs._supersedes

    def counted(run: StateRun, other: StateRun) -> bool:
        compared.append(run)
        return whole(run, other)

    monkeypatch.setattr(state_runs, "_supersedes", counted)
    assert needed(runs) == newest_first(runs)
    assert len(compared) <= 64 * 4 * 4
