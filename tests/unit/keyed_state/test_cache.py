"""Copies of state: which process reads all bytes of one to check them, and which need not."""

from __future__ import annotations

import os
import shutil
import time
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from keyrange.keyed_state import cache
from keyrange.keyed_state.model.state_runs import StateRun, after_batch
from keyrange.keyed_state.sorted_blocks import Keys
from keyrange.keyed_state.states_of_task import PartitionRuns, StateSettings, TaskStates
from keyrange.keyed_state.variables import StateForm, ValueState, variables_of
from keyrange.members.slot_directories import made_slots_directory
from keyrange.model.key_ranges import SPACE, split_evenly
from keyrange.model.offsets import TopicPartition

AT = TopicPartition("t", 0)
FORM = StateForm(variables_of({"n": ValueState("n long")}))


class Host:
    """A host that has the copy of one key's state."""

    def __init__(self, home: Path, patch: pytest.MonkeyPatch) -> None:
        self.home = home
        self.patch = patch
        self.checked = 0
        states = self._states(())
        row = {"key_hash": 7, "key": b"a", "n": {"n": 41}}
        states.change(AT, pa.RecordBatch.from_pylist([row], FORM.schema))
        self.runs = tuple(after_batch([], [run for _, run in states.finish()], 1))

    def _states(self, runs: tuple[StateRun, ...]) -> TaskStates:
        settings = StateSettings(str(self.home / "state"), "s", len(runs), 1, self.home / "host")
        states = TaskStates(FORM, settings)
        states.begin({AT: PartitionRuns((SPACE,), runs, True, "p")})
        return states

    @property
    def copy(self) -> Path:
        [found] = self.home.glob("host/p/*.arrow")
        return found

    def read(self) -> tuple[int, int]:
        """What another process of the host finds; how often it read all bytes, and how many bytes
        it made the copy of anew."""
        cache._MAPPED.clear()
        checks = 0

        def crc32(data: Any, value: int = 0) -> int:
            nonlocal checks
            checks += value == 0
            return zlib.crc32(data, value)

        states = self._states(self.runs)
        with self.patch.context() as patch:
            patch.setattr(cache, "zlib", type("zlib", (), {"crc32": staticmethod(crc32)}))
            found = states.look_up(AT, Keys(np.array([7]), pa.array([b"a"], pa.binary())))
        assert found.column("n").to_pylist() == [{"n": 41}]
        return checks, states.figures.restored_bytes


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    made = Host(tmp_path, monkeypatch)
    try:
        os.getxattr(made.copy, cache._CHECKED)
    except OSError:
        pytest.skip("files have no attributes here")
    return made


def test_what_was_checked_today_is_not_checked_by_the_next_process(host: Host) -> None:
    assert [host.read() for _ in range(2)] == [(0, 0), (0, 0)]


def test_who_checks_first_after_a_start_of_the_host_does_so_for_all(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "_boot", lambda: "another")
    assert [host.read() for _ in range(2)] == [(1, 0), (0, 0)]


