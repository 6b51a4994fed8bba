"""What every commit table does, whoever writes it: a suite, and commits for it.

A module of tests derives a class from `CommitTableContract` and gives it a fixture `open_table`,
which opens the commits of a source in one table.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from keyrange.errors import KeyrangeError
from keyrange.individual_commits.model.commit import (
    Commit,
    CommitCounts,
    CommitKind,
    CommitTable,
    Snapshot,
    known_at,
)
from keyrange.individual_commits.model.partition_progress import (
    KeyRangeState,
    PartitionState,
    PendingRecord,
)
from keyrange.model.commit_settings import CommitSettings
from keyrange.model.key_ranges import HASH_MAX, SPACE, KeyRange, split_evenly
from keyrange.model.offsets import OFFSET_MAX, TopicPartition
from keyrange.work.model.outcome import Cause

OpenTable = Callable[[str], CommitTable]
NOW_MS = 1_760_000_000_000
SOURCE = "5a1c"
FLIGHTS = TopicPartition("flights", 0)


def piece(span: KeyRange, scanned: int, offsets: list[int], chance: random.Random) -> KeyRangeState:
    return KeyRangeState(
        span,
        scanned,
        tuple(
            PendingRecord(
                offset,
                chance.randrange(span.from_hash, span.until_hash),
                chance.randrange(6),
                NOW_MS + chance.randrange(100_000),
                NOW_MS - chance.randrange(100_000),
                chance.choice(list(Cause)),
            )
            for offset in sorted(offsets)
        ),
    )


def state(
    position: int, ranges: int = 3, pending: int = 2, topic_id: str = "t-1"
) -> PartitionState:
    chance = random.Random(position)
    # An offset is one record, and so in one range.
    offsets = chance.sample(range(max(position - 500, 0), position), ranges * pending)
    pieces = (
        piece(span, position, offsets[at::ranges], chance)
        for at, span in enumerate(split_evenly(SPACE, ranges))
    )
    return PartitionState(topic_id, position, tuple(pieces))


def fence(seq: int, run_id: str = "run-1", source_id: str = SOURCE, **more: Any) -> Commit:
    return Commit(
        seq, CommitKind.FENCE, "orders", source_id, "query", run_id, -1, NOW_MS + seq, **more
    )


def batch(
    seq: int,
    batch_id: int | None = None,
    run_id: str = "run-1",
    source_id: str = SOURCE,
    **more: Any,
) -> Commit:
    """A commit of batch `seq - 2`, if no other is named: the first commit of a run is its fence."""
    position = 1_000 + 100 * seq
    states = more.pop("states", {FLIGHTS: state(position)})
    counts = {each: CommitCounts(seq, 1, 2, 3, 4, position + 7) for each in states}
    batch_id = seq - 2 if batch_id is None else batch_id
    return Commit(
        seq,
        CommitKind.BATCH,
        "orders",
        source_id,
        "query",
        run_id,
        batch_id,
        NOW_MS + seq,
        states=states,
        counts=counts,
        **more,
    )


def append_all(table: CommitTable, commits: Sequence[Commit]) -> None:
    for each in commits:
        table.append(each)


def condition(raised: pytest.ExceptionInfo[KeyrangeError]) -> str:
    return raised.value.condition.name


EXTREMES = PartitionState(
    "",
    OFFSET_MAX,
    (
        KeyRangeState(KeyRange(0, 1), 0),
        KeyRangeState(
            KeyRange(1, 2**62),
            OFFSET_MAX,
            (
                PendingRecord(0, 1, 0, 0, 0, Cause.HELD_BACK),
                PendingRecord(2**31 - 1, 2, 2**31 - 1, OFFSET_MAX, 1),
                PendingRecord(2**31, 2**31, 1, 2**53 + 1, 2),
                PendingRecord(2**53 + 1, 2**53 - 1, 1, 0, NOW_MS),
                PendingRecord(OFFSET_MAX - 1, 2**62 - 1, 1, 0, NOW_MS, Cause.UNMENTIONED),
            ),
        ),
        KeyRangeState(
            KeyRange(2**62, HASH_MAX + 1), 2**53, (PendingRecord(2**53 - 1, HASH_MAX, 1, 5, 5),)
        ),
    ),
)


class CommitTableContract:
    """The promises of `core.commits.table.CommitTable`."""

    # How many commits a writer makes in the longer tests.
    many = 130

    def test_a_table_that_is_not_there_holds_nothing(self, open_table: OpenTable) -> None:
        table = open_table(SOURCE)
        assert table.known() == Snapshot()
        assert table.known(0) == Snapshot()
        assert list(table.history()) == []
        assert table.last_source("orders") is None
        table.maintain()
        with pytest.raises(KeyrangeError) as raised:
            table.known(1)
        assert condition(raised) == "COMMITS_BEHIND"

    def test_commits_come_back_as_they_were_written(self, open_table: OpenTable) -> None:
        terms = CommitSettings("murmur3_x64_128", "first", "transactional")
        other = TopicPartition("", 2**31 - 1)
        commits = [
            fence(1),
            batch(
                2, states={FLIGHTS: EXTREMES, other: state(900, ranges=5, pending=0)}, terms=terms
            ),
            batch(3, states={}),
            Commit(
                4,
                CommitKind.RESET,
                "orders",
                SOURCE,
                "",
                "cli-1",
                -1,
                NOW_MS + 4,
                states={FLIGHTS: state(2_000, ranges=1, pending=300)},
                whole=True,
                who="ada",
                why="a 'poisoned' record\nwas dropped",
            ),
        ]
        append_all(open_table(SOURCE), commits)
        for table in (open_table(SOURCE), open_table(SOURCE)):
            assert list(table.history()) == commits
            assert list(table.history(2, 4)) == commits[1:3]
            assert list(table.backwards(3)) == commits[2::-1]
            for seq in (4, 2, 3, 1):
                assert table.known(seq) == known_at(commits, seq)
            assert table.known() == known_at(commits, 4)

    def test_a_commit_that_is_written_again_changes_nothing(self, open_table: OpenTable) -> None:
        commits = [fence(1), batch(2), batch(3)]
        table = open_table(SOURCE)
        table.append(commits[0])
        append_all(table, [commits[0], commits[1], commits[1], commits[2], commits[2]])
        for again in (table, open_table(SOURCE)):
            append_all(again, [batch(3), batch(2)])
            assert list(again.history()) == commits

    def test_a_batch_is_known_by_its_number_whichever_run_writes_it(
        self, open_table: OpenTable
    ) -> None:
        table = open_table(SOURCE)
        append_all(table, [fence(1), batch(2, batch_id=0), fence(3, "run-2")])
        # Batch 0 was committed, and not yet noted by Spark, when the first driver was killed.
        table.append(batch(4, batch_id=0, run_id="run-2"))
        assert table.known().seq == 3
        table.append(batch(4, batch_id=1, run_id="run-2"))
        assert (table.known().seq, table.known().batch_id) == (4, 1)

    def test_who_was_replaced_is_told(self, open_table: OpenTable) -> None:
        first, second = open_table(SOURCE), open_table(SOURCE)
        append_all(first, [fence(1), batch(2)])
        second.append(fence(3, "run-2"))
        for late in (batch(3), batch(4), fence(3)):
            with pytest.raises(KeyrangeError) as raised:
                first.append(late)
            assert condition(raised) == "COMMITS_FENCED"
        assert [each.run_id for each in second.history()] == ["run-1", "run-1", "run-2"]

    def test_a_commit_without_the_one_before_it_is_refused(self, open_table: OpenTable) -> None:
        table = open_table(SOURCE)
        append_all(table, [fence(1), batch(2)])
        with pytest.raises(KeyrangeError) as raised:
            table.append(batch(4))
        assert condition(raised) == "COMMITS_BEHIND"
        assert table.known().seq == 2

    def test_a_commit_of_another_source_is_refused(self, open_table: OpenTable) -> None:
        with pytest.raises(ValueError, match="source other"):
            open_table(SOURCE).append(fence(1, source_id="other"))

    def test_sources_do_not_see_each_other(self, open_table: OpenTable) -> None:
        first, second = open_table(SOURCE), open_table("6b2d")
        append_all(first, [fence(1), batch(2), batch(3)])
        append_all(second, [fence(1, "run-9", "6b2d"), batch(2, 0, "run-9", "6b2d")])
        assert (first.known().seq, second.known().seq) == (3, 2)
        assert {each.source_id for each in second.history()} == {"6b2d"}
        append_all(second, [batch(seq, seq - 2, "run-9", "6b2d") for seq in (3, 4)])
        assert first.last_source("orders") == "6b2d"
        begun = replace(fence(1, "run-10", "7c3e"), committed_at_ms=NOW_MS + 100)
        open_table("7c3e").append(begun)
        assert first.last_source("orders") == "7c3e"
        assert first.last_source("orders", with_states=True) == "6b2d"
        assert first.last_source("flights", with_states=True) is None
        assert first.last_source("flights") is None

    def test_of_two_drivers_that_begin_at_once_one_is_refused(self, open_table: OpenTable) -> None:
        first, second, third = (open_table(source) for source in (SOURCE, "6b2d", "7c3e"))
        found = {table.begun("orders") for table in (first, second)}
        assert found == {0}
        first.append(fence(1), 0)
        first.append(fence(1), 0)
        with pytest.raises(KeyrangeError) as raised:
            second.append(fence(1, "run-2", "6b2d"), 0)
        assert condition(raised) == "COMMITS_FENCED"
        append_all(first, [batch(2), batch(3)])
        third.append(replace(fence(1, "run-3", "7c3e"), group="flights"), third.begun("flights"))
        fourth = open_table("8d4f")
        fourth.append(fence(1, "run-4", "8d4f"), fourth.begun("orders"))
        assert fourth.known().seq == 1

    def test_what_another_handle_wrote_is_seen(self, open_table: OpenTable) -> None:
        writer, reader = open_table(SOURCE), open_table(SOURCE)
        assert reader.known().seq == 0
        for commit in (fence(1), batch(2), batch(3)):
            writer.append(commit)
            assert reader.known().seq == commit.seq
        assert reader.known() == writer.known()
        assert reader.known(2).states == batch(2).states

    def test_a_whole_commit_ends_what_it_leaves_out(self, open_table: OpenTable) -> None:
        gone = TopicPartition("flights", 7)
        table = open_table(SOURCE)
        append_all(
            table,
            [
                fence(1),
                batch(2, states={FLIGHTS: state(500), gone: state(600)}),
                batch(3, whole=True),
                fence(4, "run-2", whole=True, states={FLIGHTS: state(700)}),
            ],
        )
        for fresh in (table, open_table(SOURCE)):
            assert set(fresh.known(2).states) == {FLIGHTS, gone}
            assert set(fresh.known(3).states) == {FLIGHTS}
            # It is of no batch, and the number of the last one is still known.
            assert fresh.known().batch_id == 1
            assert fresh.known().states == {FLIGHTS: state(700)}

    def test_nothing_changes_with_many_commits_and_maintenance(self, open_table: OpenTable) -> None:
        table = open_table(SOURCE)
        parts = [TopicPartition("flights", each) for each in range(4)]
        commits = [fence(1)]
        for seq in range(2, self.many):
            touched = parts if seq % 50 == 0 else [parts[seq % 3 if seq > 9 else 3]]
            states = {each: state(1_000 + 100 * seq + each.partition) for each in touched}
            commits.append(batch(seq, states=states, whole=len(touched) > 1))
        for commit in commits:
            table.append(commit)
            table.maintain()
        fresh = open_table(SOURCE)
        assert fresh.known() == table.known() == known_at(commits, commits[-1].seq)
        for seq in {9, 11, self.many // 3, self.many - 10, self.many - 1}:
            assert fresh.known(seq) == known_at(commits, seq)
        assert list(fresh.history()) == commits
        assert list(fresh.backwards(len(commits))) == commits[::-1]
