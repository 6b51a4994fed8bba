"""Many runs of readers that share a partition, in every order, with kills between any two steps.

Seeded: a failure names its seed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from brokers.shared_readers import AMPLE, Kept, Shared, flat
from keyrange.kafka.fetching.fetch import SplitReader
from keyrange.ranges.sharing import chunk_results, shared_directory
from keyrange.ranges.sharing.chunk_chain import Chain
from keyrange.ranges.sharing.chunk_results import ResultWriter
from keyrange.ranges.sharing.shared_directory import ExecutorDirectory
from keyrange.wire.chunk_decoder import DecodeSettings
from project.forms import by_form, everyday

RUNS = by_form(5, 12, 400)
_KILLED = 9


def scene(home: Path, random: Random) -> Shared:
    home.mkdir()
    return Shared(
        home,
        readers=random.randint(2, 5),
        chunks=random.randint(1, 8),
        memory_bytes=random.choice([0, 300, 3_000, 30_000, AMPLE]),
        spill_bytes=random.choice([0, 3_000, AMPLE, AMPLE]),
        seed=random.randrange(1 << 30),
        value_bytes=random.choice([0, 20, 2_000]),
        batches_per_chunk=random.randint(1, 3),
        decode=DecodeSettings(batch_rows=random.choice([1, 3, 1_000])),
    )


@pytest.mark.parametrize("seed", range(RUNS))
def test_any_order_of_steps(tmp_path: Path, seed: int) -> None:
    """In one thread: attempts begin, go on, stop early and begin again; directories vanish."""
    random = Random(seed)
    shared = scene(tmp_path / "run", random)
    faults = random.random() < 0.7
    attempts: dict[int, Iterator[list[int]]] = {}
    found: dict[int, list[int]] = {}
    done: set[int] = set()
    kept = Kept(shared, random)
    while len(done) < shared.readers:
        number = random.choice([n for n in range(shared.readers) if n not in done])
        if number not in attempts:
            attempts[number], found[number] = shared.read(number, kept), []
        if faults and random.random() < 0.05:
            attempts.pop(number).close()  # type: ignore[attr-defined]
            continue
        if faults and random.random() < 0.05:
            shared.directory.remove(shared.path.name)
        batch = next(attempts[number], None)
        if batch is None:
            done.add(number)
        else:
            found[number] += batch
        assert results_bytes(shared.directory.path) <= shared.memory_bytes

    kept.check()
    assert found == {number: shared.expected(number) for number in range(shared.readers)}
    if not faults and shared.spill_bytes == AMPLE:
        assert shared.fetches == shared.chunks
    assert shared.fetches <= shared.chunks * shared.readers or faults
    if not faults:
        assert shared.left() == []


def results_bytes(path: Path) -> int:
    return sum(each.stat().st_size for each in path.glob("*/*-*"))


# Everything that a reader does to what it shares, or asks of the broker.
_STEPS: tuple[tuple[Any, str], ...] = (
    *((Chain, name) for name in ("claim_end", "extend", "finish", "take", "leave", "wait")),
    *((Chain, name) for name in ("try_lock", "link", "release_end", "close", "is_needed")),
    *((ExecutorDirectory, name) for name in ("reserve", "drop", "remove", "sweep_idle")),
    *((shared_directory, name) for name in ("_take_free", "_remove_free", "_set_size")),
    *((ResultWriter, name) for name in ("__init__", "write", "__exit__")),
    *((os, name) for name in ("rename", "unlink")),
    (chunk_results, "_map"),
    (SplitReader, "next_chunk"),
)


def die_at(step: int, after: bool, only: str = "") -> None:
    """End this process before or after its n-th step, of all or of one kind, as SIGKILL would:
    nothing is cleaned up."""
    left = [step]

    def counted(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **named: Any) -> Any:
            left[0] -= 1
            if left[0] == 0 and not after:
                os._exit(_KILLED)
            result = real(*args, **named)
            if left[0] == 0:
                os._exit(_KILLED)
            return result

        return call

    for owner, name in _STEPS:
        if only in ("", name):
            setattr(owner, name, counted(getattr(owner, name)))


def started(shared: Shared, number: int, out: Path, dies: tuple[Any, ...] | None) -> int:
    """A reader in a process of its own, which leaves its rows and fetches in a file."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        if dies is not None:
            die_at(*dies)
        kept = Kept(shared, Random(number))
        rows = flat(shared.read(number, kept))
        kept.check()
        out.write_text(json.dumps([rows, shared.fetches]))
        code = 0
    finally:
        os._exit(code)


@pytest.mark.parametrize("seed", range(RUNS))
def test_processes_that_are_killed_between_any_two_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Each reader runs again until it comes through; then its rows are right."""
    # The executor of them all, which no one finds alive afterwards.
    owner = f"999999999-1-{shared_directory._namespace()}"
    monkeypatch.setattr(shared_directory, "_owner", lambda: owner)
    random = Random(1_000 + seed)
    shared = scene(tmp_path / "run", random)
    kills = random.choice([0, 1, 3])
    running: dict[int, int] = {}
    waiting = list(range(shared.readers))
    random.shuffle(waiting)
    crashed = False
    while running or waiting:
        while waiting:
            number = waiting.pop()
            dies = None
            if kills and random.random() < 0.5:
                kills -= 1
                dies = (random.randint(1, 90), random.random() < 0.5)
            running[started(shared, number, tmp_path / str(number), dies)] = number
        pid, status = os.wait()
        number, code = running.pop(pid), os.waitstatus_to_exitcode(status)
        assert code in (0, _KILLED)
        if code == _KILLED:
            waiting.append(number)
            crashed = True

    answers = {n: json.loads((tmp_path / str(n)).read_text()) for n in range(shared.readers)}
    expected = {number: shared.expected(number) for number in range(shared.readers)}
    assert {number: rows for number, (rows, _) in answers.items()} == expected
    fetches = sum(count for _, count in answers.values())
    if not crashed and shared.spill_bytes == AMPLE:
        assert fetches == shared.chunks
    if not crashed:
        assert shared.left() == []
    monkeypatch.undo()
    assert_swept_by_the_next_executor(shared)


@pytest.mark.parametrize("after", everyday(True, False))
@pytest.mark.parametrize(
    "step", ["reserve", "_take_free", "rename", "drop", "__init__", "__exit__", "_map"]
)
def test_killed_at_each_step_of_a_file_that_serves_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, after: bool
) -> None:
    """At the third time, beside a reader that keeps rows."""
    owner = f"999999999-1-{shared_directory._namespace()}"
    monkeypatch.setattr(shared_directory, "_owner", lambda: owner)
    home = tmp_path / "run"
    home.mkdir()
    shared = Shared(home, readers=2, chunks=14, value_bytes=500)
    kept = Kept(shared, Random(1))
    other = shared.read(1, kept)
    found = [offset for _ in range(5) for offset in next(other)]
    _, status = os.waitpid(started(shared, 0, tmp_path / "0", (3, after, step)), 0)
    assert os.waitstatus_to_exitcode(status) == _KILLED
    assert flat(shared.read(0, kept)) == shared.expected(0)
    assert found + flat(other) == shared.expected(1)
    kept.check()
    monkeypatch.undo()
    assert_swept_by_the_next_executor(shared)


def assert_swept_by_the_next_executor(shared: Shared) -> None:
    made = shared.directory
    for parent in (made.path.parent, made.spill_path.parent):
        assert [each.name for each in parent.iterdir()] == [made.path.name]
    assert shared.left() == []
