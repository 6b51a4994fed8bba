"""What a member process and tasks say to each other in files."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from keyrange.members.status import (
    STATUS_FILE,
    MemberStatus,
    TaskProgress,
    now_ms,
    oldest_progress,
    read_status,
    write_status,
)

WHOLE = MemberStatus("orders-0", True, "option", "STABLE", "m-1", 4, 77, "123", since_ms=5)


def test_what_is_written_is_read_back_and_nothing_else_stays(tmp_path: Path) -> None:
    write_status(tmp_path, MemberStatus())
    write_status(tmp_path, WHOLE)
    assert read_status(tmp_path) == WHOLE
    assert [path.name for path in tmp_path.iterdir()] == [STATUS_FILE]
    assert (tmp_path / STATUS_FILE).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("letter", ["x", "ж", "\U0001f4a5", "\0"])
def test_however_long_a_failure_is_the_status_can_be_read(tmp_path: Path, letter: str) -> None:
    text = letter * 20_000
    write_status(tmp_path, replace(WHOLE, state="FAILED", failure=text, trouble=text))
    status = read_status(tmp_path)
    assert status == replace(WHOLE, state="FAILED", failure=text[:2_000], trouble=text[:2_000])


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "7", '{"pid": "7"}', '{"is_static": 1}', "\0", '{"name": null}']
)
def test_what_is_no_status_is_none(tmp_path: Path, text: str) -> None:
    assert read_status(tmp_path) is None
    (tmp_path / STATUS_FILE).write_text(text)
    assert read_status(tmp_path) is None


def test_a_status_of_a_newer_version_may_say_more(tmp_path: Path) -> None:
    (tmp_path / STATUS_FILE).write_text(json.dumps({"name": "orders-0", "mood": "good"}))
    assert read_status(tmp_path) == MemberStatus("orders-0")


def test_a_name_is_held_for_as_long_as_the_coordinator_said() -> None:
    status = MemberStatus("orders-0", True, state="STABLE", held_until_ms=1_000)
    assert status.holds_name(999)
    assert not status.holds_name(1_000)
    assert not MemberStatus("orders-0", True, state="FENCED").holds_name(0)


def test_the_task_that_has_yielded_nothing_for_the_longest_counts(tmp_path: Path) -> None:
    assert oldest_progress(tmp_path) is None
    before = now_ms()
    with TaskProgress(tmp_path) as slow:
        with TaskProgress(tmp_path) as quick:
            first = oldest_progress(tmp_path)
            assert first is not None
            assert before <= first <= now_ms()
            while now_ms() <= first:
                quick.yielded()
            assert oldest_progress(tmp_path) == first
        slow.yielded()
        later = oldest_progress(tmp_path)
        assert later is not None
        assert later > first
    assert oldest_progress(tmp_path) is None
    assert list((tmp_path / "progress").iterdir()) == []


def test_a_task_that_was_killed_runs_no_longer(tmp_path: Path) -> None:
    code = (
        "import os, signal\nfrom pathlib import Path\n"
        "from keyrange.members.status import TaskProgress\n"
        f"with TaskProgress(Path({str(tmp_path)!r})):\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, "-c", code], env=environment, check=False)
    assert done.returncode == -signal.SIGKILL
    assert len(list((tmp_path / "progress").iterdir())) == 1
    assert oldest_progress(tmp_path) is None
    assert list((tmp_path / "progress").iterdir()) == []


def test_a_task_needs_no_directory(tmp_path: Path) -> None:
    with TaskProgress(tmp_path / "gone") as task:
        task.yielded()
    assert oldest_progress(tmp_path / "gone") is None


def test_a_file_that_was_made_this_moment_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "progress").mkdir()
    (tmp_path / "progress" / "1-0").touch()
    assert oldest_progress(tmp_path) is None
    assert (tmp_path / "progress" / "1-0").exists()
