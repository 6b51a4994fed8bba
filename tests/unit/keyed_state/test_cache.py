"""Copies of state: which process reads all bytes of one to check them, and which need not."""

from __future__ import annotations

import os
import shutil
import time
import zlib
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
from keyrange.model.key_ranges import SPACE
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
