"""What a consumer has under way of a partition, beside a model that keeps a set of records."""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from keyrange.consumer.acknowledgements import PartitionWork
from keyrange.individual_commits.model.partition_progress import (
    KeyRangeState,
    PartitionState,
    fresh,
)
from keyrange.individual_commits.model.range_claims import overlay
from keyrange.model.key_ranges import SPACE, split_evenly
from project.forms import by_form

END = 60
GAP_MS = 10
SINCE_MS = 1_700_000_000_000
PIECES = split_evenly(SPACE, 4)
KEYS = [PIECES[number % 4].from_hash + 7 * number for number in range(12)]


def place_of(offset: int) -> int:
    return KEYS[offset * 7 % 12]


class Consuming(RuleBasedStateMachine):
    """Hands out, acknowledges, commits, dies and goes on, with some of the keys; the table is a
    state."""

    @initialize(owned=st.sets(st.integers(0, 3), min_size=1), start=st.integers(0, 5))
    def begin(self, owned: set[int], start: int) -> None:
        self.spans = [PIECES[each] for each in sorted(owned)]
        self.table: PartitionState = fresh("", start)
        self.own = set(filter(self._is_own, range(start, END)))
        self.now = 0
        self.start = start
        self.durable: set[int] = set()
        self.live()

    def _is_own(self, offset: int) -> bool:
        return any(span.contains(place_of(offset)) for span in self.spans)

    def live(self) -> None:
        pieces = [p for span in self.spans for p in self._of(span)]
        self.work = PartitionWork(pieces, GAP_MS)
        self.done = set(self.durable)
        self.handed: set[int] = set()
        self.since: dict[int, int] = {}

    def _of(self, span: object) -> list[KeyRangeState]:
        refined = self.table.refined(PIECES)
        return [piece for piece in refined.pieces if piece.span == span]

    @rule(until=st.integers(1, END))
    def hand_out_what_is_new(self, until: int) -> None:
        for at, piece in zip(list(self.work._scanned), self.work.spans, strict=True):
            wanted = [
                o for o in sorted(self.own) if at <= o < until and piece.contains(place_of(o))
            ]
            if wanted:
                assert not self.done & set(wanted)
                offsets = np.array(wanted, np.int64)
                places = np.array([place_of(each) for each in wanted], np.int64)
                assert self.work.hand_out(offsets, places, {}, self.now, SINCE_MS) is None
                self.handed |= set(wanted)
                self.since |= dict.fromkeys(wanted, self.now)
            self.work.advance(piece, at, max(at, until))

    @rule(answered=st.sets(st.integers(0, END - 1)))
    def hand_out_again(self, answered: set[int]) -> None:
        """Some are acknowledged between the plan and the rows."""
        due = {record.offset: record for record in self.work.due(self.now)}
        late = {o for o in self.handed - self.done if self.since[o] + GAP_MS <= self.now}
        keys = {place_of(offset) for offset in late}
        waits = {o for o in self.handed - self.done if place_of(o) in keys}
        left = set(due) - self.handed
        assert set(due) - left == waits
        assert not set(due) & self.done
        answered &= self.own & (self.handed | left)
        self.acknowledge(answered)
        if due:
            offsets = np.array(sorted(due), np.int64)
            places = np.array([place_of(each) for each in sorted(due)], np.int64)
            keep = self.work.hand_out(offsets, places, dict(due), self.now, SINCE_MS)
            kept = set(offsets.tolist()) if keep is None else set(offsets[keep].tolist())
            assert kept == set(due) - answered
            self.handed |= kept
            self.since |= dict.fromkeys(kept, self.now)

    @rule(offsets=st.sets(st.integers(0, END - 1)))
    def acknowledge(self, offsets: set[int]) -> None:
        known = self.own & (self.handed | {record.offset for record in self.work.due(-1)})
        new = (offsets & known) - self.done
        wanted = np.array(sorted(offsets & known), np.int64)
        assert self.work.acknowledge(wanted) == len(new)
        self.done |= new

    @rule(offset=st.integers(0, END))
    def seek(self, offset: int) -> None:
        """Back: what waits comes again as if it were new. Forward: what lies between is done."""
        for at, piece in zip(self.work._scanned, self.work.spans, strict=True):
            between = {o for o in self.own if at <= o < offset}
            self.done |= {o for o in between if piece.contains(place_of(o))}
        self.handed -= {o for o in self.handed - self.done if o >= offset}
        self.work.seek(offset)

    @rule(later=st.integers(1, GAP_MS))
    def wait(self, later: int) -> None:
        self.now += later

    @rule()
    def commit(self) -> None:
        changed = self.work.changed
        if changed or self.done != self.durable:
            assert changed
            pieces = self.work.pieces()
            self.table = overlay(self.table, pieces)
            self.work.committed(pieces)
            self.durable = set(self.done)
        assert not self.work.changed
        assert not self.work.pending()

    @rule()
    def die(self) -> None:
        self.live()

    @rule(number=st.integers(0, 3))
    def let_go_or_take(self, number: int) -> None:
        """Other ranges are assigned; what is under way of those that are kept stays so."""
        spans = [s for s in PIECES if (s in self.spans) != (s == PIECES[number])]
        if not spans:
            return
        self.commit()
        before, self.spans = self.work, spans
        self.work = PartitionWork([p for span in spans for p in self._of(span)], GAP_MS)
        self.work.go_on(before)
        self.own = set(filter(self._is_own, range(self.start, END)))
        self.handed &= self.own
        # Nobody else works in this model: what was let go comes back as it was.
        self.durable = {
            o for span in spans for piece in self._of(span) for o in self.own
            if span.contains(place_of(o)) and o < piece.scanned
            and o not in {record.offset for record in piece.pending}
        }  # fmt: skip
        self.done = (self.done & self.own) | self.durable

    @invariant()
    def the_table_says_exactly_what_is_durable(self) -> None:
        if not hasattr(self, "work"):
            return
        pending = {
            record.offset for span in self.spans for p in self._of(span) for record in p.pending
        }
        below = {o for span in self.spans for p in self._of(span) for o in self.own
                 if span.contains(place_of(o)) and o < p.scanned}  # fmt: skip
        assert below - pending == self.durable
        waiting = len(self.handed - self.done)
        assert self.work.waiting == waiting


Consuming.TestCase.settings = settings(
    max_examples=by_form(10, 20, 400),
    stateful_step_count=20,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TestConsuming = Consuming.TestCase


def test_what_is_acknowledged_behind_a_seek_is_committed() -> None:
    model = Consuming()
    model.begin(owned={2}, start=0)
    model.hand_out_what_is_new(until=7)
    model.seek(offset=0)
    model.acknowledge(offsets={6})
    model.commit()
    assert model.durable == {6}
    model.the_table_says_exactly_what_is_durable()
