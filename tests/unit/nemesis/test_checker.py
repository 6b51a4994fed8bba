"""The nemesis' checker finds what it is there for, in tables that were forged."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nemesis.checker import check, removed, waiting
from nemesis.facts import (
    Again,
    End,
    Facts,
    Gone,
    Letter,
    Place,
    Position,
    Row,
    Start,
    Version,
)

RUN = "this"
# Three keys in two partitions, ten records each.
SENT = {Place(n % 3 % 2, n, n): f"key-{n % 3}" for n in range(30)}


def row(place: Place, at: int | None = None, version: int = 0, run: str = RUN) -> Row:
    return Row(place, SENT.get(place, "key-0"), run, (place.n if at is None else at,), version)


GOOD = Facts(
    run=RUN,
    sent=SENT,
    rows=[row(place) for place in SENT if place.n != 7],
    letters=[Letter(place, SENT[place], 4) for place in SENT if place.n == 7],
)
PLACES = {place.n: place for place in SENT}


def found(facts: Facts) -> list[str]:
    return [each.what for each in check(facts)]


def test_a_good_run_has_nothing_wrong() -> None:
    assert found(GOOD) == []


def test_a_record_that_is_nowhere_is_lost() -> None:
    [finding] = check(replace(GOOD, rows=[each for each in GOOD.rows if each.place.n != 12]))
    assert (finding.what, finding.count) == ("lost", 1)
    assert "n=12" in finding.examples[0]


def test_a_dead_letter_that_is_nowhere_is_lost() -> None:
    assert found(replace(GOOD, letters=())) == ["lost"]


@pytest.mark.parametrize("n", [3, 7])
def test_a_record_that_is_there_twice(n: int) -> None:
    """As two rows, or as a row and a dead letter."""
    assert found(replace(GOOD, rows=[*GOOD.rows, row(PLACES[n])])) == ["doubled"]


def test_a_dead_letter_that_is_there_twice() -> None:
    assert found(replace(GOOD, letters=[*GOOD.letters, *GOOD.letters])) == ["doubled"]


def test_what_was_sent_again_to_a_log_that_was_cut_back_may_be_there_from_both() -> None:
    twice = replace(GOOD, rows=[*GOOD.rows, row(PLACES[3], at=99)])
    sent_again = replace(twice, in_both_logs=frozenset({3}))
    assert found(sent_again) == []
    assert found(replace(sent_again, rows=[*sent_again.rows, row(PLACES[3])])) == ["doubled"]
    assert "doubled" in found(replace(twice, in_both_logs=frozenset({4})))


def test_what_was_handed_out_again_on_request_may_be_there_once_more() -> None:
    twice = replace(GOOD, rows=[*GOOD.rows, row(PLACES[3], at=99)])
    asked = replace(twice, again=[Again(0, 2, 4)])
    assert found(asked) == []
    assert found(replace(asked, rows=[*asked.rows, row(PLACES[3], at=100)])) == ["doubled"]
    assert found(replace(twice, again=[Again(1, 0, 30)])) != []
    assert found(replace(twice, again=[Again(0, 0, 3)])) != []


def test_a_row_of_another_run_is_foreign() -> None:
    rows = [*GOOD.rows, row(Place(0, 40, 40), run="another")]
    assert found(replace(GOOD, rows=rows)) == ["foreign"]


def test_a_row_that_was_never_sent_is_foreign() -> None:
    """A number at another offset is another record."""
    assert found(replace(GOOD, rows=[*GOOD.rows, row(Place(0, 40, 3), at=3)])) == ["foreign"]


def test_a_record_that_was_not_acknowledged_may_be_there_once() -> None:
    unsure = replace(GOOD, unsure=frozenset({40}))
    once = replace(unsure, rows=[*GOOD.rows, row(Place(0, 40, 40))])
    assert found(unsure) == found(once) == []
    assert found(replace(once, rows=[*once.rows, row(Place(0, 40, 40))])) == ["doubled"]


def test_a_key_that_was_worked_on_in_another_order() -> None:
    rows = [row(each.place, at=2) if each.place.n == 12 else each for each in GOOD.rows]
    [finding] = check(replace(GOOD, rows=rows))
    assert finding.what == "disordered"
    assert "n=12" in finding.examples[0]
    # It may have been among the dead letters, so that others of its key went on.
    assert found(replace(GOOD, rows=rows, replayed=frozenset([PLACES[12]]))) == []


def test_keys_have_no_order_among_each_other() -> None:
    rows = [row(each.place, at=each.place.n + 50 * (each.place.n % 3)) for each in GOOD.rows]
    assert found(replace(GOOD, rows=rows)) == []


def test_a_key_that_came_to_the_table_in_another_order() -> None:
    rows = [
        row(each.place, version=1 if each.place.n == 12 else each.place.n) for each in GOOD.rows
    ]
    assert found(replace(GOOD, rows=rows)) == ["disordered"]


def test_what_a_fault_took_may_be_missing_and_never_be_there_twice() -> None:
    less = replace(GOOD, rows=[each for each in GOOD.rows if each.place.n != 12])
    assert found(replace(less, gone=[Gone("delete-ahead", 0, 0, 13, 30)])) == []
    # What a broker that was killed has forgotten to delete is not read either; what a new leader or
    # topic has is.
    there = replace(less, log=frozenset(SENT))
    assert found(replace(there, gone=[Gone("delete-ahead", 0, 0, 13, 30)])) == []
    assert found(replace(there, gone=[Gone("unclean-election", 0, 0, 13, 30)])) == ["lost"]
    for other in (
        Gone("delete-ahead", 1, 0, 13, 30),
        Gone("delete-ahead", 0, 0, 12, 30),
        Gone("delete-ahead", 0, 13, 20, 30),
        Gone("recreate-topic", -1, 0, 99, 12),
    ):
        assert found(replace(less, gone=[other])) == ["lost"]
    twice = replace(GOOD, rows=[*GOOD.rows, row(PLACES[3])])
    assert found(replace(twice, gone=[Gone("recreate-topic", -1, 0, 99, 30)])) == ["doubled"]


def test_a_replayed_dead_letter_whose_record_was_deleted_before_may_be_missing() -> None:
    """Retention deletes behind the committed position, where dead letters are: they are done."""
    deleted = [Gone("delete-done", PLACES[7].partition, 0, 8, 30)]
    unreadable = frozenset(removed([letter.place for letter in GOOD.letters], deleted))
    assert unreadable == {PLACES[7]}
    replayed = replace(GOOD, letters=(), replayed=unreadable)
    assert found(replayed) == ["lost"]
    assert found(replace(replayed, unreadable=unreadable)) == []
    # That it was deleted is no excuse for a record that was not replayed, and none for two rows.
    rows = [each for each in GOOD.rows if each.place.n != 3]
    assert found(replace(replayed, unreadable=unreadable, rows=rows)) == ["lost"]
    twice = [*GOOD.rows, row(PLACES[7]), row(PLACES[7])]
    assert found(replace(replayed, unreadable=unreadable, rows=twice)) == ["doubled"]
    for other in (
        Gone("delete-done", 1 - PLACES[7].partition, 0, 8, 30),
        Gone("delete-done", PLACES[7].partition, 0, 7, 30),
        Gone("delete-done", PLACES[7].partition, 0, 8, 7),
    ):
        assert removed([PLACES[7]], [other]) == set()


def left(present: list[Place], *gone: Gone) -> list[int]:
    return sorted(place.n for place in waiting(SENT, set(present), gone))


def test_what_is_left_to_do() -> None:
    less = [place for place in SENT if place.n not in (12, 18)]
    assert left(less) == [12, 18]
    assert left(less, Gone("delete-ahead", 0, 0, 13, 30)) == [18]
    # A batch that was under way when a fault took its records may still write them.
    assert left([*less, PLACES[12]], Gone("delete-ahead", 0, 0, 13, 30)) == [18]
    # What was sent and never acknowledged may be in the table.
    assert left([*less, Place(0, 40, 40)]) == [12, 18]


def test_a_position_that_moves_back() -> None:
    steps = [Position("commits", step, 0, "id", at) for step, at in enumerate([0, 5, 4, 6])]
    assert found(replace(GOOD, positions=steps)) == ["moved back"]
    asked = [replace(each, moved_back=each.step == 2) for each in steps]
    assert found(replace(GOOD, positions=asked)) == []
    cut = Gone("unclean-election", 0, 0, 30, 0)
    assert found(replace(GOOD, positions=steps, gone=[cut])) == []
    assert found(replace(GOOD, positions=steps, gone=[replace(cut, partition=1)])) != []
    anew = [replace(each, topic_id="id" if each.step < 2 else "new") for each in steps]
    assert found(replace(GOOD, positions=anew)) == []


def test_a_record_that_is_given_up_early() -> None:
    assert found(replace(GOOD, deliveries_max=4)) == []
    assert found(replace(GOOD, deliveries_max=5)) == ["given up early"]


def test_an_end_that_no_fault_explains() -> None:
    end = End(12.0, "RECORDS_OUT_OF_ORDER", "no", frozenset({"KILLED"}))
    [finding] = check(replace(GOOD, ends=[end]))
    assert finding.what == "ended"
    assert "RECORDS_OUT_OF_ORDER" in finding.examples[0]
    assert found(replace(GOOD, ends=[replace(end, why="KILLED")])) == []


def test_what_others_found_is_told() -> None:
    told = [("verify", "one"), ("verify", "two"), ("process left", "three")]
    assert [(each.what, each.count) for each in check(replace(GOOD, complaints=told))] == [
        ("verify", 2),
        ("process left", 1),
    ]


def test_a_table_of_last_rows_is_held_to_what_came() -> None:
    rows = [row(place, version=place.n // 10) for place in SENT if place.n != 7]
    last = {each.key: each for each in rows}
    # Number 28 deletes its key.
    del last["key-1"]
    good = replace(GOOD, rows=rows, last=[*last.values()])
    assert found(good) == []
    older = [each for each in rows if each.key == "key-2"][-2]
    for wrong in (
        [*last.values(), older],
        [each for each in last.values() if each.key != "key-2"],
        [older if each.key == "key-2" else each for each in last.values()],
        [*last.values(), next(each for each in rows if each.place.n == 28)],
        [*last.values(), Row(PLACES[3], "no key", RUN, (0,))],
    ):
        assert found(replace(good, last=wrong)) == ["stale"]
    # Two partitions have no common order in one batch.
    moved = Row(Place(1, 0, 99), "key-0", RUN, (99,), 2)
    sent = {**SENT, moved.place: "key-0"}
    both = replace(good, sent=sent, rows=[*rows, moved])
    assert found(both) == found(replace(both, last=[moved, *list(last.values())[1:]])) == []


def test_a_table_of_copies_has_the_rows_of_the_same_call() -> None:
    copies = [each for each in GOOD.rows if each.place.n % 3]
    good = replace(GOOD, copies=copies)
    assert found(good) == []
    left_out = row(PLACES[3])
    for wrong in (
        copies[1:],
        [*copies, copies[0]],
        [*copies, left_out],
        [replace(copies[0], at=(1_000,)), *copies[1:]],
        [],
    ):
        assert "uncopied" in found(replace(good, copies=wrong))


def test_copies_of_a_key_come_in_the_order_of_its_records() -> None:
    """In a topic: by their offsets."""
    copies = [row(each.place, version=at) for at, each in enumerate(GOOD.rows) if each.place.n % 3]
    good = replace(GOOD, copies=copies)
    assert found(good) == []
    early = replace(copies[-1], version=0)
    assert found(replace(good, copies=[*copies[:-1], early])) == ["disordered"]


def grown(each: Row) -> Row:
    """By writers of one field and of none, read where one and where two are known."""
    writer, known = each.place.n % 2, 1 + each.place.n % 2
    values = [each.place.n * 100 + 1 if writer else -1, -1]
    return replace(each, writer=writer, added=tuple(values[:known]))


def test_added_fields_are_what_their_writer_wrote_or_the_default() -> None:
    rows = [grown(each) for each in GOOD.rows]
    good = replace(GOOD, rows=rows)
    assert found(good) == []
    for wrong in ((), (101,), (None, -1), (-1, -1), (101, -1, None), (-1, 101)):
        others = [replace(e, added=wrong) if e.place.n == 1 else e for e in rows]
        assert found(replace(good, rows=others)) == (
            ["misread"] if wrong not in ((), (101,)) else []
        )
    # What the last row's batch did not have is as it was before.
    [last] = [each for each in rows if each.place.n == 29]
    both = replace(good, rows=[last], sent={last.place: last.key}, letters=())
    assert found(replace(both, last=[replace(last, added=(*last.added, 7))])) == []
    assert found(replace(both, last=[replace(last, added=(7, -1))])) == ["misread"]


def test_columns_come_with_the_files_that_have_them() -> None:
    """The first version is that of a new table."""
    good = [Version(0, 1, None), Version(1, 1, 1), Version(2, 2, 2), Version(3, 2, 1)]
    starts = [Start(-1, 1, True), Start(1, 2, True)]
    facts = replace(GOOD, versions={"table": good}, starts=starts)
    assert found(facts) == []
    for wrong in (
        [*good[:2], Version(2, 2, None), Version(3, 2, 2)],
        [*good[:2], Version(2, 2, 1), Version(3, 2, 2)],
        [*good[:3], Version(3, 1, 1)],
        [*good[:1], Version(1, 1, 2), *good[2:]],
    ):
        assert found(replace(facts, versions={"table": wrong})) == ["misshapen"]
    # A driver that was told a field has written some batches without it; or none, or not it alone.
    narrow = [*good[:2], *(Version(at, 1, 1) for at in range(2, 5))]
    facts = replace(facts, versions={"table": narrow})
    assert found(facts) == ["misshapen"]
    assert found(replace(facts, versions={"table": narrow[:4]})) == []
    assert found(replace(facts, starts=[starts[0], replace(starts[1], alone=False)])) == []
