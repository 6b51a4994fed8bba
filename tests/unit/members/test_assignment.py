"""Which slot has which key ranges: examples, and what is read and written."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest

from keyrange.errors import KeyrangeError
from keyrange.members.model.assignment import (
    Assignment,
    Owned,
    assign,
    moved,
    ranges_by_slot,
    unbroken,
)
from keyrange.members.model.balance import Balance
from keyrange.model.key_ranges import HASH_MAX, SPACE, KeyRange
from keyrange.model.offsets import TopicPartition
from tables.assignment_changes import changes

HALF = 2**62
END = HASH_MAX + 1
LOW, HIGH = KeyRange(0, HALF), KeyRange(HALF, END)
T0, T1, T2 = (TopicPartition("t", number) for number in range(3))


def even(count: int) -> dict[TopicPartition, float]:
    return {TopicPartition("t", number): 1.0 for number in range(count)}


def members(*names: str) -> dict[str, float]:
    return dict.fromkeys(names, 1.0)


def whole(slot: str) -> tuple[Owned, ...]:
    return (Owned(SPACE, slot),)


def partitions_of(assignment: Assignment) -> dict[str, list[int]]:
    """Slots and the numbers of their partitions; all partitions have to be whole."""
    assert all(len(owned) == 1 for owned in assignment.owners.values())
    return {
        slot: [partition.partition for partition in assignment.of(slot)]
        for slot in assignment.slots
    }


def test_five_consumers_share_three_partitions() -> None:
    """The proposal's own example: it gives one of them a partition and the others halves."""
    names = ["M1", "M2", "M3", "M4", "M5"]
    assignment = assign(even(3), members(*names), None, 1)
    shares = {
        name: sum(span.size for spans in assignment.of(name).values() for span in spans)
        for name in names
    }
    assert sum(shares.values()) == 3 * SPACE.size
    assert shares == pytest.approx(dict.fromkeys(names, 3 / 5 * SPACE.size))


def test_partitions_stay_whole_where_that_is_even() -> None:
    assert partitions_of(assign(even(4), members("a", "b"), None, 1)) == {"a": [0, 2], "b": [1, 3]}


def test_a_partition_is_shared_where_it_has_to_be() -> None:
    """Five slots of three partitions: three fifths each, in as few pieces as can be."""
    assignment = assign(even(3), members(*"abcde"), None, 1)
    sizes = {
        slot: sum(span.size for spans in assignment.of(slot).values() for span in spans) / END
        for slot in "abcde"
    }
    assert sizes == pytest.approx(dict.fromkeys("abcde", 0.6))
    assert sum(map(len, assignment.owners.values())) == 7


def test_a_heavy_partition_is_cut_and_light_ones_are_not() -> None:
    weights = even(5) | {TopicPartition("heavy", 0): 95.0}
    assignment = assign(weights, members("a", "b"), None, 1)
    assert len(assignment.owners[TopicPartition("heavy", 0)]) == 2
    assert all(len(assignment.owners[each]) == 1 for each in even(5))


def test_slots_have_what_their_capacity_says() -> None:
    assignment = assign(even(4), {"a": 3.0, "b": 1.0}, None, 1)
    assert {slot: len(each) for slot, each in partitions_of(assignment).items()} == {"a": 3, "b": 1}


def test_who_comes_gets_whole_partitions_where_they_fit() -> None:
    before = assign(even(8), members("a", "b"), None, 1)
    after = assign(even(8), members("a", "b", "c", "d"), before, 2)
    assert {len(each) for each in partitions_of(after).values()} == {2}
    assert moved(before, after, even(8)) == 0.5


def test_a_slot_that_goes_and_comes_back_gathers_the_pieces() -> None:
    before = assign(even(4), members("a", "b"), None, 1)
    grown = assign(even(4), members("a", "b", "c"), before, 2)
    shrunk = assign(even(4), members("a", "b"), grown, 3)
    assert moved(before, grown, even(4)) == pytest.approx(1 / 3)
    assert {len(each) for each in partitions_of(shrunk).values()} == {2}
    assert shrunk.epoch == 3


def test_a_new_partition_goes_to_who_has_least_and_a_deleted_one_vanishes() -> None:
    weights = {T0: 1.0, TopicPartition("u", 0): 1.0}
    before = assign({T0: 1.0, T1: 1.0}, members("a"), None, 1)
    after = assign(weights, members("a", "b"), before, 2)
    assert after.owners == {T0: whole("a"), TopicPartition("u", 0): whole("b")}


def test_partitions_that_weigh_nothing_are_spread_by_number() -> None:
    idle = dict.fromkeys(even(6), 0.0)
    busy = {TopicPartition("u", 0): 6.0, TopicPartition("u", 1): 5.5}
    assert {
        len(each) for each in partitions_of(assign(idle, members("a", "b"), None, 1)).values()
    } == {3}
    assert {
        len(each)
        for each in partitions_of(assign(idle | busy, members("a", "b"), None, 1)).values()
    } == {4}


