"""Consumers of topics that transactions write to: what they are handed, and what counts as done."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from keyrange.consumer.owned_ranges import OwnedRanges
from keyrange.errors import KeyrangeError
from keyrange.model.key_ranges import SPACE, split_evenly
from project.forms import by_form
from queries.scripted_consumer import FIRST, acknowledged, commits_fit, done, holding, polled
from samples.transactional_log import TransactionalLog

LOW, HIGH = split_evenly(SPACE, 2)
LEVEL = {"kafka.isolation.level": "read_committed"}


@pytest.fixture
def log() -> TransactionalLog:
    return TransactionalLog()


def reader(log: TransactionalLog, path: Path, slot: str, committed: bool = True) -> OwnedRanges:
    return holding(log.world(committed), path, slot, **(LEVEL if committed else {}))


def taking(
    log: TransactionalLog, made: OwnedRanges, *spans: object, committed: bool = True
) -> None:
    made.take(log.world(committed).view(), {FIRST: list(spans or [SPACE])})


def test_aborted_records_are_of_nobody_s_key_range(log: TransactionalLog, tmp_path: Path) -> None:
    for at in range(6):
        log.transaction(commit=at % 2 == 0)
    low, high = reader(log, tmp_path, "a"), reader(log, tmp_path, "b")
    taking(log, low, LOW)
    taking(log, high, HIGH)
    mine, theirs = polled(low), polled(high)
    assert mine
    assert theirs
    assert sorted([*mine, *theirs]) == log.committed
    done(low, *mine)
    done(high, *theirs)
    assert low.committed(FIRST) == log.end
    assert commits_fit(tmp_path, "a", "b")


def test_what_is_done_above_aborted_records_is_one_range(
    log: TransactionalLog, tmp_path: Path
) -> None:
    log.transaction(True)
    log.transaction(False)
    last = log.transaction(True)
    made = reader(log, tmp_path, "a")
    taking(log, made)
    handed = polled(made)
    done(made, *[each for each in handed if each not in (0, last[-1])])
    [piece] = made._works[FIRST].pieces()
    assert [record.offset for record in piece.pending] == [0]
    assert done(made, 0, last[-1]) == 2
    assert made.committed(FIRST) == log.end


@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_that_is_open_while_its_reader_leaves(
    log: TransactionalLog, tmp_path: Path, commit: bool
) -> None:
    log.transaction(True)
    held = log.write(7, 3)
    behind = log.transaction(True)
    first = reader(log, tmp_path, "a")
    taking(log, first, SPACE)
    assert polled(first) == [0, 1, 2, 3, 4]
    done(first, 0, 1, 2, 3, 4)
    assert first.committed(FIRST) == log.stable == held[0]
    first.drop()

    heir = reader(log, tmp_path, "b")
    taking(log, heir, SPACE)
    assert polled(heir) == []
    log.finish(7, commit)
    expected = [*(held if commit else []), *behind]
    assert polled(heir) == expected
    done(heir, *expected)
    assert heir.committed(FIRST) == log.end
    assert commits_fit(tmp_path, "a", "b")


class TestSeek:
    def test_into_aborted_records(self, log: TransactionalLog, tmp_path: Path) -> None:
        log.transaction(True)
        aborted = log.transaction(False)
        last = log.transaction(True)
        made = reader(log, tmp_path, "a")
        taking(log, made)
        assert polled(made) == log.committed
        acknowledged(made, 0, 1)
        made.seek(FIRST, aborted[2])
        assert made.position(FIRST) == last[0]
        assert polled(made) == last
        # What waits before it waits on.
        assert done(made, 2, 3, 4, *last) == 3 + len(last)
        assert made.committed(FIRST) == log.end

    def test_forward_into_aborted_records(self, log: TransactionalLog, tmp_path: Path) -> None:
        log.transaction(True)
        aborted = log.transaction(False)
        last = log.transaction(True)
        made = reader(log, tmp_path, "a")
        taking(log, made)
        made.seek(FIRST, aborted[2])
        assert made.commit() == {FIRST: aborted[2]}
        assert polled(made) == last

    def test_behind_the_last_stable_offset_is_refused(
        self, log: TransactionalLog, tmp_path: Path
    ) -> None:
        log.transaction(True)
        held = log.write(7, 3)
        made = reader(log, tmp_path, "a")
        taking(log, made)
        with pytest.raises(KeyrangeError, match=f"SEEK_REFUSED.*ends at {held[0]}"):
            made.seek(FIRST, held[1])
        made.seek(FIRST, held[0])
        log.finish(7, True)
        assert polled(made) == held


class TestOtherLevels:
    """One that reads everything is followed by one that reads what is committed."""

    @pytest.mark.parametrize("fails", [True, False])
    def test_the_log_is_not_cut_back(
        self, log: TransactionalLog, tmp_path: Path, fails: bool
    ) -> None:
        log.transaction(True)
        held = log.write(7, 4)
        before = reader(log, tmp_path, "a", committed=False)
        taking(log, before, committed=False)
        assert polled(before) == [*range(5), *held]
        done(before, *range(5), held[0], held[2])

        after = holding(log.world(), tmp_path, "b", fails, **LEVEL)
        taking(log, after)
        assert after.commit() == {FIRST: held[1]}
        assert after.position(FIRST) == held[1]
        log.finish(7, True)
        last = log.transaction(True)
        assert polled(after) == [held[1], held[3], *last]
        done(after, held[1], held[3], *last)
        assert after.committed(FIRST) == log.end
        assert commits_fit(tmp_path, "a", "b")

    def test_records_that_waited_and_were_aborted_are_done(
        self, log: TransactionalLog, tmp_path: Path
    ) -> None:
        log.transaction(True)
        held = log.write(7, 4)
        before = reader(log, tmp_path, "a", committed=False)
        taking(log, before, committed=False)
        polled(before)
        done(before, *range(5), held[0], held[2])
        log.finish(7, False)
        after = reader(log, tmp_path, "b")
        taking(log, after)
        assert polled(after) == []
        assert after.commit() == {FIRST: log.end}


@pytest.mark.ordinary
@pytest.mark.parametrize("seed", range(by_form(1, 2, 8)))
def test_any_transactions_and_any_hand_overs(
    log: TransactionalLog, tmp_path: Path, seed: int
) -> None:
    """Each committed record is done once, in whatever ranges, and no aborted one is seen."""
    random = Random(seed)
    readers: dict[str, OwnedRanges] = {}
    waiting: dict[str, set[int]] = {}
    settled: list[int] = []

    def works(slot: str, share: float = 0.6) -> None:
        waiting[slot] |= set(polled(readers[slot]))
        some = sorted(each for each in waiting[slot] if random.random() < share)
        assert done(readers[slot], *some) == len(some)
        waiting[slot] -= set(some)
        settled.extend(some)

    spans = split_evenly(SPACE, 3)

    def reassigned() -> None:
        moves = random.random() < 0.4
        if moves:
            random.shuffle(spans)
        for slot, span in zip("abc", spans, strict=True):
            # What it has not committed is another's then, or its own next life's.
            if slot not in readers or moves or random.random() < 0.4:
                readers[slot], waiting[slot] = reader(log, tmp_path, slot), set()
            taking(log, readers[slot], span)

    def writes() -> None:
        producer = random.randint(1, 3)
        if producer in log._open and random.random() < 0.5:
            log.finish(producer, random.random() < 0.6)
        else:
            log.write(producer, random.randint(1, 4))

    for _ in range(4):
        reassigned()
        for _ in range(5):
            writes()
            works(random.choice("abc"))
    for producer in list(log._open):
        log.finish(producer, random.random() < 0.5)
    reassigned()
    for _ in range(3):
        for slot in "abc":
            works(slot, share=1.0)
    assert sorted(settled) == log.committed
    assert {each.committed(FIRST) for each in readers.values()} == {log.end}
    assert commits_fit(tmp_path, "a", "b", "c")
