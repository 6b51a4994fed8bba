"""Claims of many consumers: who is believed of each place, beside a model that asks for each."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from keyrange.individual_commits.model.partition_progress import KeyRangeState, PendingRecord, fresh
from keyrange.individual_commits.model.range_claims import (
    Claim,
    Claimed,
    believed,
    group_state,
    overlay,
    pieces_of,
    read_claim,
    write_claim,
)
from keyrange.model.key_ranges import SPACE, KeyRange, merge, split_evenly
from keyrange.model.offsets import TopicPartition

PARTITION = TopicPartition("t", 0)
CELLS = split_evenly(SPACE, 8)

# How fast a busy machine is says nothing.
PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

# What happens: a consumer takes some of eight cells, and works up to an offset.
steps = st.lists(
    st.tuples(st.integers(0, 3), st.sets(st.integers(0, 7), min_size=1), st.integers(0, 50)),
    max_size=12,
)


def take(claims: dict[str, Claim], source: str, cells: set[int]) -> None:
    """As a commit log does: fence who holds some of it, then claim."""
    wanted = {PARTITION: merge(CELLS[each] for each in cells)}
    epoch = 1 + max((claim.epoch for claim in claims.values()), default=0)
    for other, claim in list(claims.items()):
        if other != source and claim.holds_any(wanted):
            claims[other] = claim.fenced(epoch)
    before = claims.get(source) or Claim(source, epoch)
    claims[source] = before.claiming(epoch, wanted, {PARTITION: 0})


@PATIENT
@given(steps)
def test_the_last_one_to_claim_a_place_is_believed_and_no_place_has_two_holders(
    taken: list[tuple[int, set[int], int]],
) -> None:
    claims: dict[str, Claim] = {}
    last: dict[int, str] = {}
    for number, cells, _ in taken:
        take(claims, f"s{number}", cells)
        last |= dict.fromkeys(cells, f"s{number}")
        holders = [span for claim in claims.values() for span in claim.held(PARTITION)]
        assert sum(span.size for span in holders) == sum(span.size for span in merge(holders))
    found = believed(claims, PARTITION, SPACE)
    assert merge(cell for cell, _ in found) == [SPACE]
    for number, cell in enumerate(CELLS):
        for part, source in found:
            if part.contains(cell.from_hash):
                assert source == last.get(number, "")
                assert part.contains(cell.until_hash - 1)
    assert {source: read_claim(write_claim(claim)) for source, claim in claims.items()} == claims


@PATIENT
@given(steps)
def test_what_was_done_is_known_whoever_has_the_range_next(
    taken: list[tuple[int, set[int], int]],
) -> None:
    """Each works on from what is believed; a group never goes back."""
    claims: dict[str, Claim] = {}
    states: dict[str, object] = {}
    done = dict.fromkeys(range(8), 0)
    for number, cells, count in taken:
        source = f"s{number}"
        known = group_state(claims, states, PARTITION) or fresh("", 0)  # type: ignore[arg-type]
        take(claims, source, cells)
        pieces = []
        for cell in sorted(cells):
            [piece] = pieces_of(known.merged(), CELLS[cell])
            assert piece.scanned == done[cell]
            done[cell] += count
            pieces.append(KeyRangeState(piece.span, done[cell]))
        base = states.get(source, fresh("", 0))
        states[source] = overlay(base, pieces)  # type: ignore[arg-type]
    state = group_state(claims, states, PARTITION)  # type: ignore[arg-type]
    if taken:
        assert state is not None
        assert [pieces_of(state, cell)[0].scanned for cell in CELLS] == list(done.values())
        assert state.committed == min(done.values())
    else:
        assert state is None


def test_what_is_let_go_of_is_taken_in_the_same_epoch() -> None:
    low, high = split_evenly(SPACE, 2)
    first = Claim("a", 1).claiming(2, {PARTITION: [SPACE]}, {PARTITION: 0})
    after = first.claiming(2, {PARTITION: [low]}, {})
    assert (first.held(PARTITION), after.held(PARTITION)) == ([SPACE], [low])
    assert believed({"a": after}, PARTITION, SPACE) == [(SPACE, "a")]
    heir = Claim("b", 2).claiming(2, {PARTITION: [high]}, {})
    for claim in (heir, heir.fenced(3)):
        claims = {"a": after, "b": claim}
        assert believed(claims, PARTITION, SPACE) == [(low, "a"), (high, "b")]
    assert after.claiming(2, {}, {}).held(PARTITION) == []


def test_an_overlay_keeps_what_lies_beside_it() -> None:
    low, high = split_evenly(SPACE, 2)
    base = overlay(fresh("id", 5), [KeyRangeState(high, 9, (PendingRecord(7, high.from_hash),))])
    assert (base.position, base.committed) == (9, 5)
    after = overlay(base, [KeyRangeState(low, 20)])
    assert [(p.span, p.scanned, len(p.pending)) for p in after.pieces] == [
        (low, 20, 0),
        (high, 9, 1),
    ]


GOOD = write_claim(Claim("s", 3, {PARTITION: (Claimed(KeyRange(0, 5), 2),)}, {PARTITION: 7}))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        "[" * 100_000,
        GOOD.replace('"v":1', '"v":2'),
        GOOD.replace('"v":1', '"marks":1,"v":1'),
        GOOD.replace('"epoch":3', '"epoch":true'),
        GOOD.replace('"epoch":3', '"epoch":1'),
        GOOD.replace("[0,4,2]", "[0,4]"),
        GOOD.replace("[0,4,2]", "[4,0,2]"),
        GOOD.replace("[0,4,2]", "[0,4,2],[4,5,1]"),
        GOOD.replace('"0":7', '"x":7'),
        GOOD.replace('"0":7', '"0":-1'),
        GOOD.replace('"ready":true', '"ready":1'),
        GOOD.replace('"slot":"s"', '"slot":1'),
    ],
)
def test_what_is_no_claim_is_refused(text: str) -> None:
    assert read_claim(GOOD).begun == {PARTITION: 7}
    assert text != GOOD
    with pytest.raises(ValueError):
        read_claim(text)


@PATIENT
@given(st.integers(0, 2**32))
def test_damage_never_becomes_another_exception(seed: int) -> None:
    dice = random.Random(seed)
    text = list(GOOD)
    for _ in range(dice.randint(1, 4)):
        text[dice.randrange(len(text))] = dice.choice('[]{}",:019-eE x')
    try:
        read_claim("".join(text))
    except ValueError:
        pass


def test_a_claim_says_that_its_writer_has_ended() -> None:
    claim = Claim("s", 3, {PARTITION: (Claimed(SPACE, 3),)}, {PARTITION: 0}, closed=True)
    assert read_claim(write_claim(claim)) == claim
    assert claim.fenced(4).closed
    assert claim.fenced(4).holds_nothing
    assert not claim.holds_nothing
    assert not claim.claiming(4, {}, {}).closed


def test_a_claim_says_beside_which_topic_its_writer_has_marks() -> None:
    """What follows a claim that holds nothing has still to see to what its writer has left."""
    claim = Claim("s", 3, {PARTITION: (Claimed(SPACE, 3),)}, {PARTITION: 0}, marks="out")
    assert '"v":1}' in write_claim(claim)
    assert read_claim(write_claim(claim)) == claim
    assert claim.fenced(4).marks == "out"
    assert not claim.claiming(4, {}, {}).marks
