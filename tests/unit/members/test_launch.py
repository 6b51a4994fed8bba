"""When a member process is started, for whom, and what it is told."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from keyrange.members import launch
from keyrange.members.executor import Owner, executor_directory, executor_process
from keyrange.members.executor_names import NameSettings
from keyrange.members.launch import ensure_member, member_directory
from keyrange.members.status import (
    MemberSetup,
    MemberStatus,
    from_json,
    now_ms,
    to_json,
    write_status,
)
from keyrange.ranges.sharing.shared_directory import is_alive, make_private, start_time

KAFKA = {"bootstrap.servers": "h:1", "sasl.jaas.config": "s3cret", "ssl.key.password": "s3cret"}
SETUP = MemberSetup(NameSettings("orders", name="orders-0"), "orders.members", KAFKA, run="r1")


def test_a_setup_is_handed_over_whole_and_does_not_show_its_secrets() -> None:
    owner = Owner(7, "123")
    assert from_json(to_json(SETUP, owner)) == (SETUP, owner)
    assert "s3cret" not in repr(SETUP)


def test_setups_that_one_process_may_serve_have_one_mark() -> None:
    assert SETUP.mark == replace(SETUP, run="r2").mark
    changed = KAFKA | {"sasl.jaas.config": "other"}
    assert SETUP.mark == replace(SETUP, kafka=changed).mark
    others = [
        replace(SETUP, session_timeout_ms=7_000),
        replace(SETUP, member_group="clicks.members"),
        replace(SETUP, names=NameSettings("orders", name="orders-1")),
        replace(SETUP, kafka=KAFKA | {"bootstrap.servers": "h:2"}),
    ]
    assert len({each.mark for each in [SETUP, *others]}) == 5


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Which setups' runs a process was started for; none is."""
    runs: list[str] = []

    def start(setup: MemberSetup, place: Path, owner: Owner) -> None:
        runs.append(setup.run)

    monkeypatch.setattr(launch, "_start", start)
    return runs


def put(directory: Path, **values: object) -> MemberStatus:
    """What a process that is this one has said."""
    usual = {"pid": os.getpid(), "started": start_time(os.getpid()), "setup": SETUP.mark}
    status = MemberStatus(**(usual | values))  # type: ignore[arg-type]
    place = member_directory(SETUP, directory)
    make_private(place)
    write_status(place, status)
    return status


def test_it_is_started_where_there_is_none(tmp_path: Path, started: list[str]) -> None:
    assert ensure_member(SETUP, tmp_path) is None
    assert started == ["r1"]
    assert member_directory(SETUP, tmp_path).stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("state", ["STARTING", "FINDING", "STABLE", "IDLE_GIVEN_UP"])
def test_one_that_is_up_is_left_alone(tmp_path: Path, started: list[str], state: str) -> None:
    status = put(tmp_path, state=state)
    assert ensure_member(replace(SETUP, run="r2"), tmp_path) == status
    assert started == []


@pytest.mark.parametrize("state", ["FENCED", "FAILED"])
def test_one_that_was_refused_is_tried_again_in_another_run(
    tmp_path: Path, started: list[str], state: str
) -> None:
    status = put(tmp_path, state=state, pid=0, run="r1")
    assert ensure_member(SETUP, tmp_path) == status
    ensure_member(replace(SETUP, run="r2"), tmp_path)
    assert started == ["r2"]


@pytest.mark.parametrize("state", ["STABLE", "CLOSED"])
def test_one_that_is_gone_is_started_again(tmp_path: Path, started: list[str], state: str) -> None:
    put(tmp_path, state=state, started="1", joined=1)
    ensure_member(SETUP, tmp_path)
    assert started == ["r1"]


def test_one_that_dies_at_once_is_given_a_pause(tmp_path: Path, started: list[str]) -> None:
    put(tmp_path, started="1", since_ms=now_ms())
    assert ensure_member(SETUP, tmp_path) is None
    assert started == []
    put(tmp_path, started="1", since_ms=now_ms() - 60_000)
    ensure_member(SETUP, tmp_path)
    assert started == ["r1"]


def sleeper(deaf: bool) -> subprocess.Popen[str]:
    code = "import signal, sys, time\n"
    code += "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" if deaf else ""
    code += "print('up', flush=True)\ntime.sleep(600)"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    return process


@pytest.mark.parametrize(("deaf", "by"), [(False, signal.SIGTERM), (True, signal.SIGKILL)])
def test_another_setups_process_is_ended_first(
    tmp_path: Path, started: list[str], monkeypatch: pytest.MonkeyPatch, deaf: bool, by: int
) -> None:
    monkeypatch.setattr(launch, "_END_TIMEOUT_S", 1.0)
    old = sleeper(deaf)
    try:
        put(tmp_path, pid=old.pid, started=start_time(old.pid), setup="another", state="STABLE")
        ensure_member(SETUP, tmp_path)
        assert old.wait(timeout=120) == -by
    finally:
        old.kill()
        old.communicate()
    assert started == ["r1"]


def test_who_comes_while_another_starts_it_does_not_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner: list[object] = []

    def start(setup: MemberSetup, place: Path, owner: Owner) -> None:
        inner.append(ensure_member(setup, tmp_path))

    monkeypatch.setattr(launch, "_start", start)
    ensure_member(SETUP, tmp_path)
    assert inner == [None]


def below(name: str, tmp_path: Path, code: str) -> str:
    """What a Python program prints that a process called `name` has started."""
    (tmp_path / name).symlink_to(Path(sys.executable).resolve())
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    inner = f"import subprocess as s; s.run({[sys.executable, '-c', code]!r}, check=True)"
    middle = f"import subprocess as s; s.run({[sys.executable, '-c', inner]!r}, check=True)"
    outer = f"import os; print(os.getpid(), flush=True)\n{middle}"
    command = [str(tmp_path / name), "-c", outer]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True
    ).stdout


def test_an_executor_is_the_jvm_above_a_worker(tmp_path: Path) -> None:
    code = "from keyrange.members.executor import *\nprint(executor_process().pid)"
    first, second = below("java", tmp_path, code).split()
    assert first == second


def test_without_a_jvm_it_is_the_parent() -> None:
    assert executor_process().pid in (os.getppid(), *ancestors())


def ancestors() -> list[int]:
    """A test may itself run below a JVM."""
    found, pid = [], os.getpid()
    while pid > 1:
        stat = Path(f"/proc/{pid}/stat").read_text()
        pid = int(stat.rpartition(")")[2].split()[1])
        found.append(pid)
    return found


def test_an_executors_directory_is_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    monkeypatch.setattr(
        "keyrange.ranges.sharing.shared_directory._SHARED_MEMORY", tmp_path / "none"
    )
    path = executor_directory()
    assert path == executor_directory()
    assert path.name.startswith(f"{executor_process().pid}-")
    assert path.stat().st_mode & 0o777 == 0o700


HEAVY = "numpy pyarrow numba llvmlite pandas pyspark deltalake"


def test_what_the_process_loads_is_small() -> None:
    code = (
        "import sys\n"
        "import keyrange.members.process, keyrange.members.coordinator_client\n"
        "import keyrange.options.kafka_properties\n"
        f"print(sorted(set({HEAVY!r}.split()) & set(sys.modules)))"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_process_that_nobody_has_waited_for_is_not_alive() -> None:
    process = subprocess.Popen(["sleep", "600"])
    started = start_time(process.pid)
    assert is_alive(process.pid, started)
    assert not is_alive(process.pid, "1")
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert start_time(process.pid) == started
    assert not is_alive(process.pid, started)
    process.wait()
    assert not is_alive(process.pid, started)
