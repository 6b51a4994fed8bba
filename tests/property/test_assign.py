"""Assignments against what is promised of them, for any weights and any history."""

from __future__ import annotations

import json
from collections.abc import Mapping
from fractions import Fraction
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from keyrange.members.model.assignment import Assignment, assign, moved
from keyrange.model.key_ranges import SPACE, KeyRange
from keyrange.model.offsets import TopicPartition
from samples import strategies  # noqa: F401  registers the hypothesis profiles
from tables.assignment_changes import changes

NAMES = [f"slot-{number}" for number in range(12)]
TOPICS = [TopicPartition(topic, number) for topic in "tu" for number in range(6)]
SLACK = Fraction(11, 10)
# Rounding moves no more than a hash per slot.
GRAIN = Fraction(1, 2**50)

numbers = st.sampled_from([0.0, 1e-9, 0.1, 1 / 3, 1.0, 1.0, 1.0, 2.0, 7.5, 1e12])
weights = st.dictionaries(st.sampled_from(TOPICS), numbers, min_size=1)
names = st.lists(st.sampled_from(NAMES), min_size=1, unique=True)
capacities = st.dictionaries(
    st.sampled_from(NAMES), st.sampled_from([0.5, 1.0, 1.0, 4.0, 16.0]), min_size=1
)
seeds = st.integers(0, 2**32)


def equal(slots: list[str]) -> dict[str, float]:
    return dict.fromkeys(slots, 1.0)


def effective(given_weights: Mapping[TopicPartition, float]) -> dict[TopicPartition, Fraction]:
    """Where nothing weighs anything all weigh the same."""
    alike = not any(given_weights.values())
    return {each: Fraction(1 if alike else it) for each, it in given_weights.items()}


def loads(
    assignment: Assignment, given_weights: Mapping[TopicPartition, float]
) -> dict[str, Fraction]:
    found: dict[str, Fraction] = {}
    for partition, weight in effective(given_weights).items():
        for owned in assignment.owners[partition]:
            share = weight * Fraction(owned.span.size, SPACE.size)
            found[owned.slot] = found.get(owned.slot, Fraction(0)) + share
    return found


def history(random: Random, given_weights: dict[TopicPartition, float]) -> Assignment:
    """An assignment after slots and weights have come, gone and changed."""
    assignment: Assignment | None = None
    for epoch in range(1, random.randint(2, 8)):
        slots = random.sample(NAMES, random.randint(1, 6))
        shifted = {each: random.choice([0.0, 1.0, 3.0]) for each in given_weights}
        assignment = assign(shifted, equal(slots), assignment, epoch)
    assert assignment is not None
    return assignment


def whose(assignment: Assignment, partition: TopicPartition) -> list[tuple[KeyRange, str]]:
    return [(owned.span, owned.slot) for owned in assignment.owners[partition]]


@given(weights, capacities, seeds)
def test_every_hash_has_one_owner_that_is_there(
    it: dict[TopicPartition, float], slots: dict[str, float], seed: int
) -> None:
    """Assignment itself refuses what does not cover the space once."""
    assignment = assign(it, slots, history(Random(seed), it), 9)
    assert assignment.owners.keys() == it.keys()
    assert set(assignment.slots) <= slots.keys()
    assert Assignment.from_json(json.loads(json.dumps(assignment.to_json()))) == assignment


@given(weights, capacities, seeds)
def test_the_order_of_what_goes_in_changes_nothing(
    it: dict[TopicPartition, float], slots: dict[str, float], seed: int
) -> None:
    random = Random(seed)
    before = history(random, it)

    def shuffled(mapping: Mapping) -> dict:  # type: ignore[type-arg]
        items = list(mapping.items())
        random.shuffle(items)
        return dict(items)

    again = Assignment(before.epoch, shuffled(before.owners))
    assert assign(it, slots, before, 9) == assign(shuffled(it), shuffled(slots), again, 9)


@given(weights, capacities)
def test_nobody_has_much_more_or_less_than_their_share(
    it: dict[TopicPartition, float], slots: dict[str, float]
) -> None:
    found = loads(assign(it, slots, None, 1), it)
    total, capacity = sum(effective(it).values()), sum(map(Fraction, slots.values()))
    for name, each in slots.items():
        quota = total * Fraction(each) / capacity
        assert found.get(name, 0) <= quota * SLACK + total * GRAIN


@given(weights, capacities, seeds)
def test_a_rebalance_evens_out(
    it: dict[TopicPartition, float], slots: dict[str, float], seed: int
) -> None:
    """Asked for with the same slots and partitions."""
    shifted = dict(zip(it, Random(seed).sample(list(it.values()), len(it)), strict=True))
    before = assign(shifted, slots, None, 1)
    if set(before.slots) != slots.keys():
        return
    after = assign(it, slots, before, 2)
    total, capacity = sum(effective(it).values()), sum(map(Fraction, slots.values()))
    for name, load in loads(after, it).items():
        assert load <= total * Fraction(slots[name]) / capacity * SLACK + total * GRAIN
    assert assign(it, slots, after, 3).owners == after.owners


