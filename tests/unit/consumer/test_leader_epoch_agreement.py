"""New leaders that have lost the end of a log: what a consumer has done of it is of other records
then, although the log may be as long again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import keyrange.consumer.owned_ranges as owned_ranges_module
import keyrange.consumer.reading_order as reading_order_module
from brokers.scripted_broker import Fetched, World
from keyrange.consumer.leader_epoch_agreement import Leaders, follow, read_on
from keyrange.consumer.owned_ranges import OwnedRanges
from keyrange.errors import KeyrangeError
from keyrange.individual_commits.model.partition_progress import (
    KeyRangeState,
    PartitionState,
    PendingRecord,
    fresh,
)
from keyrange.kafka.cluster_view import ClusterView
from keyrange.members.range_listener import KeyRangeListener
from keyrange.model.key_ranges import SPACE, split_evenly
from keyrange.model.offsets import TopicPartition
from queries.scripted_consumer import FIRST, batches, commits_fit, done, holding
from samples.strategies import Batch, Record, encode_batch

SECOND = TopicPartition("t", 1)
LOW, HIGH = split_evenly(SPACE, 2)


class Log:
    """A log whose records say in which epoch they were written."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.world = World(self._fetch, latest=10, epoch=1)
        self.written = [1] * 10
        self.asked: list[int] = []
        for module in (owned_ranges_module, reading_order_module):
            monkeypatch.setattr(module, "epoch_ends", self._ends)

    def elect(self, keeps: int, count: int) -> None:
        """Another leader, whose log had so many records, and has `count` now."""
        self.world.epoch += 1
        self.written = self.written[:keeps] + [self.world.epoch] * (count - keeps)
        self.world.latest = count

    def _ends(
        self, _cluster: Any, _view: ClusterView, epochs: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, tuple[int, int]]:
        self.asked += epochs.values()
        return {p: (e, sum(each <= e for each in self.written)) for p, e in epochs.items()}

    def _fetch(self, _node: int, _partition: int, offset: int) -> Fetched:
        records = tuple(
            Record(at, key=b"%d" % (offset + at), value=b"%d" % epoch)
            for at, epoch in enumerate(self.written[offset:])
        )
        return Fetched(encode_batch(Batch(offset, records)), self.world.latest)


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    return Log(monkeypatch)


def polled(made: OwnedRanges) -> list[tuple[int, int]]:
    """Offset and epoch of the records that come now."""
    return [
        (offset, int(value))
        for batch in batches(made)
        for offset, value in zip(
            *batch.select(["offset", "value"]).to_pydict().values(), strict=True
        )
    ]


class TestWhileItReads:
    def test_a_log_that_was_cut_back_and_has_grown_is_a_loss(
        self, log: Log, tmp_path: Path
    ) -> None:
        made = holding(log.world, tmp_path)
        made.take(log.world.view(), {FIRST: [SPACE]})
        polled(made)
        done(made, *range(10))
        log.elect(keeps=6, count=15)
        for _ in range(2):
            with pytest.raises(KeyrangeError, match="LOG_TRUNCATED"):
                made.next(KeyRangeListener())
        assert made.commit() == {FIRST: 10}

    def test_where_losses_pass_it_goes_on_with_what_the_leader_has(
        self, log: Log, tmp_path: Path
    ) -> None:
        made = holding(log.world, tmp_path, fails=False)
        made.take(log.world.view(), {FIRST: [SPACE]})
        polled(made)
        done(made, *range(4))
        log.elect(keeps=6, count=15)
        assert polled(made) == [(at, 2) for at in range(6, 15)]
        assert done(made, *range(4, 15)) == 9 + 2
        assert made.commit() == {FIRST: 15}
        assert log.asked == [1]
        assert commits_fit(tmp_path, "a")

    def test_a_leader_that_has_everything_is_asked_once(self, log: Log, tmp_path: Path) -> None:
        made = holding(log.world, tmp_path)
        made.take(log.world.view(), {FIRST: [SPACE]})
        polled(made)
        log.elect(keeps=10, count=12)
        assert polled(made) == [(10, 2), (11, 2)]
        log.elect(keeps=12, count=12)
        assert polled(made) == polled(made) == []
        assert log.asked == [1, 2]


def cut_back_when_done(log: Log, home: Path) -> None:
    """One consumer has done the whole log, and a new leader keeps the first six records of it."""
    made = holding(log.world, home)
    made.take(log.world.view(), {FIRST: [SPACE]})
    polled(made)
    done(made, *range(10))
    log.elect(keeps=6, count=15)


