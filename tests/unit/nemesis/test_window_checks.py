"""The nemesis' checker of windows finds what it is there for, in tables that were forged."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from itertools import pairwise

import pytest

from nemesis.checker import check
from nemesis.facts import Again, Batch, Facts, Gone, Letter, Place, Read, Row, Timed, Window
from nemesis.windows import AHEAD_MS, BEGAN_MS, DELAY_MS, END_MS, GAP_MS, SIZE_MS

RUN = "this"
US = 1000
# Of which source everything is, and how many records a batch reads of the one partition.
SOURCE, EACH = "source", 10
# Two keys, and the last record of the partition.
SENT = {Place(0, n, n): f"key-{n % 2}" for n in range(60)} | {Place(0, 60, 60): "end-0"}
PLACES = {place.n: place for place in SENT}
FAR_AHEAD, LATE, FAILED = 21, 35, 44
# Two minutes from one record to the next, and a pause in the middle that ends all sessions.
TIMES = {n: BEGAN_MS + n * 120_000 + (n >= 30) * 2 * GAP_MS for n in range(60)}
TIMES |= {FAR_AHEAD: AHEAD_MS, LATE: BEGAN_MS + 1, 60: END_MS}
KEPT = [n for n in TIMES if n not in (FAR_AHEAD, LATE, FAILED, 60)]
READS = {
    Batch(SOURCE, at): {0: Read(min(at * EACH, 61), min(at * EACH, 61), "id")} for at in range(10)
}


def batch_after(us: int) -> int:
    """The first batch that begins with a watermark that has come so far."""
    reached = [n for n in TIMES if n != FAR_AHEAD and (TIMES[n] - DELAY_MS) * US >= us]
    return min(reached) // EACH + 1


def window(numbers: list[int], start_ms: int, end_ms: int, more_us: int) -> Window:
    at = batch_after(end_ms * US + more_us)
    places = tuple(PLACES[n] for n in numbers)
    bounds = start_ms * US, end_ms * US
    return Window(SENT[places[0]], *bounds, len(numbers), sum(numbers), places, at)


def sessions() -> list[Window]:
    found = []
    for key in (0, 1):
        groups: list[list[int]] = [[]]
        numbers = [n for n in KEPT if n % 2 == key]
        for before, n in pairwise([numbers[0], *numbers]):
            if TIMES[n] - TIMES[before] > GAP_MS:
                groups.append([])
            groups[-1].append(n)
        found += [window(each, TIMES[each[0]], TIMES[each[-1]] + GAP_MS, 1) for each in groups]
    return found


def tumbling() -> list[Window]:
    found = defaultdict(list)
    for n in KEPT:
        found[n % 2, TIMES[n] // SIZE_MS * SIZE_MS].append(n)
    return [window(each, start, start + SIZE_MS, 0) for (_, start), each in found.items()]


def facts(kind: str) -> Facts:
    batches = {at: Batch(SOURCE, at) for at in range(10)}
    windows = sessions() if kind == "session" else tumbling()
    timed = Timed(kind, windows, TIMES, batches, READS)
    if timed.has_rows:
        rows = [Row(PLACES[n], SENT[PLACES[n]], RUN, (n,), n // EACH) for n in (*KEPT, FAR_AHEAD)]
        rows.append(Row(PLACES[60], "end-0", RUN, (60,), 6))
    else:
        rows = [Row(place, each.key, RUN, ()) for each in windows for place in each.places]
    letters = [
        Letter(PLACES[LATE], SENT[PLACES[LATE]], 1, "late", Batch(SOURCE, LATE // EACH)),
        Letter(PLACES[FAILED], SENT[PLACES[FAILED]], 4, "rejected", Batch(SOURCE, 5)),
    ]
    return Facts(RUN, SENT, rows, letters, deliveries_max=4, timed=timed)


def found(facts: Facts) -> list[str]:
    return [each.what for each in check(facts)]


def with_windows(of: Facts, windows: list[Window]) -> Facts:
    assert of.timed is not None
    rows = of.rows
    if not of.timed.has_rows:
        rows = [Row(place, each.key, RUN, ()) for each in windows for place in each.places]
    return replace(of, rows=rows, timed=replace(of.timed, windows=windows))


KINDS = pytest.mark.parametrize("kind", ["session", "timers"])


@KINDS
def test_a_good_run_has_nothing_wrong(kind: str) -> None:
    of = facts(kind)
    assert of.timed is not None
    assert len(of.timed.windows) > 4
    assert found(of) == []


@KINDS
def test_a_window_that_is_lost(kind: str) -> None:
    of = facts(kind)
    assert of.timed is not None
    what = "lost" if kind == "session" else "windows forgotten"
    for at in range(len(of.timed.windows)):
        windows = [each for number, each in enumerate(of.timed.windows) if number != at]
        assert found(with_windows(of, windows)) == [what]


@KINDS
def test_a_window_that_is_there_twice(kind: str) -> None:
    """In one batch or in two; but for a partition whose state was set back."""
    of = facts(kind)
    assert of.timed is not None
    windows = [*of.timed.windows]
    for version in (windows[1].version, 9):
        twice = with_windows(of, [*windows, replace(windows[1], version=version)])
        what = "doubled" if kind == "session" else "windows forgotten"
        assert sorted(found(twice)) == sorted([what, "windows rewritten"])
        assert found(replace(twice, again=[Again(0, 0, 60)])) == []
        assert found(replace(twice, again=[Again(1, 0, 60)])) != []


@KINDS
def test_a_window_in_two_parts(kind: str) -> None:
    """As where the second part found the first one written; but for a dead letter that was handed
    out again, and for a topic that was made anew."""
    of = facts(kind)
    assert of.timed is not None
    windows = [*of.timed.windows]
    whole = max(windows, key=lambda each: each.count)
    cut = whole.count - 1
    parts = []
    for places in (whole.places[:cut], whole.places[cut:]):
        numbers = [place.n for place in places]
        bounds = whole.start_us, whole.end_us
        if kind == "session":
            bounds = TIMES[numbers[0]] * US, (TIMES[numbers[-1]] + GAP_MS) * US
        start_us, end_us = bounds
        said = {"places": places, "count": len(places), "total": sum(numbers)}
        parts.append(replace(whole, start_us=start_us, end_us=end_us, **said))
    both = with_windows(of, [*(each for each in windows if each is not whole), *parts])
    assert found(both) == ["windows rewritten"]
    assert found(replace(both, replayed=frozenset(whole.places[cut:]))) == []


@KINDS
@pytest.mark.parametrize(
    "wrong",
    [{"total": 1}, {"count": 1}, {"start_us": 0}, {"end_us": BEGAN_MS * US}, {"key": "key-9"}],
    ids=str,
)
def test_a_window_that_is_not_what_its_records_say(kind: str, wrong: dict[str, int]) -> None:
    of = facts(kind)
    assert of.timed is not None
    first, *others = of.timed.windows
    assert "windows miswritten" in found(with_windows(of, [replace(first, **wrong), *others]))


@KINDS
def test_a_window_that_is_written_early(kind: str) -> None:
    """In the batch before the one that begins with its time."""
    of = facts(kind)
    assert of.timed is not None
    for at, each in enumerate(of.timed.windows):
        windows = [*of.timed.windows]
        windows[at] = replace(each, version=each.version - 1)
        assert found(with_windows(of, windows)) == ["windows early"]
        windows[at] = replace(each, version=11)
        assert found(with_windows(of, windows)) == ["windows early"]


def test_a_time_that_is_far_ahead_moves_no_watermark() -> None:
    of = facts("session")
    assert of.timed is not None
    reached = dict(TIMES) | {FAR_AHEAD: END_MS - 1}
    assert found(replace(of, timed=replace(of.timed, times_ms=reached))) != []


@KINDS
def test_a_record_that_is_given_up_as_late_and_is_not(kind: str) -> None:
    of = facts(kind)
    *letters, last = of.letters
    assert found(replace(of, letters=[*letters, replace(last, cause="late")])) == ["misjudged"]


def test_a_record_that_is_worked_on_as_a_late_one() -> None:
    """It is in no window; and one that is not late is in one."""
    of = facts("timers")
    [*_, failed] = of.letters
    row = Row(PLACES[LATE], SENT[PLACES[LATE]], RUN, (LATE,), LATE // EACH, late=True)
    delivered = replace(of, letters=[failed], rows=[*of.rows, row])
    assert found(delivered) == []
    assert found(replace(delivered, rows=[*of.rows, replace(row, late=False)])) != []
    first, *rest = of.rows
    wrong = replace(of, rows=[replace(first, late=True), *rest])
    assert found(wrong) == ["windows forgotten", "misjudged"]


def test_a_record_that_is_late_and_was_worked_on() -> None:
    """What comes again was judged when it came first."""
    of = facts("timers")
    assert of.timed is not None
    row = Row(PLACES[LATE], SENT[PLACES[LATE]], RUN, (LATE,), LATE // EACH)
    window = next(each for each in of.timed.windows if each.start_us // US == BEGAN_MS + SIZE_MS)
    size_us = SIZE_MS * US
    start_us = BEGAN_MS * US // size_us * size_us
    late = replace(
        window,
        key="key-1",
        start_us=start_us,
        end_us=start_us + size_us,
        places=(PLACES[LATE],),
        count=1,
        total=LATE,
        version=5,
    )
    letters = [each for each in of.letters if each.cause != "late"]
    worked_on = replace(of, letters=letters, rows=[*of.rows, row])
    worked_on = with_windows(worked_on, [*of.timed.windows, late])
    assert sorted(found(worked_on)) == ["misjudged", "windows rewritten"]
    again = replace(worked_on, rows=[*of.rows, replace(row, version=LATE // EACH + 1)])
    assert sorted(found(again)) == ["disordered", "windows rewritten"]


def test_a_record_is_in_one_window_for_each_row() -> None:
    of = facts("timers")
    assert found(replace(of, rows=of.rows[1:])) == ["lost", "windows forgotten"]
    # A topic that is made anew takes its open windows along, and nothing else does.
    assert of.timed is not None
    less = with_windows(of, [*of.timed.windows[1:]])
    assert found(replace(less, gone=[Gone("recreate-topic", -1, 0, 99, 60)])) == []
    deleted = replace(less, gone=[Gone("delete-ahead", 0, 0, 99, 60)])
    assert found(deleted) == ["windows forgotten"]
    # What is deleted does not come again where state is set back.
    assert found(replace(deleted, again=[Again(0, 0, 60)])) == []
    assert found(replace(less, unreadable=frozenset(PLACES.values()))) == []
