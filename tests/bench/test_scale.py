"""The executors of group `scale`, without a cluster: what fails in them ends the run, and nothing
of them is left."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from keyrange.embedded.process import HOST, free_ports
from keyrange.errors import KeyrangeError, error
from keyrange.members.read_tasks import write_bound_task
from keyrange.model.offset_splits import Split
from keyrange.model.offsets import TopicPartition
from project.bench_runs import CI

sys.path.insert(0, str(CI))

from bench import simulated_executors
from bench.groups import scale
from bench.registry import Bench
from bench.simulated_executors import Executors

NAMES = ["a", "b"]


def nobody() -> str:
    [port] = free_ports(1)
    return f"{HOST}:{port}"


def made(home: Path) -> Executors:
    """Executors whose members are threads, and look for a cluster that is not there."""
    return Executors(NAMES, 0, 2, "scale", nobody(), str(home))


def members() -> list[str]:
    return [each.name for each in threading.enumerate() if each.name.startswith("member_")]


def portion(number: int) -> dict[str, Any]:
    maker = scale.task_maker([TopicPartition("scale", number)])
    document: dict[str, Any] = write_bound_task(
        maker.task([Split(TopicPartition("scale", number), 0, 9, 9)])
    )
    return document


def read(
    home: Path, monkeypatch: pytest.MonkeyPatch, portions: Callable[[int], Iterator[Any]]
) -> Any:
    """What six tasks read, of which each has these portions."""

    class Caller:
        def __init__(self, _: Any, __: str, task: int, *___: Any, taken: list[float]) -> None:
            self._task, self._taken = task, taken

        def portions(self, _: Callable[[], str]) -> Iterator[Any]:
            self._taken.append(0.0)
            return portions(self._task)

    monkeypatch.setattr(simulated_executors, "TimedCaller", Caller)
    monkeypatch.setattr(simulated_executors, "greet", lambda *_: None)
    with closing(made(home)) as executors:
        executors.greet(HOST, 1, "00")
        return executors.read("plan", 0, tasks=6, read_s=0.0, slow_s=0.0)


def test_portions_and_partitions_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = read(tmp_path, monkeypatch, lambda task: iter([portion(task), portion(task % 2)]))
    assert (found["portions"], found["partitions"], len(found["waited_s"])) == (12, 6, 6)


def test_a_task_that_fails_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(task: int) -> Iterator[Any]:
        yield portion(task)
        if task == 3:
            raise OSError("the disk of task 3")

    with pytest.raises(OSError, match="the disk of task 3"):
        read(tmp_path, monkeypatch, failing)
    assert members() == []


@pytest.mark.parametrize(
    ("partitions", "portions", "is_whole"), [(4, 9, True), (4, 8, False), (3, 9, False)]
)
def test_what_was_read_is_checked_portion_by_portion(
    tmp_path: Path, partitions: int, portions: int, is_whole: bool
) -> None:
    class Plans:
        def metrics(self) -> Any:
            return {"members": {"ownPortions": 5, "foreignPortions": 3, "unownedPortions": 1}}

    bench = Bench("scale", "tiny", nobody(), tmp_path)
    four = [TopicPartition("scale", number) for number in range(4)]
    plans: Any = Plans()
    executors: Any = None
    driver = scale._Driver(bench, plans, executors, four)
    told = {"partitions": partitions, "portions": portions}
    if is_whole:
        driver._check(told)
    else:
        with pytest.raises(RuntimeError, match=f"{partitions} of 4 .* in {portions} portions"):
            driver._check(told)


def test_members_end_when_they_are_told_to(tmp_path: Path) -> None:
    executors = made(tmp_path)
    assert len(members()) == len(NAMES)
    executors.check()
    executors.close()
    assert members() == []


def test_what_a_member_fails_with_is_handed_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise error("SESSION_TIMEOUT_REFUSED", "too long")

    monkeypatch.setattr(simulated_executors, "run_member", fail)
    executors = made(tmp_path)
    with pytest.raises(KeyrangeError, match="SESSION_TIMEOUT_REFUSED"):
        executors.close()
    with pytest.raises(KeyrangeError, match="SESSION_TIMEOUT_REFUSED"):
        executors.check()


def test_a_member_that_ends_too_early_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(simulated_executors, "run_member", lambda *_: None)
    with pytest.raises(RuntimeError, match="the member a is "):
        made(tmp_path).close()


def test_a_process_of_executors_that_fails_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(CI), prepend=":")
    bench = Bench("scale", "tiny", nobody(), tmp_path)
    order = {"plan": "none", "batch": 0, "tasks": 1, "read_s": 0.0, "slow_s": 0.0}
    with scale._executors(bench, NAMES, "scale", 0) as executors:
        executors.do(do="check")
    # None of these executors was told where the driver is.
    with (
        pytest.raises(RuntimeError, match="the executors ended when they were to read"),
        scale._executors(bench, NAMES, "scale", 0) as executors,
    ):
        executors.do(do="read", **order)
