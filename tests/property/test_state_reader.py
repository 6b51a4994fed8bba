"""`keyrange.state_reader` against a dictionary: while states are cut, merged, copied, lost and made
anew, it shows what is committed, and at an earlier commit what was."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from keyrange.individual_commits.model.commit import Commit, CommitKind
from keyrange.individual_commits.model.partition_progress import fresh
from keyrange.individual_commits.table import open_state
from keyrange.individual_commits.table.commit_admin import Commits
from keyrange.individual_commits.table.open_state import StatePlace
from keyrange.jobs import state_reader
from keyrange.jobs.state_reader import StateReader
from keyrange.keyed_state import cache, sorted_blocks
from keyrange.keyed_state.cache import StateCache
from project.forms import by_form
from simulation.state_world import AT, KEYS, StateWorld, hash_of
from tables.commit_tables import MemoryCommitTable


class Clock:
    """The one of readers, which stands with that of the batches."""

    def __init__(self, world: StateWorld) -> None:
        self._world = world

    def time_ns(self) -> int:
        return self._world.now_ms * 1_000_000


class ReadWorld(StateWorld):
    """A world whose batches are commits, with what was true at each of them."""

    def __init__(self, home: Path, seed: int) -> None:
        super().__init__(home, seed)
        self.table = MemoryCommitTable("source")
        self.commits = Commits("commits", "source", self.table)
        self.then: dict[int, tuple[int, dict[bytes, Any]]] = {}

    def reader(self, copies: str, at: int | None = None) -> StateReader:
        place = StatePlace(str(self.home / "state"), {}, self.home / copies)
        return StateReader(lambda _: self.commits, place, at)

    def batch(self) -> None:
        before = self.seq
        super().batch()
        if self.seq > before:
            states, runs = {AT: fresh("", 1)}, {AT: tuple(self.runs)}
            named = ("g", "source", "q", "r", self.seq, self.now_ms)
            commit = Commit(self.seq, CommitKind.BATCH, *named, states=states, runs=runs)
            self.table.append(commit)
            self.then[self.seq] = (self.now_ms, dict(self.truth))

    def truth_at(self, seq: int, now_ms: int) -> dict[bytes, tuple[Any, Any]]:
        """The keys that had any state, as of a time."""
        found = {}
        for key, (n, soon) in self.then[seq][1].items():
            left = soon if soon is not None and soon[1] > now_ms else None
            if (n, left) != (None, None):
                found[key] = (n, left)
        return found


def rows_of(world: ReadWorld, table: Any) -> dict[bytes, Any]:
    return {row["key"]: world.read(row) for row in table.to_pylist()}


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sorted_blocks, "BLOCK_ROWS", 4)
    monkeypatch.setattr(state_reader, "BLOCK_ROWS", 4)
    monkeypatch.setattr(open_state, "hash_of", hash_of)
    cache._MAPPED.clear()
    yield
    cache._MAPPED.clear()


@pytest.mark.parametrize("seed", range(by_form(1, 4, 60)))
def test_it_shows_what_a_dictionary_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    world = ReadWorld(tmp_path, seed)
    monkeypatch.setattr(open_state, "time", Clock(world))
    # Where the world's hosts have theirs.
    monkeypatch.setattr(StatePlace, "cache", lambda place, *_: StateCache(place.copies / "p"))
    while not world.seq:
        world.batch()
    own, shared = world.reader("own"), world.reader("host0")
    for _ in range(20):
        world.batch()
        for reader in (own, shared):
            if world.random.random() < 0.7:
                assert reader.refresh() == world.seq
            truth = world.truth_at(reader.seq, world.now_ms)
            asked = world.random.sample(KEYS, 20)
            found = rows_of(world, reader.get_many([*asked, *asked]))
            assert found == {key: truth[key] for key in asked if key in truth}
            for key in asked:
                n, soon = truth.get(key, (None, None))
                one = {"n": n, "soon": soon and soon[0]}
                has = {name: value for name, value in one.items() if value is not None}
                assert (reader.get(key) or {}) == has
            prefix, limit = world.random.choice([b"", b"k1", b"k12"]), world.random.randrange(12)
            low, high = sorted(world.random.sample(KEYS, 2))
            scanned = reader.scan(prefix, from_key=low, until_key=high, limit=limit)
            expected = sorted(key for key in truth if key.startswith(prefix) and low <= key < high)[
                :limit
            ]
            assert list(rows_of(world, scanned)) == expected
            assert all(rows_of(world, scanned)[key] == truth[key] for key in expected)
            # Of one variable alone: keys without it have no row.
            of_soon = reader.scan(limit=1_000, variables="soon")
            assert of_soon.column_names[3:] == ["soon", "soon_expires_ms"]
            found = {row["key"]: world.read(row | {"n": None}) for row in of_soon.to_pylist()}
            assert found == {key: (None, soon) for key, (_, soon) in truth.items() if soon}
            of_n = reader.get_many(asked, variables=["n"])
            assert of_n.column_names[3:] == ["n"]
            kept = {key: truth[key][0] for key in asked if truth.get(key, (None,))[0] is not None}
            assert {row["key"]: row["n"]["n"] for row in of_n.to_pylist()} == kept
            assert (reader.get(asked[0], variables="n") or {}).get("n") == kept.get(asked[0])
    at = world.random.choice([*world.then])
    then_ms, _ = world.then[at]
    assert rows_of(world, own.as_of(at).scan(limit=1_000)) == world.truth_at(at, then_ms)
