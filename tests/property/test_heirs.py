"""Standbys, what slots are told to copy, and when key ranges move, for any history."""

from __future__ import annotations

from functools import partial
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyrange.keyed_state.model.state_runs import StateRun, clipped
from keyrange.members.heirs import Heirs
from keyrange.members.model.assignment import Assignment, Owned, assign, without
from keyrange.members.model.copy_book import CopyBook, CopyOrder, KnownState
from keyrange.members.model.reassignment_timing import Reassign
from keyrange.members.model.standbys import Place, Standing, StoodFor, standbys, with_standbys
from keyrange.members.model.warm_up import WarmUp
from keyrange.model.key_ranges import SPACE, KeyRange, merge, split_evenly, subtract
from keyrange.model.offsets import TopicPartition
from project.forms import by_form
from samples import strategies  # noqa: F401  registers the hypothesis profiles

PARTITIONS = [TopicPartition("t", number) for number in range(4)]
WEIGHTS = dict.fromkeys(PARTITIONS, 1.0)
NAMES = [f"s{number}" for number in range(6)]
TIMEOUT_MS = 1_000

places = st.dictionaries(
    st.sampled_from(NAMES),
    st.builds(Place, st.sampled_from(["h1", "h2", "h3"]), st.sampled_from(["", "", "r1", "r2"])),
    min_size=1,
)


@given(st.lists(places, min_size=1, max_size=5))
def test_a_standby_is_as_far_from_the_owner_as_can_be_and_stays(
    steps: list[dict[str, Place]],
) -> None:
    before: Any = {}
    assignment: Assignment | None = None
    for epoch, there in enumerate(steps, 1):
        assignment = assign(WEIGHTS, dict.fromkeys(there, 1.0), assignment, epoch, before)
        found = standbys(assignment, WEIGHTS, there, before)
        for partition, owned in assignment.owners.items():
            spans = [each.span for each in found.get(partition, ())]
            assert spans == sorted(spans)
            assert merge(spans) == ([SPACE] if len(there) > 1 else [])
            for each in owned:
                for standby in found.get(partition, ()):
                    if subtract([each.span], [standby.span]) == [each.span]:
                        continue
                    own = there[each.slot]
                    others = [there[slot] for slot in there if slot != each.slot]
                    assert standby.slot != each.slot
                    assert own.distance(there[standby.slot]) == max(map(own.distance, others))
        assert standbys(assignment, WEIGHTS, there, found) == found, "nothing moves for nothing"
        before = found


@given(st.integers(2, 6), st.integers(0, 5))
def test_who_is_lost_is_inherited_by_all_others(count: int, lost: int) -> None:
    """By those who have copies, and by no more than what is fair."""
    names = NAMES[:count]
    gone = names[lost % count]
    there = {name: Place(name) for name in names}
    before = assign(WEIGHTS, dict.fromkeys(names, 1.0), None, 1)
    kept = standbys(before, WEIGHTS, there, {})
    left = {name: 1.0 for name in names if name != gone}
    after = assign(WEIGHTS, left, before, 2, kept)
    for slot, ranges in after.by_slot().items():
        gained = without(ranges, before.of(slot))
        standing = {
            at: [each.span for each in owned if each.slot == slot] for at, owned in kept.items()
        }
        assert without(gained, standing) == {}
        mass = sum(span.size for spans in ranges.values() for span in spans)
        assert mass / (len(PARTITIONS) * SPACE.size) < 1.35 / len(left)


def test_loads_of_standbys_even_out_when_a_slot_comes() -> None:
    there = {name: Place(name) for name in NAMES}
    two = assign(WEIGHTS, {"s0": 1.0, "s1": 1.0}, None, 1)
    kept = standbys(two, WEIGHTS, {name: there[name] for name in ("s0", "s1")}, {})
    six = assign(WEIGHTS, dict.fromkeys(NAMES, 1.0), two, 2, kept)
    found = standbys(six, WEIGHTS, there, kept)
    loads = dict.fromkeys(NAMES, 0.0)
    for owned in found.values():
        for each in owned:
            loads[each.slot] += each.span.size / SPACE.size
    assert max(loads.values()) < 1.5 * len(PARTITIONS) / len(NAMES), loads


@given(st.sets(st.sampled_from(NAMES)))
def test_whoever_is_away_is_stood_for_and_nobody_else(away: set[str]) -> None:
    there = {name: Place(name) for name in NAMES}
    assignment = assign(WEIGHTS, dict.fromkeys(NAMES, 1.0), None, 1)
    kept = standbys(assignment, WEIGHTS, there, {})
    found = with_standbys(assignment.owners, kept, away)
    for partition, owned in found.items():
        spans = [each.span for each in owned]
        assert spans == sorted(spans)
        assert merge(spans) == [SPACE]
        for each in owned:
            assert assignment.owner_of(partition, each.span.from_hash) == each.slot
            if isinstance(each, StoodFor):
                assert each.slot in away
                assert each.reader not in away
            else:
                assert each.reader == each.slot
    if not away:
        assert found is assignment.owners


