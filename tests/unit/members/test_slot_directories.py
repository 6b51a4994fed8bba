"""Directories of slots: they stay with their ranges, and only with those."""

from __future__ import annotations

import json
import os
import shutil
import stat
from pathlib import Path
from typing import Any

import pytest

from keyrange.errors import KeyrangeError
from keyrange.members import slot_directories
from keyrange.members.model.task_greeting import SlotRanges
from keyrange.members.slot_directories import (
    ReadRecord,
    Slot,
    SlotLocation,
    note_slot,
    reading,
    slot,
    slots_directory,
)
from keyrange.members.slot_directories import noted as noted_slot
from keyrange.model.key_ranges import HASH_MAX, KeyRange
from keyrange.model.offsets import TopicPartition
from keyrange.ranges.sharing.shared_directory import name_of

HALF = HASH_MAX // 2
LOWER: dict[str, Any] = {"t": {"0": [[0, HALF]]}}
UPPER: dict[str, Any] = {"t": {"0": [[HALF + 1, HASH_MAX]], "3": [[0, HASH_MAX]]}}


@pytest.fixture
def executor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "executor"
    place.mkdir()
    monkeypatch.setattr(slot_directories, "executor_directory", lambda: place)
    return place


def placed(tmp_path: Path, executor: Path, **given: str) -> SlotLocation:
    values = {"query": "", "group": "g", "name": "g-0", **given}
    return SlotLocation(**values, base=tmp_path / "slots", executor=executor)


def noted(
    tmp_path: Path,
    executor: Path,
    epoch: int,
    ranges: dict[str, Any],
    run: str = "run",
    since: int | None = None,
    **given: str,
) -> Slot:
    """A slot that has its ranges since an epoch, as of another one."""
    holding = SlotRanges(run, epoch, (run, epoch if since is None else since), ranges)
    note_slot(placed(tmp_path, executor, **given), holding)
    return slot(given.get("group", "g"))


def epoch_noted(place: SlotLocation, run: str) -> int:
    found = noted_slot(place, run)
    return found[0] if found is not None else 0


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

    again = noted(tmp_path, executor, 4, LOWER, since=1)

    assert (again.epoch, again.since_epoch) == (4, 1)
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


def test_the_same_ranges_after_a_break_get_a_directory_of_their_own(
    tmp_path: Path, executor: Path
) -> None:
    """No task ran here in epoch 2, when another slot had them."""
    first = noted(tmp_path, executor, 1, LOWER)
    (first.directory / "cache").write_text("without what the other did")

    back = noted(tmp_path, executor, 3, LOWER)

    assert not any(back.directory.iterdir())
    assert back.previous == first.directory
    assert (back.epoch, back.since_epoch) == (3, 3)


def test_a_note_of_a_version_before_is_of_another_directory(tmp_path: Path, executor: Path) -> None:
    first = noted(tmp_path, executor, 1, LOWER)
    for path in (*(tmp_path / "slots").glob("*/slot.json"), *executor.glob("slot-*.json")):
        document = json.loads(path.read_bytes())
        del document["since"]
        path.write_text(json.dumps(document | {"directory": str(first.directory) + "-old"}))

    again = noted(tmp_path, executor, 2, LOWER, since=1)

    assert str(again.directory) != str(first.directory) + "-old"


def test_a_slot_says_what_it_has_read_itself(tmp_path: Path, executor: Path) -> None:
    found = noted(tmp_path, executor, 1, LOWER)
    assert found.read_batches == found.previous_read_batches == range(0)
    assert (found.batch_id, found.attempt, found.portion) == (-1, 0, "")

    record = ReadRecord(found.directory, "")
    record.begin(7, 6)
    record.finish(7, "plan", 3, 2)
    assert slot("g").read_batches == range(7, 7)
    record.finish(7, "plan", 4, 2)
    assert slot("g").read_batches == range(7, 8)
    # Of another query: another checkpoint may count the same batches.
    assert ReadRecord(found.directory, "other").read() is None

    moved = noted(tmp_path, executor, 2, UPPER)
    assert (moved.read_batches, moved.previous_read_batches) == (range(0), range(7, 8))
    with reading("foreign"):
        assert slot("g").portion == "foreign"
    assert slot("g").portion == ""


def test_who_clears_the_directory_clears_what_it_says(tmp_path: Path, executor: Path) -> None:
    found = noted(tmp_path, executor, 1, LOWER)
    record = ReadRecord(found.directory, "")
    record.begin(7, 6)
    record.finish(7, "plan", 0, 1)
    shutil.rmtree(found.directory)

    with pytest.raises(OSError, match="No such file"):
        record.finish(8, "plan", 0, 1)
    again = noted(tmp_path, executor, 2, LOWER, since=1)

    assert again.directory == found.directory
    assert again.read_batches == range(0)


@pytest.mark.parametrize("text", ["", "[", "[]", "{}", '{"version": 2}', '{"version": 1}'])
def test_a_record_that_cannot_be_read_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / ".keyrange-batches.json").write_text(text)
    record = ReadRecord(tmp_path, "")

    assert record.read() is None
    record.begin(3, 2)
    assert record.read() is not None