@given(weights, names, seeds)
def test_growth_moves_no_more_than_the_share_of_who_comes(
    it: dict[TopicPartition, float], slots: list[str], seed: int
) -> None:
    """To the last hash, whatever was before; and only to who comes."""
    random = Random(seed)
    coming = slots[: random.randint(1, len(slots))]
    staying = [name for name in NAMES if name not in slots][: random.randint(1, 6)]
    if not staying:
        return
    before = assign(it, equal(staying), history(random, it), 8)
    if set(before.slots) != set(staying):
        return
    after = assign(it, equal([*staying, *coming]), before, 9)
    exactly = effective(it)
    bound = Fraction(len(coming), len(coming) + len(staying))
    gone = sum(
        exactly[partition] * Fraction(span.size, SPACE.size)
        for name in staying
        for partition, spans in changes(before, after, name).revoked.items()
        for span in spans
    )
    assert gone <= bound * sum(exactly.values())
    assert moved(before, after, it) <= float(bound)
    for name in staying:
        assert changes(before, after, name).assigned == {}


@given(weights, names, seeds)
def test_growth_gives_who_comes_a_fair_share(
    it: dict[TopicPartition, float], slots: list[str], seed: int
) -> None:
    random = Random(seed)
    at = random.randint(0, len(slots) - 1)
    staying, coming = slots[:at], slots[at:]
    before = assign(it, equal(staying), None, 1) if staying else None
    after = assign(it, equal(slots), before, 2)
    found, total = loads(after, it), sum(effective(it).values())
    quota = total / len(slots)
    for name in coming:
        assert found.get(name, Fraction(0)) <= quota * SLACK + total * GRAIN
    assert sum(found.get(name, Fraction(0)) for name in coming) >= (
        quota * len(coming) * Fraction(9, 10) - total * GRAIN
    )


@given(weights, names, seeds)
def test_a_loss_moves_what_the_lost_had_and_nothing_else(
    it: dict[TopicPartition, float], slots: list[str], seed: int
) -> None:
    random = Random(seed)
    before = assign(it, equal([*slots, "lost"]), history(random, it), 8)
    after = assign(it, equal(slots), before, 9)
    for name in slots:
        assert changes(before, after, name).revoked == {}
    had, found, total = loads(before, it), loads(after, it), sum(effective(it).values())
    for name in slots:
        fair = total / len(slots) * SLACK + total * GRAIN
        assert found.get(name, Fraction(0)) <= max(had.get(name, Fraction(0)), fair)


@given(weights, names, seeds)
def test_partitions_that_come_move_nothing_and_those_that_go_vanish(
    it: dict[TopicPartition, float], slots: list[str], seed: int
) -> None:
    random = Random(seed)
    kept = {each: weight for each, weight in it.items() if random.random() < 0.5}
    before = assign(it, equal(slots), history(random, it), 8)
    coming = dict.fromkeys(random.sample(TOPICS, 4), 1.0)
    after = assign(coming | kept, equal(slots), before, 9)
    if coming.keys() <= it.keys() and kept.keys() | coming.keys() == it.keys():
        return
    left = {slot for partition in kept for _, slot in whose(before, partition)}
    if left != set(slots):  # Who has nothing left draws a share, as who comes does.
        return
    for partition in kept:
        assert whose(after, partition) == whose(before, partition)


@given(st.integers(1, 8), st.integers(1, 40))
def test_partitions_stay_together_where_that_fits(count: int, each: int) -> None:
    """As many partitions as are the same for all: none is shared."""
    it = {TopicPartition("t", number): 1.0 for number in range(count * each)}
    assignment = assign(it, equal(NAMES[:count]), None, 1)
    assert all(len(owned) == 1 for owned in assignment.owners.values())
    assert {len(assignment.of(name)) for name in NAMES[:count]} == {each}


@given(weights, capacities)
def test_few_partitions_are_shared(
    it: dict[TopicPartition, float], slots: dict[str, float]
) -> None:
    """Each slot but the last one fills up with one cut at most."""
    assignment = assign(it, slots, None, 1)
    assert sum(map(len, assignment.owners.values())) <= len(it) + len(slots) - 1


@given(weights, names, seeds)
def test_what_changes_adds_up(it: dict[TopicPartition, float], slots: list[str], seed: int) -> None:
    """What slots get and lose leads from one assignment to the next."""
    random = Random(seed)
    before = history(random, it)
    after = assign(it, equal(slots), before, 9)
    for name in {*before.slots, *after.slots}:
        change = changes(before, after, name)
        for partition in it:
            assigned = change.assigned.get(partition, [])
            revoked = change.revoked.get(partition, [])
            for place in (0, SPACE.until_hash - 1, random.getrandbits(63)):
                was, is_now = before.owner_of(partition, place), after.owner_of(partition, place)
                assert any(span.contains(place) for span in assigned) == (is_now == name != was)
                assert any(span.contains(place) for span in revoked) == (was == name != is_now)
