"""Readers of key ranges beside one another: each its rows, each chunk fetched once, whatever comes.

All readers run in turns in one thread here: one that waited for a reader that is suspended, because
nobody takes its rows, would hang for good.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from brokers.scripted_broker import Fetched
from brokers.shared_readers import Shared, all_readers, everything, flat, in_turns
from keyrange.errors import KeyrangeError
from keyrange.kafka.connection import ConnectionLost
from keyrange.ranges.sharing import shared_reader
from keyrange.ranges.sharing.chunk_chain import Chain, ChunkState
from keyrange.ranges.sharing.shared_directory import ExecutorDirectory
from keyrange.wire.chunk_decoder import DecodeSettings


def test_readers_in_turns_fetch_each_chunk_once(tmp_path: Path) -> None:
    shared = Shared(tmp_path)
    assert in_turns(all_readers(shared)) == everything(shared)
    assert shared.fetches == shared.chunks
    assert shared.left() == []


def test_readers_one_after_the_other_fetch_each_chunk_once(tmp_path: Path) -> None:
    shared = Shared(tmp_path, memory_bytes=1_500)
    found = {number: flat(shared.read(number)) for number in range(shared.readers)}
    assert found == everything(shared)
    assert shared.fetches == shared.chunks
    assert shared.left() == []


@pytest.mark.parametrize("memory_bytes", [0, 1_500])
def test_without_room_each_reads_for_itself(tmp_path: Path, memory_bytes: int) -> None:
    """And no more than that."""
    shared = Shared(tmp_path, memory_bytes=memory_bytes, spill_bytes=0, value_bytes=4_000)
    assert in_turns(all_readers(shared)) == everything(shared)
    assert shared.fetches == shared.chunks * shared.readers
    assert shared.left() == []


def test_what_decompresses_to_more_than_was_thought_goes_to_the_spill(tmp_path: Path) -> None:
    """The first estimate fits into memory, the rows do not."""
    shared = Shared(tmp_path, memory_bytes=6_000, value_bytes=20_000, seed=3)
    assert in_turns(all_readers(shared)) == everything(shared)
    assert shared.fetches == shared.chunks
    assert shared.left() == []


def test_a_full_shared_memory_goes_to_the_spill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A filesystem may be smaller than the budget."""
    write = shared_reader.ResultWriter.write

    def full(self: shared_reader.ResultWriter, *rows: object) -> None:
        if "memory" in Path(self._file.name).parts:
            raise OSError(28, "No space left on device")
        write(self, *rows)  # type: ignore[arg-type]

    monkeypatch.setattr(shared_reader.ResultWriter, "write", full)
    shared = Shared(tmp_path)
    assert in_turns(all_readers(shared)) == everything(shared)
    assert shared.fetches == shared.chunks
    assert shared.left() == []


def test_an_attempt_that_failed_is_read_again_in_full(tmp_path: Path) -> None:
    """The files of chunks that the first attempt made lack the rows that it held itself."""
    shared = Shared(tmp_path)
    first = shared.read(0)
    next(first)
    first.close()
    assert in_turns(all_readers(shared)) == everything(shared)
    assert shared.left() == []


def test_two_attempts_at_once_have_the_same_rows(tmp_path: Path) -> None:
    """As two uses of one DataFrame, or a task that is tried again while the first still runs."""
    shared = Shared(tmp_path)
    readers = all_readers(shared) | {number + 10: shared.read(number) for number in range(3)}
    found = in_turns(readers)
    expected = everything(shared)
    assert found == expected | {number + 10: rows for number, rows in expected.items()}
    assert shared.left() == []


def test_a_second_use_of_a_plan_has_the_same_rows(tmp_path: Path) -> None:
    shared = Shared(tmp_path)
    for _ in range(2):
        assert in_turns(all_readers(shared)) == everything(shared)
        assert shared.left() == []


@pytest.mark.parametrize("after", range(5))
def test_readers_that_are_closed_early_leave_nothing(tmp_path: Path, after: int) -> None:
    """As df.limit(1) does it."""
    before = len(os.listdir("/proc/self/fd"))
    shared = Shared(tmp_path)
    readers = list(all_readers(shared).values())
    for reader in readers:
        for _ in range(after):
            next(reader, None)
    for reader in readers:
        reader.close()  # type: ignore[attr-defined]
    del reader, readers
    assert shared.left() == []
    assert len(os.listdir("/proc/self/fd")) == before


