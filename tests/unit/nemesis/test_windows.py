"""What jobs of the nemesis make of records, through the harness: the checker finds it good."""

from __future__ import annotations

import random
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from keyrange.testing import StateHarness
from nemesis import windows
from nemesis.facts import Facts, Timed
from nemesis.rows import Parts, calls
from nemesis.time_tables import window_of
from nemesis.values import values_of
from nemesis.window_checks import miswritten
from nemesis.work import Content

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@pytest.fixture
def failures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[bytes, datetime]]:
    """Of what somebody has asked for twice."""
    monkeypatch.setattr(windows.tempfile, "gettempdir", lambda: str(tmp_path))
    return [(b"key-%d" % n, EPOCH + timedelta(hours=n)) for n in range(60)]


def test_a_window_fails_twice_at_the_most(failures: list[tuple[bytes, datetime]]) -> None:
    counts = dict.fromkeys(failures, 0)
    for _ in range(4):
        for each in failures:
            try:
                windows.may_fail(*each)
            except ValueError:
                counts[each] += 1
    assert set(counts.values()) == {0, 1, 2}


@pytest.mark.parametrize(
    ("kind", "values"), [("session", "json"), ("timers", "raw"), ("clock", "raw")]
)
def test_windows_are_what_their_records_say(
    kind: str, values: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(windows, "may_fail", lambda *_: None)
    chance = random.Random(3)
    writer = values_of(values, "run", "orders")
    called = windows.job_of(kind, "deadLetter")
    if kind != "session":
        called |= calls(Parts(timers=True, by_clock=kind == "clock"), ["rows"])
    options = {**writer.options, "valueFormat": values}
    # The harness has no table of dead letters.
    options.pop("badValues", None)
    harness = StateHarness(options=options, **called)
    # The harness keeps no rows of a batch with late records.
    times_ms = {n: windows.BEGAN_MS + n * 30_000 - chance.randrange(60_000) for n in range(300)}
    rows = []
    for first in range(0, 300, 50):
        records = [
            (
                b"key-%d" % (n % 7),
                writer.written(Content("run", n, "."), times_ms[n], 5, chance),
                EPOCH + timedelta(milliseconds=times_ms[n]),
            )
            for n in range(first, first + 50)
        ]
        rows += harness.process(records)
        # What is open by the clock is over.
        harness.time_ms = int(time.time() * 1000) + 3_000
    rows += harness.advance(EPOCH + timedelta(milliseconds=windows.END_MS))
    found = [window_of(row, 0) for row in rows if row["window_start"] is not None]
    # The harness counts offsets by itself.
    sent = {place: each.key for each in found for place in each.places}
    assert len(sent) == sum(each.count for each in found) > 200
    assert len(found) > 20
    facts = Facts("run", sent, (), timed=Timed(kind, found, times_ms))
    assert [*miswritten(facts)] == []
