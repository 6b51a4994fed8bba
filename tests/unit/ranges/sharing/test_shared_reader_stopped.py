"""Readers that share a partition with one that does not move: stopped by SIGSTOP, or waiting for a
broker that answers nobody."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from brokers.scripted_broker import Fetched
from brokers.shared_readers import Shared, flat
from keyrange.errors import KeyrangeError
from keyrange.kafka.connection import ConnectionLost
from keyrange.kafka.fetching.fetch import SplitReader
from keyrange.ranges.sharing import locks, shared_directory
from keyrange.ranges.sharing.chunk_chain import Chain
from keyrange.ranges.sharing.chunk_results import ResultWriter
from project.forms import everyday

PATIENCE_MS = 300
# With deadlines that add up, or none, it takes far longer.
SOON_S = 30.0

STEPS: dict[str, tuple[Any, str]] = {
    "fetches": (SplitReader, "next_chunk"),
    "has fetched": (Chain, "extend"),
    "writes": (ResultWriter, "write"),
    "ends a file": (ResultWriter, "__exit__"),
    "says where it is": (Chain, "finish"),
    "makes room": (shared_directory, "_set_size"),
    "takes a free file": (shared_directory, "_take_free"),
    "takes its part": (Chain, "take"),
}


def stop_at(owner: Any, name: str, step: int) -> None:
    """This process stops itself before its n-th step of a kind."""
    real, left = getattr(owner, name), [step]

    def counted(*args: Any, **named: Any) -> Any:
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGSTOP)
        return real(*args, **named)

    setattr(owner, name, counted)


@pytest.fixture
def children() -> Iterator[list[int]]:
    """Processes that are ended, wherever a test ends."""
    pids: list[int] = []
    yield pids
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def stopped_reader(shared: Shared, out: Path, step: str, children: list[int]) -> int:
    """Reader 0 in a process that has stopped at its second step of a kind."""
    pid = os.fork()
    if not pid:
        code = 1
        try:
            stop_at(*STEPS[step], 2)
            out.write_text(json.dumps(flat(shared.read(0))))
            code = 0
        finally:
            os._exit(code)
    children.append(pid)
    _, status = os.waitpid(pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    return pid


@pytest.mark.parametrize("step", everyday(*STEPS))
def test_a_stopped_reader_holds_up_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, children: list[int], step: str
) -> None:
    """The others go on by themselves, and so does it when it moves again."""
    monkeypatch.setattr(locks, "SHORT_S", 0.2)
    # Of all of them, as workers of an executor have one.
    owner = shared_directory._owner()
    monkeypatch.setattr(shared_directory, "_owner", lambda: owner)
    (tmp_path / "run").mkdir()
    shared = Shared(tmp_path / "run", readers=3, chunks=8, poll_timeout_ms=PATIENCE_MS)
    # Reader 1 has taken some before, so that files serve again, and what reader 0 makes is taken.
    other = shared.read(1)
    found = [next(other) for _ in range(2)]
    pid = stopped_reader(shared, tmp_path / "out", step, children)

    began = time.monotonic()
    assert flat(found) + flat(other) == shared.expected(1)
    assert flat(shared.read(2)) == shared.expected(2)
    assert time.monotonic() - began < SOON_S
    assert Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"

    os.kill(pid, signal.SIGCONT)
    assert os.waitpid(pid, 0)[1] == 0
    children.remove(pid)
    assert json.loads((tmp_path / "out").read_text()) == shared.expected(0)
    assert shared.left() == []


@pytest.mark.ordinary
def test_the_deadlines_of_readers_do_not_add_up(tmp_path: Path) -> None:
    def down(node: int, partition: int, offset: int) -> Fetched:
        raise ConnectionLost("down")

    shared = Shared(tmp_path, readers=4, poll_timeout_ms=3_000)
    shared.world.script = down
    assert shared.directory.path.is_dir()
    began = time.monotonic()
    waited_s: list[float] = []

    def read(number: int) -> None:
        with pytest.raises(KeyrangeError, match="REQUEST_TIMED_OUT"):
            flat(shared.read(number))
        waited_s.append(time.monotonic() - began)

    threads = [threading.Thread(target=read, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert len(waited_s) == 4
    # One after the other they would take 3, 6, 9 and 12 s.
    assert min(waited_s) >= 2.9
    assert max(waited_s) < 11


def test_a_lock_is_waited_for_until_its_deadline(tmp_path: Path) -> None:
    with (tmp_path / "lock").open("w") as one, (tmp_path / "lock").open("w") as other:
        assert locks.lock_within(one.fileno(), fcntl.LOCK_EX, 0)
        began = time.monotonic()
        assert not locks.lock_within(other.fileno(), fcntl.LOCK_SH, 0.1)
        assert 0.1 <= time.monotonic() - began < 60
        releasing = threading.Timer(0.1, fcntl.flock, (one.fileno(), fcntl.LOCK_UN))
        releasing.start()
        assert locks.lock_within(other.fileno(), fcntl.LOCK_SH, 120)
        assert time.monotonic() - began < 60
        releasing.join()


def test_a_lock_that_nobody_holds_for_long_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "SHORT_S", 0.05)
    path = tmp_path / "lock"
    with (
        shared_directory.locked(path, soon=True),
        pytest.raises(TimeoutError, match="a process that was stopped holds the lock of lock"),
        shared_directory.locked(path, soon=True),
    ):
        pass
