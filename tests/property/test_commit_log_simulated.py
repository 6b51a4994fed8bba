"""Consumers of one group that take key ranges from one another, with others coming between any two
calls to the table, and crashes: no record is handed out twice or lost, as far as commits say."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from keyrange.consumer.commit_log import CommitLog, Taken
from keyrange.consumer.settings import parse_consumer_options
from keyrange.errors import KeyrangeError
from keyrange.individual_commits.model.auditing import Contradiction, Handovers, audit, claim_of
from keyrange.individual_commits.model.commit import Commit, CommitKind
from keyrange.individual_commits.model.partition_progress import KeyRangeState, fresh
from keyrange.individual_commits.table.commit_table import DeltaCommitTable
from keyrange.model.key_ranges import SPACE, KeyRange, merge, split_evenly
from keyrange.model.offsets import TopicPartition
from project.forms import by_form
from tables.memory_store import MemoryStore, Shared

CELLS = split_evenly(SPACE, 4)
PARTITIONS = [TopicPartition("t", 0), TopicPartition("u", 0)]
Cell = tuple[TopicPartition, KeyRange]
OVER = {"RANGES_LOST", "COMMITS_FENCED"}
SETTINGS = parse_consumer_options(
    {"kafka.bootstrap.servers": "h:1", "commitTable": "/none", "commitGroup": "g"}
)


class Crash(Exception):
    """The process is gone."""


class Group:
    """A table, the consumers that run, and where every cell stands: what was committed last."""

    def __init__(self, seed: int, crashes: float, disturbed: float) -> None:
        self.random = Random(seed)
        self.shared = Shared(hook=self.between)
        self.crashes, self.disturbed = crashes, disturbed
        self.slots = [f"s{number}" for number in range(4)]
        self.holding: dict[str, tuple[CommitLog, dict[Cell, int]]] = {}
        self.under_way: list[str] = []
        # Who is disturbed again and again never comes to an end.
        self.budget = 0
        self.log_end = 100
        self.stands: dict[Cell, int] = {}
        self.commits = 0

    def between(self, _: str) -> None:
        if self.random.random() < self.crashes:
            raise Crash
        idle = [slot for slot in self.slots if slot not in self.under_way]
        if self.budget and len(self.under_way) < 3 and self.random.random() < self.disturbed:
            self.budget -= 1
            self.step(self.random.choice(idle))

    def step(self, slot: str) -> None:
        """What one consumer does next; what ends it leaves it with nothing."""
        self.under_way.append(slot)
        self.log_end += self.random.randrange(100)
        try:
            if slot in self.holding and self.random.random() < 0.6:
                self.work(slot)
            else:
                self.take(slot)
        except Crash:
            self.holding.pop(slot, None)
        except KeyrangeError as failure:
            if failure.condition.name not in OVER:
                raise
            self.holding.pop(slot, None)
        finally:
            self.under_way.remove(slot)

    def commit_log(self, slot: str) -> CommitLog:
        def latest(wanted: object, _: bool) -> dict[TopicPartition, int]:
            return dict.fromkeys(wanted, self.log_end)  # type: ignore[call-overload]

        made = CommitLog(SETTINGS, slot, latest)
        made._store = MemoryStore(self.shared)
        return made

    def take(self, slot: str) -> None:
        commit_log = self.holding.pop(slot, (self.commit_log(slot), {}))[0]
        wanted = {
            partition: merge(self.random.sample(CELLS, self.random.randrange(1, 5)))
            for partition in self.random.sample(PARTITIONS, self.random.randrange(1, 3))
        }
        taken = commit_log.take(wanted, {})
        mine = self.positions(taken)
        for cell, at in mine.items():
            self.stands.setdefault(cell, at)
        self.holding[slot] = (commit_log, mine)

    def positions(self, taken: Taken) -> dict[Cell, int]:
        found: dict[Cell, int] = {}
        for partition, pieces in taken.pieces.items():
            for piece in pieces:
                for cell in CELLS:
                    if piece.span.contains(cell.from_hash):
                        found[partition, cell] = piece.scanned
        return found

    def work(self, slot: str) -> None:
        commit_log, mine = self.holding[slot]
        partition = self.random.choice(sorted({partition for partition, _ in mine}))
        cells = [cell for cell in mine if cell[0] == partition]
        some = self.random.sample(cells, self.random.randrange(1, len(cells) + 1))
        after = {cell: mine[cell] + self.random.randrange(1, 50) for cell in some}
        commit_log.commit(
            {partition: [KeyRangeState(span, after[of, span]) for of, span in sorted(some)]}
        )
        for cell in some:
            assert mine[cell] == self.stands[cell], f"{slot} worked on from {mine[cell]}"
        mine.update(after)
        self.stands.update(after)
        self.commits += 1

    def histories(self) -> dict[str, list[Commit]]:
        """What each source has written."""
        store = MemoryStore(self.shared)
        sources = self.commit_log("s8").claims()
        return {each: list(DeltaCommitTable(store, each).history()) for each in sources}


def audited(histories: dict[str, list[Commit]]) -> list[Contradiction]:
    handovers = Handovers(histories)
    return [found for commits in histories.values() for found in audit(commits, handovers)]


def one_changed(random: Random, histories: dict[str, list[Commit]]) -> str:
    """Change what one claim has taken over from another one; returns what is to be said."""
    claims = [
        (commits, at, claim)
        for commits in histories.values()
        for at, commit in enumerate(commits)
        if commit.kind is CommitKind.FENCE and (claim := claim_of(commit)) is not None
    ]
    taken = [
        (commits, at, place)
        for commits, at, claim in claims
        for place in commits[at].states
        if any(
            earlier.epoch < claim.epoch and earlier.holds_any({place: claim.held(place)})
            for _, _, earlier in claims
        )
    ]
    commits, at, place = random.choice(taken)
    changed = fresh("", commits[at].states[place].position + 7)
    commits[at] = replace(commits[at], states={**commits[at].states, place: changed})
    return f"{commits[at].seq} {place} a claim "


@pytest.mark.parametrize("seed", range(by_form(1, 3, 12)))
def test_whatever_comes_between_nothing_is_lost_or_handed_out_again(seed: int) -> None:
    group = Group(seed, crashes=0.01 * (seed % 3), disturbed=0.05 * (1 + seed % 4))
    for _ in range(30):
        group.budget = 3
        group.step(group.random.choice(group.slots))
    group.budget, group.crashes = 0, 0.0
    # In the end one consumer takes everything, and finds where all of it stands.
    taken = group.commit_log("s9").take({each: [SPACE] for each in PARTITIONS}, {})
    found = group.positions(taken)
    assert {cell: found[cell] for cell in group.stands} == group.stands
    assert group.commits > 2
    # Who reads the table finds no contradiction in it, and one that is put into it.
    histories = group.histories()
    assert audited(histories) == []
    # Nor in the last commits of each: what these do not go back to is not judged.
    for last in range(1, max(map(len, histories.values())), 3):
        some = {each: commits[-last:] for each, commits in histories.items()}
        assert audited(some) == [], last
    said = one_changed(group.random, histories)
    named = [f"{found.seq} {found.partition} {found.said}" for found in audited(histories)]
    assert any(each.startswith(said) for each in named), (said, named)