def test_the_heaviest_partition_is_dealt_out_first() -> None:
    """So that it stays whole beside light ones."""
    weights = even(3) | {TopicPartition("u", 0): 3.0}
    assert {
        len(owned) for owned in assign(weights, members("a", "b"), None, 1).owners.values()
    } == {1}


def test_nobody_is_left_without_anything_for_the_sake_of_whole_partitions() -> None:
    slots = {f"s{number}": 1.0 for number in range(11)}
    assignment = assign(even(10), slots, None, 1)
    for slot in slots:
        size = sum(span.size for spans in assignment.of(slot).values() for span in spans)
        assert size / END >= 0.9 * 10 / 11


def test_a_lost_piece_goes_to_who_has_the_rest_of_the_partition() -> None:
    cut = END * 96 // 100
    before = Assignment(
        1,
        {
            T0: (Owned(KeyRange(0, cut), "a"), Owned(KeyRange(cut, END), "c")),
            T1: whole("b"),
        },
    )
    after = assign({T0: 1.0, T1: 0.92}, members("a", "b"), before, 2)
    assert after.owners == {T0: whole("a"), T1: whole("b")}


def test_who_comes_draws_its_share_from_the_fullest_and_nobody_else_gains() -> None:
    """a has 0.7, b 0.05 and c 0.25: d takes 0.25 from a, and b stays as it is."""
    cuts = [0, END * 7 // 10, END * 3 // 4, END]
    owned = tuple(
        Owned(KeyRange(*two), slot) for two, slot in zip(pairwise(cuts), "abc", strict=True)
    )
    before = Assignment(1, {T0: owned})
    after = assign({T0: 1.0}, members(*"abcd"), before, 2)
    assert moved(before, after, {T0: 1.0}) == pytest.approx(0.25)
    assert moved(before, after, {T0: 1.0}) <= 0.25
    assert [after.of(slot) == before.of(slot) for slot in "abc"] == [False, True, True]


def test_a_rebalance_evens_out_what_has_become_uneven() -> None:
    before = assign(even(4), members("a", "b"), None, 1)
    heavy = {each: 5.0 if before.owners[each] == whole("a") else 1.0 for each in even(4)}
    after = assign(heavy, members("a", "b"), before, 2)
    loads = {
        slot: sum(
            heavy[each] * span.size / END for each in heavy for span in after.of(slot).get(each, [])
        )
        for slot in "ab"
    }
    assert loads == pytest.approx({"a": 6.0, "b": 6.0}, rel=0.1)
    assert after != before


def test_a_small_unevenness_moves_nothing() -> None:
    before = assign(even(4), members("a", "b"), None, 1)
    weights = even(4) | {T0: 1.1, T1: 0.9}
    assert assign(weights, members("a", "b"), before, 2).owners == before.owners


@pytest.mark.parametrize(
    ("weights", "slots", "says"),
    [
        ({T0: 1.0}, {}, "no member"),
        ({T0: -1.0}, {"a": 1.0}, "t-0 weighs -1"),
        ({T0: float("nan")}, {"a": 1.0}, "t-0 weighs nan"),
        ({T0: float("inf")}, {"a": 1.0}, "t-0 weighs inf"),
        ({T0: 1.0}, {"a": 0.0}, "'a' has capacity 0"),
        ({T0: 1.0}, {"": 1.0}, "'' has capacity 1"),
    ],
)
def test_what_cannot_be_assigned_is_refused(
    weights: dict[TopicPartition, float], slots: dict[str, float], says: str
) -> None:
    with pytest.raises(ValueError, match=says):
        assign(weights, slots, None, 1)


def test_no_partitions_are_an_assignment() -> None:
    assert assign({}, members("a"), None, 1) == Assignment(1, {})


@pytest.mark.parametrize(
    ("epoch", "owned", "says"),
    [
        (0, (Owned(SPACE, "a"),), "0 is no epoch"),
        (1, (), "do not cover"),
        (1, (Owned(LOW, "a"),), "do not cover"),
        (1, (Owned(LOW, "a"), Owned(LOW, "b"), Owned(HIGH, "a")), "do not cover"),
        (1, (Owned(HIGH, "a"), Owned(LOW, "b")), "do not cover"),
        (1, (Owned(LOW, "a"), Owned(HIGH, "a")), "not merged"),
        (1, (Owned(SPACE, ""),), "no owner"),
    ],
)
def test_an_assignment_covers_the_space_once(
    epoch: int, owned: tuple[Owned, ...], says: str
) -> None:
    with pytest.raises(ValueError, match=says):
        Assignment(epoch, {T0: owned})


def test_the_owner_of_a_hash() -> None:
    assignment = Assignment(1, {T0: (Owned(LOW, "a"), Owned(HIGH, "b")), T1: whole("a")})
    assert [assignment.owner_of(T0, place) for place in (0, HALF - 1, HALF, HASH_MAX)] == [*"aabb"]
    assert assignment.owner_of(T2, 0) is None
    assert assignment.owner_of(T0, -1) is None
    assert assignment.owner_of(T0, END) is None
    assert assignment.of("a") == {T0: [LOW], T1: [SPACE]}
    assert assignment.of("c") == {}


def test_what_changes_for_one_slot() -> None:
    before = Assignment(1, {T0: (Owned(LOW, "a"), Owned(HIGH, "b")), T1: whole("a")})
    after = Assignment(2, {T0: whole("a"), T1: (Owned(LOW, "b"), Owned(HIGH, "a")), T2: whole("b")})

    change = changes(before, after, "a")
    assert (change.assigned, change.revoked) == ({T0: [HIGH]}, {T1: [LOW]})
    change = changes(before, after, "b")
    assert (change.assigned, change.revoked) == ({T1: [LOW], T2: [SPACE]}, {T0: [HIGH]})
    change = changes(None, after, "a")
    assert (change.assigned, change.revoked) == ({T0: [SPACE], T1: [HIGH]}, {})


def test_how_much_moved() -> None:
    before = Assignment(1, {T0: (Owned(LOW, "a"), Owned(HIGH, "b")), T1: whole("a")})
    after = Assignment(2, {T0: whole("a"), T2: whole("b")})
    assert moved(before, after, {T0: 2.0, T1: 1.0, T2: 1.0}) == 0.25
    assert moved(before, before, {T0: 2.0}) == 0.0
    assert moved(before, after, {}) == 0.0


def test_json_is_read_as_it_is_written() -> None:
    assignment = Assignment(7, {T0: (Owned(LOW, "a"), Owned(HIGH, "b")), T1: whole("a")})
    document = json.loads(json.dumps(assignment.to_json()))
    assert document == {
        "version": 1,
        "epoch": 7,
        "owners": {
            "t": {"0": [[0, HALF - 1, "a"], [HALF, HASH_MAX, "b"]], "1": [[0, HASH_MAX, "a"]]}
        },
    }
    assert Assignment.from_json(document) == assignment


def owners(ranges: Any, topic: Any = "t", number: str = "0") -> dict[str, Any]:
    return {"version": 1, "epoch": 1, "owners": {topic: {number: ranges}}}


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        {},
        {"version": 2, "epoch": 1, "owners": {}},
        {"version": 1, "epoch": 0, "owners": {}},
        {"version": 1, "epoch": True, "owners": {}},
        {"version": 1, "epoch": 1, "owners": []},
        owners(None),
        owners([]),
        owners([[0, HASH_MAX]]),
        owners([[0, HASH_MAX, 1]]),
        owners([[0, HASH_MAX, ""]]),
        owners([[False, HASH_MAX, "a"]]),
        owners([[0, END, "a"]]),
        owners([[1, HASH_MAX, "a"]]),
        owners([[0, HASH_MAX, "a"]], number="x"),
        owners([[0, HASH_MAX, "a"]], number="01"),
        owners([[0, HASH_MAX, "a"]], number="-1"),
        owners([[0, HASH_MAX, "a"]], topic=5),
    ],
)
def test_a_damaged_assignment_is_refused(document: Any) -> None:
    with pytest.raises(KeyrangeError, match=r"\[INVALID_ASSIGNMENT\]"):
        Assignment.from_json(document)