def test_who_did_not_come_is_stood_for_until_it_comes() -> None:
    standing = Standing(1)
    of = [frozenset(each.split()) for each in ("a b", "a", "b", "c")]
    both, a, b, c = of
    standing.heard(both, a)
    assert standing.silent == b
    # It is wanted no more, and has not come: the next batch does not wait for it either.
    standing.heard(a, a)
    assert standing.silent == b
    standing.heard(a, both)
    assert standing.silent == frozenset()
    standing.heard(both, both | c)
    assert standing.silent == frozenset()


class World:
    """A driver that announces, and executors that copy. `copied` is what each has by partition."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.heirs = Heirs(TIMEOUT_MS, tells=False)
        self.assignment = assign(WEIGHTS, {"s0": 1.0, "s1": 1.0}, None, 1)
        self.members = {"s0", "s1"}
        self.standbys: Any = {}
        self.with_standbys = seed % 2 == 1
        self.runs: dict[TopicPartition, tuple[StateRun, ...]] = dict.fromkeys(PARTITIONS, ())
        self.copied: dict[str, set[StateRun]] = {name: set() for name in NAMES}
        self.done: dict[str, int] = dict.fromkeys(NAMES, 0)
        self.seq = self.now_ms = 0
        self.since_ms: int | None = None
        self.moves = self.early = 0

    def restart(self) -> None:
        """The driver starts again: what it had announced is due as before, and what hosts have
        copied they still have."""
        self.heirs = Heirs(TIMEOUT_MS, tells=False)
        self.done = dict.fromkeys(NAMES, 0)
        self.since_ms = None
        self.follow()

    def commit(self) -> None:
        """A batch changes some partitions; a run of 64 MB, or a few bytes."""
        self.seq += 1
        since = (self.seq, self.seq + 1)
        for partition in self.random.sample(PARTITIONS, self.random.randint(0, 3)):
            size = self.random.choice([100, 100, 64 << 20])
            spans = split_evenly(SPACE, self.random.choice([1, 2, 5]))
            new = tuple(
                StateRun(f"{self.seq}-{partition}", (at, at + 1), span, *since, 1, size, 0)
                for at, span in enumerate(spans)
            )
            self.runs = self.runs | {partition: (*self.runs[partition][-3:], *new)}

    def follow(self) -> None:
        self.heirs.follow(KnownState("source", self.runs, str), self.standbys)

    def copy(self, slot: str) -> None:
        """All that it is told, or it starts anew on another host."""
        if self.random.random() < 0.1:
            self.copied[slot].clear()
            self.done[slot] = 0
            self.heirs.news(slot, 0)
            return
        while True:
            news = self.heirs.news(slot, self.done[slot])
            if not news["isWanted"] or news["version"] == self.done[slot]:
                return
            for order in map(CopyOrder.from_json, news["orders"]):
                assert order.place == str(order.partition)
                self.copied[slot].update(order.runs)
            self.done[slot] = news["version"]

    def look(self, present: set[str], due: Reassign | None) -> None:
        if due is None:
            self.heirs.drop()
            self.since_ms = None
            return
        if self.since_ms is None:
            self.since_ms = self.now_ms
        epoch = self.assignment.epoch + 1

        def deal() -> Assignment:
            return assign(WEIGHTS, due.members, self.assignment, epoch, self.standbys)

        if not self.heirs.moves(due, self.assignment, PARTITIONS, deal, present, self.now_ms):
            assert self.now_ms - self.since_ms < TIMEOUT_MS
            return
        announced = self.heirs.announced
        after = announced.after if announced is not None else deal()
        if announced is not None and self.now_ms - self.since_ms < TIMEOUT_MS:
            self.early += 1
            for slot in announced.gains.keys() & present:
                assert self.missing(slot, announced.gains[slot]) <= 4 << 20
        self.assignment, self.members = after, set(due.members)
        self.heirs.drop()
        self.since_ms = None
        self.moves += 1
        if self.with_standbys:
            there = {name: Place(name) for name in self.members}
            self.standbys = standbys(after, WEIGHTS, there, self.standbys)

    def missing(self, slot: str, gains: Any) -> int:
        """Bytes of the state of some key ranges that an executor has no copies of."""
        total = 0
        for partition, spans in gains.items():
            for span in spans:
                for run in clipped(self.told[partition], span):
                    had = [
                        each.span
                        for each in self.copied[slot]
                        if each.file == run.file and each.groups == run.groups
                    ]
                    if subtract([run.span], had):
                        total += run.size_bytes
        return total


@pytest.mark.parametrize("seed", range(by_form(2, 20, 300)))
def test_key_ranges_move_when_their_heirs_have_copied_or_time_is_up(seed: int) -> None:
    world = World(seed)
    wanted = {"s0", "s1"}
    present = set(wanted)
    for _ in range(150):
        world.now_ms += world.random.choice([0, 50, 200])
        if world.random.random() < 0.15:
            wanted = set(world.random.sample(NAMES, world.random.randint(1, 5)))
            present = {each for each in wanted if world.random.random() < 0.9}
        if world.random.random() < 0.03:
            world.restart()
        due = None
        if wanted != world.members:
            due = Reassign("test", dict.fromkeys(sorted(wanted), 1.0))
        world.look(present, due)
        world.commit()
        world.told = dict(world.runs)
        world.follow()
        for slot in present:
            assert not world.heirs.hint(slot) or world.heirs.news(slot, world.done[slot])
            if world.random.random() < 0.6:
                world.copy(slot)
    assert world.moves > 3
    assert world.early > 0


def test_changes_that_follow_one_another_put_no_move_off() -> None:
    warm = WarmUp(TIMEOUT_MS)
    before = assign(WEIGHTS, {"s0": 1.0}, None, 1)
    for at, names in ((0, ["s0", "s1"]), (900, ["s0", "s1", "s2"])):
        due = Reassign("test", dict.fromkeys(names, 1.0))
        deal = partial(assign, WEIGHTS, due.members, before, 2)
        warm.announce(due, before, PARTITIONS, deal, at)
    assert not warm.moves(NAMES, {"s1"}, 999)
    assert warm.moves(NAMES, {"s1"}, 1_000)


def test_who_has_copies_as_a_standby_is_told_all_the_same() -> None:
    """Its listener may have something to prepare."""
    heirs = Heirs(TIMEOUT_MS, tells=True)
    before = assign(WEIGHTS, {"s0": 1.0}, None, 1)
    standing = {at: (Owned(SPACE, "s1"),) for at in PARTITIONS}
    heirs.follow(KnownState("s", {}, str), standing)
    done = heirs.news("s1", 0)["version"]
    heirs.news("s1", done)
    due = Reassign("test", {"s0": 1.0, "s1": 1.0})
    move = partial(
        heirs.moves, due, before, PARTITIONS, partial(assign, WEIGHTS, due.members, before, 2)
    )
    assert not move({"s0", "s1"}, 0)
    heirs.follow(KnownState("s", {}, str), standing)
    assert heirs.hint("s1")
    assert not move({"s0", "s1"}, 0)
    told = heirs.news("s1", done)
    assert told["announced"]
    heirs.news("s1", told["version"])
    assert move({"s0", "s1"}, 0)


def test_what_was_not_reported_as_copied_is_missing() -> None:
    book = CopyBook()
    run = StateRun("f", (0, 1), SPACE, 0, 1, 5, 50, 0)
    later = StateRun("g", (0, 1), SPACE, 1, 2, 5, 7, 0)
    wanted = {"a": {PARTITIONS[0]: [SPACE]}}
    book.want(wanted, KnownState("s", {PARTITIONS[0]: (run,)}, str))
    assert (book.missing_bytes("a"), book.size_bytes("a")) == (50, 50)
    book.news("a", 0)
    assert book.missing_bytes("a") == 50
    book.news("a", book.version)
    assert book.missing_bytes("a") == 0
    book.want(wanted, KnownState("s", {PARTITIONS[0]: (run, later)}, str))
    assert (book.missing_bytes("a"), book.size_bytes("a")) == (7, 57)
    book.news("a", 0)
    assert book.missing_bytes("a") == 57, "it has begun anew"
    assert book.missing_bytes("b") == 0


def test_what_is_small_is_told_once() -> None:
    """A partition that has not changed is not told again."""
    heirs = Heirs(TIMEOUT_MS, tells=False)
    run = StateRun("f", (0, 1), SPACE, 0, 1, 5, 50, 0)
    runs = dict.fromkeys(PARTITIONS, (run,))
    standing = {at: assign({at: 1.0}, {"b": 1.0}, None, 1).owners[at] for at in PARTITIONS}
    heirs.follow(KnownState("s", runs, str), standing)
    first = heirs.news("b", 0)
    assert [each[1] for each in first["orders"]] == [0, 1, 2, 3]
    more = runs | {PARTITIONS[2]: (run, StateRun("g", (0, 1), KeyRange(0, 9), 1, 2, 1, 7, 0))}
    heirs.follow(KnownState("s", more, str), standing)
    assert heirs.hint("b")
    second = heirs.news("b", first["version"])
    assert [(each[1], len(each[4])) for each in second["orders"]] == [(2, 2)]
    assert heirs.news("b", second["version"])["orders"] == []
    assert not heirs.hint("b")
    assert not heirs.hint("a")
    assert heirs.news("b", 0)["orders"], "who begins anew is told everything"
    heirs.follow(None, {})
    assert not heirs.news("b", 0)["isWanted"]
