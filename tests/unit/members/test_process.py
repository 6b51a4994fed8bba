"""What a member process writes: as long as there is room, and nothing once its directory goes."""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from keyrange.members import process
from keyrange.members.executor import Owner
from keyrange.members.executor_names import NameSettings
from keyrange.members.model.group_member import GroupMember
from keyrange.members.model.group_member_states import GroupState
from keyrange.members.process import OwnerWatch, ProcessSurroundings
from keyrange.members.status import MemberSetup, MemberStatus, read_status, write_status
from keyrange.ranges.sharing.shared_directory import start_time


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
    assert writing.wait(60)
    around.sweep()
    writer.join()
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_written_after_the_sweep(around: ProcessSurroundings, tmp_path: Path) -> None:
    around.sweep()
    around.put(MemberStatus(state="FAILED"))
    assert around.status.state == "FAILED"
    assert list(tmp_path.iterdir()) == []


def full(*_: Any) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def member(state: GroupState, held_until_ms: int) -> GroupMember:
    said: Any = SimpleNamespace(
        state=state, failure="", member_id="m", generation=1, held_until_ms=held_until_ms
    )
    return cast(GroupMember, said)


def test_a_full_disk_ends_no_member(
    around: ProcessSurroundings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "executor" / "member"
    with monkeypatch.context() as while_full:
        while_full.setattr(process, "write_status", full)
        around.told(member(GroupState.STABLE, 5_000), "")
        around.told(member(GroupState.STABLE, 6_000), "")
    before = read_status(directory)
    assert before is not None
    assert before.held_until_ms == 0

    # It is written as soon as there is room, also where nothing has changed.
    around.told(member(GroupState.STABLE, 6_000), "")
    after = read_status(directory)
    assert after == around.status
    assert after.held_until_ms == 6_000
    assert after.joined == 1


def test_a_process_that_nobody_can_find_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without its first status another would be started for every task."""
    monkeypatch.setattr(process, "write_status", full)
    monkeypatch.setattr(ProcessSurroundings, "listen", lambda _: None)
    monkeypatch.setattr(process, "_take_part", lambda *_: pytest.fail("it goes on"))
    owner = Owner(os.getpid(), start_time(os.getpid()))
    setup = MemberSetup(NameSettings("g"), "g.members", {})
    with pytest.raises(OSError, match="No space"):
        process.run(setup, owner, tmp_path, lambda: pytest.fail("it is there"))
