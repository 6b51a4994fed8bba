"""What happens to Delta tables, and to the disks that they are on, while something reads and writes
them: keyrange's tables are at version 3 by then, with a file for each."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

Undo = Callable[[], object]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A filesystem of two megabytes, where this may mount one."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(place)]
    try:
        done = subprocess.run(mount, capture_output=True, check=False).returncode == 0
    except OSError:
        done = False
    if not done:
        pytest.skip("this user may not mount a filesystem")
    yield place
    # A process may be in it still.
    subprocess.run(["umount", "-l", str(place)], check=False)


def fill(disk: Path) -> Undo:
    """Leave no room on a disk."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        os.posix_fallocate(file.fileno(), 0, os.statvfs(disk).f_bavail * 4096)
    return filler.unlink


def make_read_only(disk: Path) -> Undo:
    remount = ["mount", "-o", "remount,{}", str(disk)]
    subprocess.run([each.format("ro") for each in remount], check=True)
    return partial(subprocess.run, [each.format("rw") for each in remount], check=True)


def log_entry(path: Path, version: int) -> Path:
    return path / "_delta_log" / f"{version:020d}.json"


def last_file(path: Path) -> Path:
    return max(path.glob("*.parquet"), key=lambda each: each.stat().st_mtime_ns)


def append_rows(path: Path, rows: pa.Table) -> None:
    deltalake.write_deltalake(path, rows, mode="append")


def set_property(path: Path, name: str, value: str) -> None:
    deltalake.DeltaTable(path).alter.set_table_properties({name: value}, False)


def delete(path: Path) -> None:
    shutil.rmtree(path)


def delete_the_log(path: Path) -> None:
    shutil.rmtree(path / "_delta_log")


def delete_a_file(path: Path) -> None:
    last_file(path).unlink()


def cut_a_file(path: Path) -> None:
    last_file(path).write_bytes(last_file(path).read_bytes()[:-20])


def empty_a_file(path: Path) -> None:
    last_file(path).write_bytes(b"")


def cut_the_log(path: Path) -> None:
    log_entry(path, 2).write_bytes(log_entry(path, 2).read_bytes()[:200])


def leave_a_gap_in_the_log(path: Path) -> None:
    log_entry(path, 2).unlink()


def add_a_column(path: Path) -> None:
    deltalake.DeltaTable(path).alter.add_columns([deltalake.Field("more", "string")])


def newer_version(path: Path) -> None:
    set_property(path, "keyrange.version", "99")


def newer_protocol(path: Path) -> None:
    text = '{"protocol":{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":["new"],'
    log_entry(path, 4).write_text(text + '"writerFeatures":["new"]}}\n')


def another_table(path: Path) -> None:
    shutil.rmtree(path)
    append_rows(path, pa.table({"id": [1]}))


def other_files(path: Path) -> None:
    shutil.rmtree(path)
    path.mkdir()
    (path / "notes.txt").write_text("mine")


def note_transaction(path: Path, version: int, app_id: str, number: int) -> None:
    """Say in a version of the log that a transaction was written by it."""
    log = log_entry(path, version)
    log.write_text(log.read_text() + f'\n{{"txn":{{"appId":"{app_id}","version":{number}}}}}')
