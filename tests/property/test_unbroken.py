"""Any sequence of assignments, and slots whose tasks note them now and then.

A directory is the same only where a walk over all epochs in between finds the ranges unchanged.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from keyrange.members import slot_directories
from keyrange.members.model.assignment import Assignment, Since, assign, ranges_by_slot, unbroken
from keyrange.members.model.task_greeting import SlotRanges
from keyrange.members.slot_directories import Slot, SlotLocation, note_slot, slot
from keyrange.model.offsets import TopicPartition
from project.forms import by_form

NAMES = ["a", "b", "c"]


def unchanged(history: list[tuple[str, Assignment]], name: str, at: int, until: int) -> bool:
    """Whether a slot has had its ranges in every epoch from one place to another."""
    run_of_table = {run for run, _ in history[at : until + 1]}
    return len(run_of_table) == 1 and all(
        assignment.of(name) == history[at][1].of(name) for _, assignment in history[at : until + 1]
    )


@pytest.mark.parametrize("seed", range(by_form(3, 20, 40)))
def test_a_directory_stays_only_with_ranges_that_were_never_anothers(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = Random(seed)
    executor = tmp_path / "executor"
    executor.mkdir()
    monkeypatch.setattr(slot_directories, "executor_directory", lambda: executor)
    partitions = [TopicPartition("t", number) for number in range(2)]
    weights = dict.fromkeys(partitions, 1.0)
    # The table that an assignment was written to, and the assignment.
    history: list[tuple[str, Assignment]] = []
    since: dict[str, Since] = {}
    table, run = "table-0", "run-0"
    noted: dict[str, tuple[int, Slot]] = {}
    counts = {"same": 0, "other": 0}

    for step in range(30):
        before = history[-1][1] if history and history[-1][0] == table else None
        members = {name: 1.0 for name in NAMES if random.random() < 0.7} or {"a": 1.0}
        if random.random() < 0.3 and before is not None:
            members = dict.fromkeys(before.slots, 1.0)
        after = assign(weights, members, before, before.epoch + 1 if before else 1)
        since = unbroken(before, since, after, run)
        history.append((table, after))
        assert since.keys() == set(after.slots)
        for name, ranges in ranges_by_slot(after).items():
            if random.random() < 0.5:
                continue
            place = SlotLocation("", "g", name, tmp_path / "slots", executor)
            mark = since[name]
            note_slot(place, SlotRanges(run, after.epoch, (mark.run, mark.epoch), ranges))
            found = slot("g")
            check(found, noted.get(name), history, name, counts)
            noted[name] = (len(history) - 1, found)
            (found.directory / str(step)).touch()
        if random.random() < 0.1:
            run = f"run-{step + 1}"
        elif random.random() < 0.03:
            table, run, since = f"table-{step + 1}", f"run-{step + 1}", {}
    assert counts["same"]
    assert counts["other"]


def check(
    found: Slot,
    last: tuple[int, Slot] | None,
    history: list[tuple[str, Assignment]],
    name: str,
    counts: dict[str, Any],
) -> None:
    if last is None:
        assert found.previous is None
        return
    at, before = last
    if unchanged(history, name, at, len(history) - 1):
        assert found.directory == before.directory
        assert found.since_epoch == before.since_epoch
        counts["same"] += 1
    else:
        assert not any(found.directory.iterdir())
        assert found.previous == before.directory
        counts["other"] += 1
