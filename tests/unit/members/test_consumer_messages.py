"""What members of a group of consumers tell one another."""

from __future__ import annotations

import pytest

from keyrange.errors import KeyrangeError
from keyrange.members.model.consumer_messages import (
    INTEREST_BYTES_MAX,
    Interest,
    Share,
    interests_of,
    read_interest,
    read_share,
    subscribers,
    write_interest,
    write_share,
)
from keyrange.model.key_ranges import HASH_MAX, KeyRange
from keyrange.model.offsets import TopicPartition

SPANS = [KeyRange(0, 5), KeyRange(9, HASH_MAX + 1)]
SHARE = Share(4, {TopicPartition("t", 1): SPANS}, frozenset("ab"), frozenset("b"), wish=7)


def test_both_come_back_as_they_were() -> None:
    assert read_share(write_share(SHARE)) == SHARE
    interest = Interest("g-1", ("a", "b"), "host", 7, "option")
    assert read_interest(write_interest(interest)) == interest
    assert b"pattern" not in write_interest(interest)
    interest = Interest("g-1", ("a", "b"), "host", 7, "option", "a|b", 3)
    assert read_interest(write_interest(interest)) == interest
    before = write_share(SHARE).replace(b',"wish":7', b"")
    assert read_share(before).wish is None


def test_a_wish_is_what_a_member_wants_to_read() -> None:
    wish = Interest("g-1", ("a", "b"), "host", 7, "option").wish
    assert Interest("g-2", ("b", "a"), "other", 8, "file", times=2).wish == wish
    others = [Interest("g-1", ("a",)), Interest("g-1", ("a", "b"), pattern="a|b")]
    assert wish not in {each.wish for each in others}


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"{}", b'{"v":2}', b"[" * 3_000, b"\xff"])
def test_who_is_no_consumer_gets_nothing(data: bytes) -> None:
    assert read_interest(data) is None
    assert interests_of({"m": data}) == {}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"epoch":4', b'"epoch":0'),
        (b'"epoch":4', b'"epoch":"4"'),
        (b'"v":1', b'"v":2'),
        (b"[0,4]", b"[4,0]"),
        (b"[0,4]", b"[0,9]"),
        (b'"1":', b'"-1":'),
        (b'["b"]', b"[1]"),
        (b'"ranges"', b'"rangs"'),
        (b'"wish":7', b'"wish":"7"'),
    ],
)
def test_what_is_no_share_is_refused(old: bytes, new: bytes) -> None:
    data = write_share(SHARE)
    assert old in data
    with pytest.raises(KeyrangeError, match="INVALID_ASSIGNMENT"):
        read_share(data.replace(old, new, 1))


def test_nobody_may_say_too_much() -> None:
    topics = tuple(f"topic-{number:04}" for number in range(500))
    with pytest.raises(KeyrangeError, match=rf"{INTEREST_BYTES_MAX} are room"):
        write_interest(Interest("g", topics))
    spans = [KeyRange(each, each + 1) for each in range(0, 100_000, 2)]
    with pytest.raises(KeyrangeError, match="INVALID_ASSIGNMENT"):
        write_share(Share(1, {TopicPartition("t", 0): spans}, frozenset(), frozenset()))


def test_a_slot_is_one_member_and_topics_go_by_who_reads_them() -> None:
    one, two = (write_interest(Interest(slot, ("t",))) for slot in "ab")
    found = interests_of({"m2": one, "m1": one, "m3": two})
    assert sorted(found) == ["m1", "m3"]
    interests = [Interest("a", ("t", "u")), Interest("b", ("t", "v")), Interest("c", ("u", "w"))]
    assert subscribers(interests) == {
        frozenset("ab"): ["t"],
        frozenset("ac"): ["u"],
        frozenset("b"): ["v"],
        frozenset("c"): ["w"],
    }