def test_each_day_somebody_checks(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time()
    monkeypatch.setattr(cache.time, "time", lambda: now + 86_400)
    assert [host.read() for _ in range(2)] == [(1, 0), (0, 0)]


def test_where_files_have_no_attributes_each_process_checks(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise OSError("not supported")

    monkeypatch.setattr(os, "getxattr", refused)
    monkeypatch.setattr(os, "setxattr", refused)
    assert [host.read() for _ in range(2)] == [(1, 0), (1, 0)]


def test_a_copy_that_is_written_to_is_thrown_away(host: Host) -> None:
    data = bytearray(host.copy.read_bytes())
    data[len(data) // 2] ^= 1
    with host.copy.open("r+b") as file:
        file.write(data)
    # What stands on the disk so fast may have the same time.
    os.utime(host.copy, ns=(0, time.time_ns()))
    checks, restored = host.read()
    assert checks > 0
    assert restored > 0
    assert host.read() == (0, 0)


def test_a_directory_of_slots_that_somebody_removed_is_made_by_who_takes_a_slot(
    host: Host, tmp_path: Path
) -> None:
    """Made with the copy it would be open to all, and then no executor of this host has a name."""
    chosen = str(tmp_path / "slots")
    slots = made_slots_directory(chosen)
    copies = cache.StateCache(cache.copies_of(slots, "s") / cache.place_of("id", AT))
    [run] = host.runs
    copies.keep(run, [], FORM.schema)
    assert list(slots.rglob("*.arrow"))
    shutil.rmtree(slots)
    copies.keep(run, [], FORM.schema)
    assert not slots.exists()
    assert made_slots_directory(chosen) == slots


def test_a_copy_that_takes_long_is_not_swept_while_it_is_written(
    host: Host, tmp_path: Path
) -> None:
    """Nobody reads it, so that it was read last when it was begun."""
    copies, [run] = cache.StateCache(tmp_path / "copies" / "p"), host.runs
    draft = copies.draft(FORM.schema)
    draft.add(pa.RecordBatch.from_pylist([{"key_hash": 7, "key": b"a"}], FORM.schema))
    [path] = (tmp_path / "copies" / "p").iterdir()
    os.utime(path, (time.time() - 3_600, time.time()))
    copies.sweep(SPACE, [])
    draft.keep(run)
    assert copies.missing(run) == []


def test_copies_of_a_source_that_is_over_go_too(tmp_path: Path) -> None:
    """No task of its own looks for them; those of one that was stopped for some days stay."""
    own, over = (cache.copies_of(tmp_path, source) / "p" for source in ("own", "over"))
    ages = {"hour.arrow": 1 / 24, "days.arrow": 3, ".draft": 31, "month.arrow": 31}
    for each in (own, over):
        each.mkdir(parents=True)
        for name, days in ages.items():
            (each / name).touch()
            os.utime(each / name, (time.time() - days * 86_400,) * 2)
    cache.sweep_idle(own.parent)
    assert [path.name for path in own.iterdir()] == ["hour.arrow"]
    assert sorted(path.name for path in over.iterdir()) == ["days.arrow", "hour.arrow"]


def test_copies_are_listed_once_by_a_task(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """There may be thousands, of which each list takes milliseconds."""
    listed: list[str] = []
    for name in ("glob", "iterdir"):
        whole = getattr(Path, name)

        def counted(path: Path, *given: str, whole: Any = whole) -> Any:
            listed.append(path.name)
            return whole(path, *given)

        monkeypatch.setattr(Path, name, counted)
    [run], at = host.runs, str(host.home / "state")
    states = TaskStates(FORM, StateSettings(at, "s", 1, 1, host.home / "host"))
    for span in split_evenly(SPACE, 4):
        runs = tuple(replace(run, span=span, until_seq=seq) for seq in range(2, 6))
        states.begin({AT: PartitionRuns((span,), runs, False, "p")})
    wanted = Keys(np.array([7, 2**62]), pa.array([b"a", b"b"], pa.binary()))
    assert states.look_up(AT, wanted).column("n").to_pylist() == [{"n": 41}, None]
    assert listed.count("p") == 1


def test_copies_of_runs_that_were_merged_go_in_a_minute(host: Host) -> None:
    copies, [run] = cache.StateCache(host.copy.parent), host.runs
    for age_s, is_left in ((30, True), (90, False)):
        os.utime(host.copy, (time.time() - age_s,) * 2)
        copies.sweep(SPACE, [])
        assert (copies.missing(run) == []) == is_left
        copies = cache.StateCache(host.home / "host" / "p")


def test_where_there_is_no_room_nothing_is_read_for_a_copy(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "no space left on device")

    monkeypatch.setattr(cache.Draft, "_opened", full)
    copies, [run] = cache.StateCache(tmp_path / "copies" / "p"), host.runs
    block = pa.RecordBatch.from_pylist([{"key_hash": 7, "key": b"a"}], FORM.schema)
    blocks = iter([block] * 3)
    copies.keep(run, blocks, FORM.schema)
    assert len([*blocks]) == 2
