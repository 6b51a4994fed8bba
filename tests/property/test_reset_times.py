"""What records go by that somebody has set back: the clocks of the batches that had them first."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from keyrange.individual_commits.model.commit import Commit, CommitKind
from keyrange.individual_commits.model.offset_reset import rewind
from keyrange.individual_commits.model.partition_progress import PartitionState, fresh
from keyrange.individual_commits.table.commit_admin import Commits, write_reset
from keyrange.model.offsets import TopicPartition
from keyrange.model.timers import UNKNOWN
from keyrange.model.watermarks import BEGIN, STARTS_MAX, PartitionTime, Watermark
from tables.commit_tables import MemoryCommitTable

AT, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)
# How many records a batch reads of the partition, by how much its watermark moves, and whether
# the log was cut back to there before.
_BATCH = st.tuples(st.integers(0, 5), st.integers(0, 9), st.sampled_from([0, 0, 0, 0, 3]))


def _commit(seq: int, state: PartitionState | None, clock: int, cut: int | None) -> Commit:
    """Of a batch that reads the partition, or another one."""
    at, known = (OTHER, fresh("id", seq)) if state is None else (AT, state)
    return Commit(
        *(seq, CommitKind.BATCH, "g", "s", "q", "r", seq, seq),
        states={at: known},
        times={at: PartitionTime(None if clock == BEGIN else Watermark(clock, seq))},
        cut_back={} if cut is None else {AT: cut},
    )


@given(st.lists(_BATCH, min_size=1, max_size=150), st.data())
def test_records_that_come_again_go_by_the_clocks_of_their_first_batches(
    batches: list[tuple[int, int, int]], data: st.DataObject
) -> None:
    table = MemoryCommitTable("s")
    # Which clock the batch went by that had an offset first.
    clocks: list[int] = []
    clock, state = BEGIN, fresh("id", 0)
    for seq, (count, faster, cut) in enumerate(batches, start=1):
        cut_to = len(clocks) - cut if 0 < cut <= len(clocks) else None
        del clocks[len(clocks) if cut_to is None else cut_to :]
        clocks += [clock] * count
        is_read = count > 0 or cut_to is not None
        if is_read:
            clock = max(clock, 0) + faster
        state = fresh("id", len(clocks))
        table.append(_commit(seq, state if is_read else None, clock, cut_to))
    to = data.draw(st.integers(0, len(clocks)))
    known = table.known()
    if AT not in known.states:
        return
    reset = rewind(known.states[AT], to)
    commits = Commits("a table", "s", table)
    write_reset(
        commits, known, {AT: reset.state}, "who", "why", 0, back={AT} if reset.again else ()
    )
    time = table.known().times[AT]
    assert time.watermark == known.times[AT].watermark, "new records go by it"
    assert time.timers == UNKNOWN
    told = [time.clock_before(offset) for offset in range(to, len(clocks))]
    assert all(now <= then for now, then in zip(told, clocks[to:], strict=True))
    assert told == sorted(told)
    if told:
        assert told[0] == clocks[to]
    if len(batches) <= STARTS_MAX:
        assert told == clocks[to:]