def test_who_left_early_keeps_no_files_waiting(tmp_path: Path) -> None:
    shared = Shared(tmp_path, readers=2)
    quitter = shared.read(1)
    next(quitter)
    quitter.close()
    other = shared.read(0)
    found = next(other)
    results = [name for name in shared.left() if "-" in name and not name.startswith("free-")]
    assert found + flat(other) == shared.expected(0)
    assert len(results) <= 1


def test_a_reader_that_never_came_back_is_no_hindrance(tmp_path: Path) -> None:
    """Suspended for good, by a consumer that takes nothing more."""
    shared = Shared(tmp_path)
    abandoned = shared.read(0)
    next(abandoned)
    found = in_turns({1: shared.read(1), 2: shared.read(2)})
    assert found == {number: shared.expected(number) for number in (1, 2)}
    assert shared.fetches == shared.chunks
    abandoned.close()
    assert shared.left() == []


@pytest.mark.parametrize("step", range(1, 8))
@pytest.mark.parametrize("again", [False, True])
def test_the_directory_is_deleted_under_the_readers(tmp_path: Path, step: int, again: bool) -> None:
    """With `again`, another reader makes it anew, and has chunks of other lengths there."""
    shared = Shared(tmp_path, seed=step)
    readers = all_readers(shared)
    found: dict[int, list[int]] = {number: [] for number in readers}
    for turn in range(step):
        found[turn % 3] += next(readers[turn % 3], [])
    shared.directory.remove(shared.path.name)
    if again:
        shared.batches_per_chunk = 3
        readers[10] = shared.read(0)
        found[10] = next(readers[10])
        shared.batches_per_chunk = 2
    for number, rows in in_turns(readers).items():
        found[number] += rows
    assert found == everything(shared) | ({10: shared.expected(0)} if again else {})
    del readers
    shared.directory.remove(shared.path.name)
    assert shared.left() == []


def test_the_whole_executor_directory_is_deleted(tmp_path: Path) -> None:
    shared = Shared(tmp_path)
    readers = all_readers(shared)
    first = {number: next(reader) for number, reader in readers.items()}
    made = shared.directory
    shutil.rmtree(made.path)
    shutil.rmtree(made.spill_path)
    rest = in_turns(readers)
    assert {number: first[number] + rest[number] for number in rest} == everything(shared)


def test_rows_beyond_what_is_held_are_mapped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_reader, "_HELD_BYTES_MAX", 1)
    shared = Shared(tmp_path, readers=2, decode=DecodeSettings(batch_rows=2))
    assert in_turns(all_readers(shared)) == everything(shared)
    assert shared.fetches == shared.chunks
    assert shared.left() == []


