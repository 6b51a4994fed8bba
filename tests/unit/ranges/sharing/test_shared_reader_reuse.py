"""Readers of key ranges whose result files serve again: rows that somebody keeps never change."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

import pytest

from brokers.shared_readers import Kept, Shared, all_readers, everything, flat, in_turns
from keyrange.ranges.sharing import chunk_results, shared_directory, shared_reader
from project.forms import by_form


def free_files(shared: Shared) -> list[str]:
    return [name for name in shared.left() if name.startswith("free-")]


def counted_reuses(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The results that free files become from here on."""
    taken: list[Path] = []
    take = shared_directory._take_free

    def counted(path: Path) -> bool:
        found = take(path)
        taken.extend([path] if found else [])
        return found

    monkeypatch.setattr(shared_directory, "_take_free", counted)
    return taken


@pytest.mark.ordinary
@pytest.mark.parametrize("seed", range(by_form(1, 3, 3)))
def test_rows_that_are_kept_never_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Though files are used again and again, by readers that come, stop early and come again."""
    random = Random(seed)
    readers = random.randint(2, 3)
    shared = Shared(tmp_path, readers=readers, chunks=120, seed=seed, value_bytes=500)
    kept = Kept(shared, random)
    taken = counted_reuses(monkeypatch)
    running = {number: shared.read(number, kept) for number in range(readers)}
    while running:
        number = random.choice(list(running))
        if random.random() < 0.01:
            running[number] = shared.read(number, kept)
        if next(running[number], None) is None:
            del running[number]
        if random.random() < 0.1:
            kept.check()
            assert len(free_files(shared)) <= shared_directory._FREE_MAX
    kept.check()
    assert len(kept.batches) == 6
    assert len(taken) > 20


def test_files_serve_again_in_a_full_shared_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What grows fails, as ENOSPC; what has its pages already does not."""
    shared = Shared(tmp_path, readers=2, chunks=20, value_bytes=500)
    taken = counted_reuses(monkeypatch)
    write = shared_reader.ResultWriter.write

    def full(self: shared_reader.ResultWriter, *rows: object) -> None:
        path = Path(self._file.name)
        if "memory" in path.parts and len(taken) > 3 and path not in taken:
            raise OSError(28, "No space left on device")
        write(self, *rows)  # type: ignore[arg-type]

    monkeypatch.setattr(shared_reader.ResultWriter, "write", full)
    assert in_turns(all_readers(shared)) == everything(shared)
    assert shared.fetches == shared.chunks
    assert len(taken) > 4
    assert shared.left() == []


def test_who_keeps_all_rows_does_not_run_out_of_descriptors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_reader, "_MAPPED_MAX", 5)
    shared = Shared(tmp_path, readers=2, chunks=30)
    before = len(os.listdir("/proc/self/fd"))
    assert flat(shared.read(0)) == shared.expected(0)
    rows = list(shared.reader(1).read())
    assert [at for each in rows for at in each.column("offset").to_pylist()] == shared.expected(1)
    assert 5 <= chunk_results.mapped_results() <= 6
    assert len(os.listdir("/proc/self/fd")) <= before + 7
    for each in rows:
        shared.check(each)
