"""Writers of tables that run at once, and a write of which nobody knows whether it landed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from threading import Barrier, Thread
from typing import Any

import pytest

from keyrange.errors import KeyrangeError
from keyrange.storage.delta_log import DeltaLog
from keyrange.storage.directory import Directory
from keyrange.storage.upkeep import UPKEEP
from tables.commit_contract import condition
from tables.numbered_logs import Subject


class Writes:
    """What stands in the place of a write to a log, and fails once."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, lands: bool, failure: Exception | None = None
    ) -> None:
        self._real, self._lands = DeltaLog.append, lands
        self._failure = failure or OSError("timed out")
        self.calls = 0

        def write(*arguments: Any, **named: Any) -> None:
            # A function, which the log is bound to, and no method of this.
            self.write(*arguments, **named)

        monkeypatch.setattr(DeltaLog, "append", write)

    def write(self, *arguments: Any, **named: Any) -> None:
        self.calls += 1
        if self._lands or self.calls > 1:
            self._real(*arguments, **named)
        if self.calls == 1:
            raise self._failure


def before_the_next_write(monkeypatch: pytest.MonkeyPatch, work: Callable[[], None]) -> None:
    """Do something between the look of a writer and its write."""
    real = DeltaLog.append

    def after_the_work(*arguments: Any, **named: Any) -> None:
        monkeypatch.setattr(DeltaLog, "append", real)
        work()
        real(*arguments, **named)

    monkeypatch.setattr(DeltaLog, "append", after_the_work)


def compacted() -> None:
    """Nobody compacts a table any more beside what is written."""
    for thread in threading.enumerate():
        if thread.name == UPKEEP:
            thread.join()


def in_threads(count: int, work: Callable[[int], None]) -> list[BaseException]:
    """All at once; what was raised."""
    barrier, raised = Barrier(count), []

    def run(number: int) -> None:
        barrier.wait()
        try:
            work(number)
        except BaseException as failure:
            raised.append(failure)

    threads = [Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return raised


def check_put_once(home: str) -> None:
    """That of those who put a file at once one does."""
    for attempt in range(5):
        uri, made = f"{home}/{attempt}", dict.fromkeys(range(8), False)

        def put(at: int, uri: str = uri, made: dict[int, bool] = made) -> None:
            made[at] = Directory(uri).write_once("once", b"%d" % at) is not None

        assert in_threads(8, put) == []
        [winner] = [at for at, is_made in made.items() if is_made]
        assert Directory(uri).read("once") == b"%d" % winner
    assert Directory(uri).read_if_there("none") is None


def check_one_driver_goes_on(subject: Subject, home: str) -> None:
    """That of drivers that write at once one goes on."""
    subject.fill(home)
    tables = [subject.open(home) for _ in range(6)]
    assert {subject.last(each) for each in tables} == {3}
    raised = in_threads(6, lambda at: tables[at].append(subject.begin(4, f"run-{at + 2}")))
    names = [each.condition.name for each in raised if isinstance(each, KeyrangeError)]
    assert names == [subject.fenced] * 5
    assert [each.seq for each in subject.open(home).history()] == [1, 2, 3, 4]


def check_late_append(subject: Subject, place: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """That a log of three entries takes none from a driver that another one has replaced since it
    looked."""
    late, other = subject.open(place), subject.open(place)
    assert subject.last(late) == subject.last(other) == 3
    before_the_next_write(monkeypatch, lambda: other.append(subject.begin(4, "run-2")))
    with pytest.raises(KeyrangeError) as raised:
        late.append(subject.entry(4))
    assert condition(raised) == subject.fenced
    assert list(subject.open(place).history()) == [*subject.entries(3), subject.begin(4, "run-2")]