def test_rows_that_cannot_be_mapped_are_decoded_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None of them twice."""

    def damaged(path: Path, reader: int) -> Iterator[pa.RecordBatch]:
        raise pa.ArrowInvalid("cut")

    monkeypatch.setattr(shared_reader, "_HELD_BYTES_MAX", 1)
    monkeypatch.setattr(shared_reader, "read_results", damaged)
    shared = Shared(tmp_path, readers=2, decode=DecodeSettings(batch_rows=2))
    assert in_turns(all_readers(shared)) == everything(shared)
    assert shared.left() == []


def test_a_file_that_was_damaged_is_read_again(tmp_path: Path) -> None:
    shared = Shared(tmp_path, readers=2)
    assert flat(shared.read(0)) == shared.expected(0)
    for path in shared.path.glob("*-*"):
        path.write_bytes(path.read_bytes()[:-30])
    assert flat(shared.read(1)) == shared.expected(1)
    assert shared.fetches == 2 * shared.chunks
    assert shared.left() == []


def test_a_chunk_that_a_dead_reader_left_unfinished(tmp_path: Path) -> None:
    """Its place is kept, its half-written file goes, and all read it for themselves."""
    shared = Shared(tmp_path)
    chain = Chain(shared.path, 3, 0, 5)
    end = chain.claim_end(wait_s=60)
    assert end is not None
    chain.extend(end, shared.batches[1][1] + 1, 10)
    made = shared.directory
    half = made.result(shared.path.name, chain.result_name(0), spill=False)
    assert made.reserve(half, 1_000)
    chain.close()
    readers = all_readers(shared)
    first = next(readers[1])
    assert not half.exists()
    found = in_turns(readers)
    found[1] = first + found[1]
    assert found == everything(shared)
    assert shared.fetches == shared.chunks + 2
    assert shared.left() == []


@pytest.mark.parametrize("memory_bytes", [0, 1 << 30])
@pytest.mark.parametrize("keep_values", [True, False])
def test_of_a_record_batch_across_the_start_of_the_log_nothing_before_it_is_handed_over(
    tmp_path: Path, memory_bytes: int, keep_values: bool
) -> None:
    """Whoever makes the chunk, and whatever is kept of it: what a warning calls lost is no row."""
    shared = Shared(
        tmp_path,
        memory_bytes=memory_bytes,
        spill_bytes=memory_bytes,
        keep_values=keep_values,
        fail_on_data_loss=False,
    )
    first, last = next((at, last) for at, last, _ in shared.batches if last >= at + 2)
    shared.world.earliest = last
    expected = {
        number: [at for at in offsets if at >= last]
        for number, offsets in everything(shared).items()
    }
    for _ in range(2):
        assert in_turns(all_readers(shared)) == expected
    assert any(first <= at < last for offsets in everything(shared).values() for at in offsets)


def test_a_fault_is_everyones_and_leaves_nothing(tmp_path: Path) -> None:
    """A damaged batch is an error for each reader, and no file of it stays."""
    shared = Shared(tmp_path)
    from_offset, last, data = shared.batches[5]
    shared.batches[5] = (from_offset, last, data[:-1] + bytes([data[-1] ^ 1]))
    before = len(os.listdir("/proc/self/fd"))
    for number in range(shared.readers):
        with pytest.raises(KeyrangeError, match="CORRUPT_BATCH"):
            flat(shared.read(number))
    assert shared.left() == []
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_broken_connection_is_tried_again(tmp_path: Path) -> None:
    shared = Shared(tmp_path)
    script, broken = shared.world.script, iter([False, True, False, False, True])

    def flaky(node: int, partition: int, offset: int) -> Fetched:
        if next(broken, False):
            raise ConnectionLost("reset")
        return script(node, partition, offset)

    shared.world.script = flaky
    assert in_turns(all_readers(shared)) == everything(shared)
    assert shared.fetches == shared.chunks + 2


def test_own_rows_do_not_hold_those_of_others(tmp_path: Path) -> None:
    shared = Shared(tmp_path, value_bytes=10_000)
    rows = list(shared.reader(0).read())
    assert len(rows) > 3
    for batch in rows:
        values = batch.column("value")
        assert values.get_total_buffer_size() <= values.nbytes + 64


def test_records_that_are_fetched_again_stay_in_order(tmp_path: Path) -> None:
    """However often a broker refuses one of the requests for them."""
    shared = Shared(tmp_path, chunks=3, batches_per_chunk=8, keep_values=False)
    assert flat(shared.read(0)) == shared.expected(0)
    answered, seen = shared.world.script, set[int]()

    def script(node: int, partition: int, offset: int) -> Fetched:
        first = offset not in seen
        seen.add(offset)
        refused = first and len(seen) % 2 == 1
        return Fetched(error_code=6) if refused else answered(node, partition, offset)

    shared.world.script = script
    for number in (1, 2):
        assert flat(shared.read(number)) == shared.expected(number)
    assert len(seen) > 6


def test_no_lock_is_held_while_rows_are_handed_over(tmp_path: Path) -> None:
    shared = Shared(tmp_path, readers=2)
    reader = shared.read(0)
    for _ in range(4):
        next(reader)
        watcher = Chain(shared.path, 2, 1, 5)
        assert watcher.claim_end() is not None
        watcher.release_end()
        for index in range(len(watcher)):
            link = watcher.link(index)
            assert link is not None
            assert link.state is not ChunkState.PENDING
            assert watcher.try_lock(index)
        watcher.close()


def test_where_no_directory_can_be_used_it_reads_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = Shared(tmp_path)

    def refused(self: ExecutorDirectory, keep: str) -> None:
        raise PermissionError("refused")

    monkeypatch.setattr(ExecutorDirectory, "sweep_idle", refused)
    assert in_turns(all_readers(shared)) == everything(shared)
    assert shared.left() == []