class TestWhoTakesOver:
    @pytest.mark.parametrize("slot", ["a", "b"])
    def test_a_log_that_was_cut_back_meanwhile_is_a_loss(
        self, log: Log, tmp_path: Path, slot: str
    ) -> None:
        cut_back_when_done(log, tmp_path)
        with pytest.raises(KeyrangeError, match="LOG_TRUNCATED"):
            holding(log.world, tmp_path, slot).take(log.world.view(), {FIRST: [SPACE]})

    @pytest.mark.parametrize("slot", ["a", "b"])
    def test_where_losses_pass_it_begins_where_the_logs_part(
        self, log: Log, tmp_path: Path, slot: str
    ) -> None:
        cut_back_when_done(log, tmp_path)
        heir = holding(log.world, tmp_path, slot, fails=False)
        heir.take(log.world.view(), {FIRST: [SPACE]})
        assert polled(heir) == [(at, 2) for at in range(6, 15)]
        done(heir, *range(6, 15))
        assert commits_fit(tmp_path, "a", "b")
        # What was found holds: nobody is asked for the epoch of before again.
        last = holding(log.world, tmp_path, "c")
        last.take(log.world.view(), {FIRST: [SPACE]})
        assert polled(last) == []

    def test_ranges_that_were_read_in_several_epochs_are_each_asked_for(
        self, log: Log, tmp_path: Path
    ) -> None:
        low, high = holding(log.world, tmp_path), holding(log.world, tmp_path, "b")
        low.take(log.world.view(), {FIRST: [LOW]})
        high.take(log.world.view(), {FIRST: [HIGH]})
        done(low, *(offset for offset, _ in polled(low)))
        log.elect(keeps=10, count=20)
        done(high, *(offset for offset, _ in polled(high)))
        log.elect(keeps=20, count=30)
        heir = holding(log.world, tmp_path, "c")
        heir.take(log.world.view(), {FIRST: [SPACE]})
        assert sorted(set(log.asked)) == [1, 2]
        assert {offset for offset, _ in polled(heir)} >= set(range(20, 30))
        assert commits_fit(tmp_path, "a", "b", "c")


def test_a_state_is_cut_back_by_its_own_epoch() -> None:
    states = {
        "old": PartitionState("id", 10, (KeyRangeState(SPACE, 10, (PendingRecord(8, 5),)),), 1),
        "new": PartitionState("id", 20, (KeyRangeState(SPACE, 20),), 2),
        "unknown": PartitionState("id", 20, (KeyRangeState(SPACE, 20),)),
        "unasked": PartitionState("id", 9, (KeyRangeState(SPACE, 9),), 3),
    }
    ends = {1: 7, 2: 15}
    leaders = Leaders({FIRST: 3}, lambda asked: {p: (e, ends[e]) for p, e in asked.items()})
    found = follow({FIRST: states, SECOND: {}}, leaders)
    assert found[SECOND] == {}
    assert {source: (s.position, s.pending) for source, s in found[FIRST].items()} == {
        "old": (7, ()),
        "new": (15, ()),
        "unknown": (20, ()),
        "unasked": (9, ()),
    }
    assert {state.leader_epoch for state in found[FIRST].values()} == {3}


def test_a_leader_that_knows_no_such_epoch_cuts_nothing() -> None:
    states = {"a": PartitionState("id", 10, (KeyRangeState(SPACE, 10),), 1)}
    leaders = Leaders({FIRST: 2}, lambda asked: dict.fromkeys(asked, (-1, -1)))
    assert follow({FIRST: states}, leaders)[FIRST]["a"].position == 10


def test_what_was_let_go_of_and_read_farther_keeps_the_epoch_in_which_it_was_read() -> None:
    base = PartitionState("id", 20, (KeyRangeState(LOW, 10), KeyRangeState(HIGH, 20)), 1)
    behind = read_on(base, [KeyRangeState(LOW, 15)], None, 2)
    assert (behind.position, behind.leader_epoch) == (20, 1)
    ahead = read_on(base, [KeyRangeState(LOW, 25)], None, 2)
    assert (ahead.position, ahead.leader_epoch) == (25, 2)
    # A broker that has no epochs says nothing of them.
    assert read_on(fresh("id", 5), [KeyRangeState(SPACE, 6)], None, -1).leader_epoch == -1
