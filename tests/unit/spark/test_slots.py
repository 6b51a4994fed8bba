"""Directories of slots: they stay with their ranges, and only with those."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from keyrange.core.key_ranges import HASH_MAX, KeyRange
from keyrange.core.offsets import TopicPartition
from keyrange.errors import KeyrangeError
from keyrange.spark import slots
from keyrange.spark.slots import Place, Slot, note_slot, noted_epoch, slot, slots_directory

HALF = HASH_MAX // 2
LOWER: dict[str, Any] = {"t": {"0": [[0, HALF]]}}
UPPER: dict[str, Any] = {"t": {"0": [[HALF + 1, HASH_MAX]], "3": [[0, HASH_MAX]]}}


@pytest.fixture
def executor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "executor"
    place.mkdir()
    monkeypatch.setattr(slots, "executor_directory", lambda: place)
    return place


def placed(tmp_path: Path, executor: Path, **given: str) -> Place:
    values = {"query": "", "group": "g", "name": "g-0", **given}
    return Place(**values, base=tmp_path / "slots", executor=executor)


def noted(
    tmp_path: Path, executor: Path, epoch: int, ranges: dict[str, Any], run: str = "run"
) -> Slot:
    note_slot(placed(tmp_path, executor), run, epoch, ranges)
    return slot("g")


def test_a_slot_knows_its_ranges(tmp_path: Path, executor: Path) -> None:
    found = noted(tmp_path, executor, 2, UPPER)

    assert (found.name, found.epoch, found.previous) == ("g-0", 2, None)
    assert found.key_ranges == {
        TopicPartition("t", 0): (KeyRange(HALF + 1, HASH_MAX + 1),),
        TopicPartition("t", 3): (KeyRange(0, HASH_MAX + 1),),
    }
    assert found.directory.is_dir()
    assert found.directory.stat().st_mode & 0o777 == 0o700


def test_state_outlives_the_executor_with_the_same_ranges(tmp_path: Path, executor: Path) -> None:
    first = noted(tmp_path, executor, 1, LOWER)
    (first.directory / "cache").write_text("warm")
    [note] = executor.glob("slot-*.json")
    note.unlink()

    again = noted(tmp_path, executor, 4, LOWER)

    assert again.epoch == 4
    assert (again.directory / "cache").read_text() == "warm"


def test_other_ranges_get_a_directory_of_their_own(tmp_path: Path, executor: Path) -> None:
    first = noted(tmp_path, executor, 1, LOWER)
    (first.directory / "cache").write_text("of the lower half")

    moved = noted(tmp_path, executor, 2, UPPER)

    assert not any(moved.directory.iterdir())
    assert moved.previous == first.directory
    assert (moved.previous / "cache").exists()

    back = noted(tmp_path, executor, 3, LOWER)

    # What it had two assignments ago may miss what others did with its keys since.
    assert not any(back.directory.iterdir())
    assert back.previous == moved.directory
    assert not first.directory.exists()


def test_a_late_task_of_an_earlier_epoch_changes_nothing(tmp_path: Path, executor: Path) -> None:
    now = noted(tmp_path, executor, 5, UPPER)

    assert noted(tmp_path, executor, 4, LOWER) == now
    assert noted_epoch(placed(tmp_path, executor), "run") == 5
    assert noted_epoch(placed(tmp_path, executor, name="g-1"), "run") == 0
    assert noted_epoch(placed(tmp_path, executor, query="another"), "run") == 0


def test_an_epoch_is_one_of_its_run(tmp_path: Path, executor: Path) -> None:
    """A table that was lost begins anew, and so do its epochs: with the same numbers for others."""
    first = noted(tmp_path, executor, 1, LOWER)
    before = noted(tmp_path, executor, 2, UPPER)
    assert noted_epoch(placed(tmp_path, executor), "another") == 0

    again = noted(tmp_path, executor, 1, LOWER, run="another")

    assert (again.epoch, again.previous) == (1, before.directory)
    assert again.directory not in (first.directory, before.directory)
    assert again.key_ranges == first.key_ranges


def test_slots_of_two_groups_are_two(tmp_path: Path, executor: Path) -> None:
    one = noted(tmp_path, executor, 1, LOWER)
    assert slot() == one
    note_slot(placed(tmp_path, executor, group="other"), "run", 1, UPPER)

    assert slot("g") == one
    assert slot("other").directory != one.directory
    with pytest.raises(KeyrangeError, match=r"NO_SLOT.*2 pinned sources"):
        slot()


def test_a_query_has_its_own_slots(
    tmp_path: Path, executor: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted(tmp_path, executor, 1, LOWER)
    monkeypatch.setattr(slots, "query_of_task", lambda: "another query")

    with pytest.raises(KeyrangeError, match="NO_SLOT"):
        slot()
    note_slot(placed(tmp_path, executor, query="another query", name="g-1"), "run", 1, UPPER)
    assert slot().name == "g-1"


def test_outside_of_a_task_there_is_no_slot(executor: Path) -> None:
    with pytest.raises(KeyrangeError, match="NO_SLOT"):
        slot()


def test_where_slots_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/var/state")

    assert slots_directory("/mnt/kept") == Path("/mnt/kept")
    assert slots_directory("") == Path("/var/state/keyrange/slots")
