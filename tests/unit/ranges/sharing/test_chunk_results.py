"""Result files: each reader's rows come back, and what is not whole is not read."""

from __future__ import annotations

import fcntl
import os
import resource
from collections.abc import Callable
from pathlib import Path
from typing import IO

import pyarrow as pa
import pytest

from keyrange.ranges.sharing.chunk_results import ResultWriter, mapped_results, read_results

SCHEMA = pa.schema([("offset", pa.int64()), ("value", pa.binary())])
ROOM = 1 << 20


def batch(from_offset: int, rows: int, size: int = 3) -> pa.RecordBatch:
    offsets = list(range(from_offset, from_offset + rows))
    return pa.record_batch([pa.array(offsets), pa.array([b"x" * size] * rows)], schema=SCHEMA)


def never(size: int) -> bool:
    raise AssertionError(f"asked for {size} bytes")


def write(
    path: Path,
    *batches: tuple[pa.RecordBatch, list[int], int | None],
    room: int = ROOM,
    enlarge: Callable[[int], bool] = never,
) -> None:
    path.touch()
    os.truncate(path, room)
    with ResultWriter(path, SCHEMA, enlarge) as writer:
        for each in batches:
            writer.write(*each)


def offsets(path: Path, reader: int) -> list[int]:
    return [n for each in read_results(path, reader) for n in each.column("offset").to_pylist()]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "0"


def test_each_reader_gets_its_rows(path: Path) -> None:
    write(path, (batch(0, 10), [0, 4, 4, 10], None), (batch(10, 5), [0, 0, 5, 5], None))
    assert [offsets(path, reader) for reader in range(3)] == [
        [0, 1, 2, 3],
        [10, 11, 12, 13, 14],
        [4, 5, 6, 7, 8, 9],
    ]
    for each in read_results(path, 0):
        each.validate(full=True)


@pytest.mark.parametrize("without", [0, 1, 2])
def test_the_rows_of_one_reader_may_be_left_out(path: Path, without: int) -> None:
    write(path, (batch(0, 10), [0, 4, 7, 10], without), (batch(10, 9), [0, 3, 6, 9], without))
    whole = {0: [0, 1, 2, 3, 10, 11, 12], 1: [4, 5, 6, 13, 14, 15], 2: [7, 8, 9, 16, 17, 18]}
    assert {n: offsets(path, n) for n in whole} == whole | {without: []}


def test_a_file_may_hold_no_rows(path: Path) -> None:
    write(path, (batch(0, 4), [0, 4, 4], 0))
    assert [offsets(path, reader) for reader in (0, 1)] == [[], []]


def test_the_file_is_as_long_as_what_is_in_it(path: Path) -> None:
    """What was reserved and not used is given back."""
    write(path, (batch(0, 10), [0, 5, 10], None))
    assert path.stat().st_size < 2_000


def test_while_it_is_written_the_reservation_stands(path: Path) -> None:
    path.touch()
    os.truncate(path, 100_000)
    with ResultWriter(path, SCHEMA, never) as writer:
        assert path.stat().st_size == 100_000
        writer.write(batch(0, 10), [0, 5, 10], None)
        assert path.stat().st_size == 100_000


def test_a_writer_asks_for_more_before_it_takes_more(path: Path) -> None:
    asked: list[int] = []

    def enlarge(size: int) -> bool:
        asked.append(size)
        return len(asked) < 2

    big = batch(0, 100, 1_000)
    with pytest.raises(OSError, match="no room"):
        write(path, *[(big, [0, 50, 100], None)] * 9, room=50_000, enlarge=enlarge)
    assert 100_000 < asked[0] < 200_000
    assert asked[1] >= 2 * asked[0]
    assert path.stat().st_size <= asked[0]


def test_mapped_rows_outlive_the_file(path: Path) -> None:
    write(path, (batch(0, 1_000), [0, 500, 1_000], None))
    rows = list(read_results(path, 1))
    path.unlink()
    assert [n for each in rows for n in each.column("offset").to_pylist()] == list(
        range(500, 1_000)
    )
    assert rows[0].column("value")[499].as_py() == b"xxx"


