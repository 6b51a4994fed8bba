"""The file of progress: whole lines, its bound, other processes that write, reading its end."""

from __future__ import annotations

import fcntl
import json
import multiprocessing
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyrange.errors import InvalidError
from keyrange.observing.progress_file import ProgressFile, read_last, rotated


def line(number: int, size: int = 10, query: str = "q") -> dict[str, Any]:
    return {"id": query, "batchId": number, "text": "x" * size}


def numbers(path: Path, count: int = 1_000, query: str = "") -> list[int]:
    return [each["batchId"] for each in read_last(path, count, query)]


def test_each_batch_is_a_line(tmp_path: Path) -> None:
    path = tmp_path / "progress.jsonl"
    file = ProgressFile(path)
    for number in range(5):
        file.append(line(number))
    assert [json.loads(text)["batchId"] for text in path.read_text().splitlines()] == [*range(5)]
    assert numbers(path, 2) == [3, 4]
    assert path.stat().st_mode & 0o777 == 0o644 & ~_umask()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_a_full_file_is_put_aside_once(tmp_path: Path) -> None:
    path = tmp_path / "progress.jsonl"
    size = len(json.dumps(line(0), separators=(",", ":"))) + 1
    file = ProgressFile(path, bytes_max=3 * size)
    for number in range(8):
        file.append(line(number))
    assert path.stat().st_size == 2 * size
    assert rotated(path).stat().st_size == 3 * size
    assert sorted(os.listdir(tmp_path)) == ["progress.jsonl", "progress.jsonl.1"]
    assert numbers(path) == [3, 4, 5, 6, 7]
    file.append(line(9, size=1_000))
    assert numbers(path) == [6, 7, 9], "a line that is larger than the bound is whole all the same"


def test_what_was_torn_is_left_out_and_spoils_nothing(tmp_path: Path) -> None:
    path = tmp_path / "progress.jsonl"
    file = ProgressFile(path)
    file.append(line(1))
    with path.open("ab") as torn:
        torn.write(b'{"id":"q","batch')
    file.append(line(2))
    assert numbers(path) == [1, 2]


def test_a_short_write_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "progress.jsonl"
    usual = os.write
    monkeypatch.setattr(os, "write", lambda file, data: usual(file, data[:5]))
    with pytest.raises(OSError, match="5 of"):
        ProgressFile(path).append(line(1))
    monkeypatch.undo()
    ProgressFile(path).append(line(2))
    assert numbers(path) == [2]


def test_a_file_that_was_taken_away_is_made_again(tmp_path: Path) -> None:
    path = tmp_path / "progress.jsonl"
    file = ProgressFile(path)
    file.append(line(1))
    path.unlink()
    file.append(line(2))
    assert numbers(path) == [2]


def test_a_file_that_another_process_puts_aside_in_between_is_not_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "progress.jsonl"
    ProgressFile(path).append(line(1))
    usual, moved = fcntl.flock, [False]

    def flock(file: int, how: int) -> None:
        if not moved[0]:
            moved[0] = True
            path.replace(rotated(path))
        usual(file, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    ProgressFile(path).append(line(2))
    assert [json.loads(text)["batchId"] for text in path.read_text().splitlines()] == [2]
    assert numbers(path) == [1, 2]


def test_nobody_else_writes_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "progress.jsonl"
    usual = os.write

    def write(file: int, data: bytes) -> int:
        with path.open("rb") as other, pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return usual(file, data)

    monkeypatch.setattr(os, "write", write)
    ProgressFile(path).append(line(1))
    monkeypatch.undo()
    with path.open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert numbers(path) == [1]


def _write(path: Path, writer: int, count: int) -> None:
    file = ProgressFile(path, bytes_max=20_000)
    for number in range(count):
        file.append(line(number, size=200, query=f"w{writer}"))


def test_several_processes_lose_nothing_within_the_bound(tmp_path: Path) -> None:
    """Each line once, in the order of its writer, over several times of putting the file aside."""
    path = tmp_path / "progress.jsonl"
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_write, args=(path, number, 100)) for number in range(3)]
    for each in writers:
        each.start()
    for each in writers:
        each.join(120)
        assert each.exitcode == 0
    kept = read_last(path, 10_000)
    assert 80 < len(kept) < 200
    assert all(len(each["text"]) == 200 for each in kept)
    for number in range(3):
        of_writer = [each["batchId"] for each in kept if each["id"] == f"w{number}"]
        assert of_writer == [*range(100 - len(of_writer), 100)]


@pytest.mark.parametrize("path", ["s3://lake/progress.jsonl", "file:///x", ""])
def test_what_is_no_path_here_is_refused(path: str) -> None:
    with pytest.raises(InvalidError, match="path on this machine"):
        ProgressFile(path)


def test_no_room_at_all_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidError, match="at least one byte"):
        ProgressFile(tmp_path / "x", 0)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_last(tmp_path / "none", 1)


@given(
    sizes=st.lists(st.integers(0, 400), max_size=30),
    step=st.integers(1, 300),
    count=st.integers(1, 40),
)
def test_reading_backwards_is_reading_whole(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], step: int, count: int
) -> None:
    """However the file is cut into pieces, against reading all of it."""
    path = tmp_path_factory.mktemp("tail") / "progress.jsonl"
    path.touch()
    file = ProgressFile(path)
    for number, size in enumerate(sizes):
        file.append(line(number, size, query="a" if number % 3 else "b"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("keyrange.observing.progress_file._TAIL_BYTES", step)
        assert numbers(path, count) == [*range(len(sizes))][-count:]
        of_a = [number for number in range(len(sizes)) if number % 3]
        assert numbers(path, count, "a") == of_a[-count:]