class WalkedOwners(dict[TopicPartition, tuple[Owned, ...]]):
    """Owners that count how often somebody walks over all of them."""

    walks = 0

    def items(self) -> Any:
        self.walks += 1
        return super().items()

    def values(self) -> Any:
        self.walks += 1
        return super().values()


def test_all_slots_are_read_in_one_walk() -> None:
    assignment = assign(even(12), members(*"abcdef"), None, 1)
    each = {slot: assignment.of(slot) for slot in assignment.slots}
    assert assignment.by_slot() == each
    assert list(assignment.by_slot()) == list(each)


@pytest.mark.parametrize("count", [2, 40])
def test_walks_over_partitions_do_not_grow_with_the_slots(count: int) -> None:
    names = [f"slot-{number:02d}" for number in range(count)]
    owners = WalkedOwners(assign(even(80), members(*names), None, 1).owners)
    assignment = Assignment(1, owners)
    owners.walks = 0

    ranges_by_slot(assignment)
    unbroken(assignment, {}, assignment, "run")

    assert owners.walks <= 6


def test_a_lot_is_not_shown_to_all_members(monkeypatch: pytest.MonkeyPatch) -> None:
    """With 10,000 partitions and 100 members that would be a million looks."""
    looks = []
    load_first = Balance._load_first

    def counted(balance: Balance, name: str) -> tuple[float, float]:
        looks.append(name)
        return load_first(balance, name)

    monkeypatch.setattr(Balance, "_load_first", counted)
    names = [f"slot-{number:02d}" for number in range(50)]

    assignment = assign(even(1_000), members(*names), None, 1)

    assert {len(ranges) for ranges in assignment.by_slot().values()} == {20}
    assert len(looks) < 10 * 1_000