def test_no_descriptor_stays_open(path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    write(path, (batch(0, 10), [0, 5, 10], None))
    rows = list(read_results(path, 1))
    half = read_results(path, 1)
    next(half)
    half.close()
    os.truncate(path, 0)
    with pytest.raises(OSError, match="no room"):
        ResultWriter(path, SCHEMA, lambda size: False)
    del rows, half
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_file_that_was_cut_is_refused_wherever(path: Path) -> None:
    """Between two messages too, where Arrow alone would take it for a shorter stream."""
    write(path, *[(batch(10 * n, 10), [0, 5, 10], None) for n in range(3)])
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises((pa.ArrowInvalid, OSError)):
            list(read_results(path, 1))


def test_a_file_that_is_gone_is_an_oserror(path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        list(read_results(path, 0))
    with pytest.raises(FileNotFoundError):
        ResultWriter(path, SCHEMA, never)
    assert not path.exists()


def test_a_full_filesystem_is_an_oserror(path: Path) -> None:
    """As ENOSPC: write() says so. A mapping would end the process by a signal."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    path.touch()
    os.truncate(path, ROOM)
    writer = ResultWriter(path, SCHEMA, never)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))
    try:
        with pytest.raises(OSError, match="too large"), writer:
            writer.write(batch(0, 100, 1_000), [0, 50, 100], None)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def can_be_written_to(path: Path) -> bool:
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def test_a_file_is_locked_as_long_as_anything_of_it_is_held(path: Path) -> None:
    write(path, (batch(0, 10), [0, 5, 10], None), (batch(10, 10), [0, 5, 10], None))
    rows = list(read_results(path, 1))
    assert not can_be_written_to(path)
    value = rows[1].column("value")[1:2]
    del rows
    assert not can_be_written_to(path)
    assert mapped_results() == 1
    del value
    assert can_be_written_to(path)
    assert mapped_results() == 0


def test_a_file_that_has_another_name_by_then_is_not_read(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dropped, and taken for another chunk, between opening and locking it."""
    write(path, (batch(0, 10), [0, 5, 10], None))
    lock = fcntl.flock

    def late(file: IO[bytes], how: int) -> None:
        path.rename(path.with_name("1"))
        path.write_bytes(path.with_name("1").read_bytes())
        lock(file, how)

    monkeypatch.setattr(fcntl, "flock", late)
    with pytest.raises(FileNotFoundError):
        list(read_results(path, 0))
    assert mapped_results() == 0


def test_a_file_is_written_over(path: Path) -> None:
    """A longer one, and a shorter one that grows."""
    for rows in (2_000, 10, 500):
        path.touch()
        room = max(path.stat().st_size, 1_000)
        write(path, (batch(0, rows), [0, 1, rows], None), room=room, enlarge=lambda size: True)
        assert offsets(path, 1) == list(range(1, rows))
        whole = path.read_bytes()
        path.unlink()
        write(path, (batch(0, rows), [0, 1, rows], None))
        assert whole == path.read_bytes()


def test_a_file_that_is_half_written_over_is_not_whole(path: Path) -> None:
    """Wherever the writer died: the messages of two chunks may be of the same lengths."""
    write(path, *[(batch(10 * n, 10), [0, 5, 10], None) for n in range(3)])
    for grows in (0, 10_000):
        os.truncate(path, path.stat().st_size + grows)
        writer = ResultWriter(path, SCHEMA, lambda size: True)
        for n in range(3):
            with pytest.raises(pa.ArrowInvalid, match="not whole"):
                list(read_results(path, 1))
            writer.write(batch(100 + 10 * n, 10), [0, 5, 10], None)
        with writer:
            pass
        assert offsets(path, 1)[0] == 105


def test_what_the_system_writes_in_parts_is_written_whole(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As at a signal, or where the filesystem has no more room for all of it."""

    some = os.write
    monkeypatch.setattr(os, "write", lambda file, data: some(file, data[:100]))
    write(path, (batch(0, 1_000), [0, 500, 1_000], None))
    assert offsets(path, 1) == list(range(500, 1_000))
