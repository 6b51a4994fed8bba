"""The end of a member process: its directory goes, whatever its threads do meanwhile."""

from __future__ import annotations

import contextlib
import os
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from keyrange.host.directory import start_time
from keyrange.members import process
from keyrange.members.process import OwnerWatch, ProcessSurroundings
from keyrange.members.setup import Owner
from keyrange.members.status import MemberStatus, write_status


@pytest.fixture
def around(tmp_path: Path) -> ProcessSurroundings:
    directory = tmp_path / "executor" / "member"
    directory.mkdir(parents=True)
    watch = OwnerWatch(Owner(os.getpid(), start_time(os.getpid())))
    around = ProcessSurroundings(directory, MemberStatus(), watch)
    around.put(MemberStatus(state="STABLE"))
    return around


def test_a_status_that_is_being_written_during_the_sweep_leaves_nothing(
    around: ProcessSurroundings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writing, emptied = threading.Event(), threading.Event()

    def write(directory: Path, status: MemberStatus) -> None:
        writing.set()
        emptied.wait(0.2)
        write_status(directory, status)

    def rmtree(path: Path, **_: Any) -> None:
        """As `shutil.rmtree`, with time for the writer between the last file and the directory."""
        for each in path.iterdir():
            each.unlink()
        emptied.set()
        writer.join(0.2)
        with contextlib.suppress(OSError):
            path.rmdir()

    monkeypatch.setattr(process, "write_status", write)
    monkeypatch.setattr(process.shutil, "rmtree", rmtree)
    closed = replace(around.status, state="CLOSED")
    writer = threading.Thread(target=lambda: around.put(closed), daemon=True)
    writer.start()
    assert writing.wait(10)
    around.sweep()
    writer.join()
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_written_after_the_sweep(around: ProcessSurroundings, tmp_path: Path) -> None:
    around.sweep()
    around.put(MemberStatus(state="FAILED"))
    assert around.status.state == "FAILED"
    assert list(tmp_path.iterdir()) == []