def test_a_late_task_of_an_earlier_epoch_changes_nothing(tmp_path: Path, executor: Path) -> None:
    now = noted(tmp_path, executor, 5, UPPER)

    assert noted(tmp_path, executor, 4, LOWER) == now
    assert epoch_noted(placed(tmp_path, executor), "run") == 5
    assert epoch_noted(placed(tmp_path, executor, name="g-1"), "run") == 0
    assert epoch_noted(placed(tmp_path, executor, query="another"), "run") == 0


def test_an_epoch_is_one_of_its_run(tmp_path: Path, executor: Path) -> None:
    """A table that was lost begins anew, and so do its epochs: with the same numbers for others."""
    first = noted(tmp_path, executor, 1, LOWER)
    before = noted(tmp_path, executor, 2, UPPER)
    assert epoch_noted(placed(tmp_path, executor), "another") == 0

    again = noted(tmp_path, executor, 1, LOWER, run="another")

    assert (again.epoch, again.previous) == (1, before.directory)
    assert again.directory not in (first.directory, before.directory)
    assert again.key_ranges == first.key_ranges


def test_slots_of_two_groups_are_two(tmp_path: Path, executor: Path) -> None:
    one = noted(tmp_path, executor, 1, LOWER)
    assert slot() == one
    noted(tmp_path, executor, 1, UPPER, group="other")

    assert slot("g") == one
    assert slot("other").directory != one.directory
    with pytest.raises(KeyrangeError, match=r"NO_SLOT.*2 pinned sources"):
        slot()


def test_queries_of_one_group_do_not_get_each_other_s_directories(
    tmp_path: Path, executor: Path
) -> None:
    """Without memberGroup all have the group "default", and on a host their slots one name."""

    def of(query: str, epoch: int, ranges: dict[str, Any]) -> dict[str, Any]:
        noted_as = {"query": query, "run": f"run of {query}"}
        place = placed(tmp_path, executor, query=query)
        holding = SlotRanges(noted_as["run"], epoch, (noted_as["run"], epoch), ranges)
        note_slot(place, holding)
        [path] = executor.glob(f"slot-{name_of(query)}-*.json")
        found: dict[str, Any] = json.loads(path.read_bytes())
        return found

    first = of("a", 1, LOWER)
    assert of("b", 1, LOWER)["previous"] is None
    of("c", 1, LOWER)
    assert Path(first["directory"]).is_dir()
    assert of("a", 2, UPPER)["previous"] == first["directory"]
    assert Path(first["directory"]).is_dir()


def test_what_a_query_has_left_goes_when_nobody_has_used_it_for_long(
    tmp_path: Path, executor: Path
) -> None:
    gone = noted(tmp_path, executor, 1, LOWER)
    kept = noted(tmp_path, executor, 1, LOWER, name="g-1").directory
    home = gone.directory.parent
    for path in (home / "slot.json", gone.directory, kept):
        os.utime(path, (1, 1))
    noted(tmp_path, executor, 1, LOWER, query="another")
    assert not home.exists()
    assert kept.is_dir()


def test_a_query_has_its_own_slots(
    tmp_path: Path, executor: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted(tmp_path, executor, 1, LOWER)
    monkeypatch.setattr(slot_directories, "query_of_task", lambda: "another query")

    with pytest.raises(KeyrangeError, match="NO_SLOT"):
        slot()
    noted(tmp_path, executor, 1, UPPER, query="another query", name="g-1")
    assert slot().name == "g-1"


def test_outside_of_a_task_there_is_no_slot(executor: Path) -> None:
    with pytest.raises(KeyrangeError, match="NO_SLOT"):
        slot()


def test_slots_have_a_private_directory_on_a_volume_that_a_group_may_write_to(
    tmp_path: Path, executor: Path
) -> None:
    """As Kubernetes mounts one with an fsGroup: again for each pod, and with all that is on it."""
    volume = tmp_path / "volume"
    volume.mkdir()
    volume.chmod(0o2775)
    place = SlotLocation("", "g", "g-0", slots_directory(str(volume)), executor)
    holding = SlotRanges("run", 1, ("run", 1), LOWER)

    note_slot(place, holding)
    first = slot("g").directory
    (first / "cache").write_text("warm")
    for path in (place.base, *place.base.rglob("*")):
        path.chmod(0o2770 if path.is_dir() else 0o660)
    note_slot(place, holding)

    assert (slot("g").directory / "cache").read_text() == "warm"
    for path in (place.base, first.parent):
        assert stat.S_IMODE(path.stat().st_mode) & 0o777 == 0o700
    assert stat.S_IMODE(volume.stat().st_mode) == 0o2775


def test_a_directory_that_all_may_enter_is_none_for_slots(tmp_path: Path, executor: Path) -> None:
    place = SlotLocation("", "g", "g-0", slots_directory(str(tmp_path)), executor)
    place.base.mkdir()
    place.base.chmod(0o777)

    with pytest.raises(PermissionError, match="not a private directory"):
        note_slot(place, SlotRanges("run", 1, ("run", 1), LOWER))


def test_where_slots_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/var/state")

    assert slots_directory("/mnt/kept") == Path(f"/mnt/kept/keyrange-{os.getuid()}")
    assert slots_directory("") == Path("/var/state/keyrange/slots")
