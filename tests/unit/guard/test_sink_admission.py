"""Sinks that wait for room."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from keyrange.errors import InvalidError, KeyrangeError
from keyrange.volumes import admit


def options(path: Path) -> dict[str, str]:
    return {
        "kafka.admin.bootstrap.servers": "h:1",
        "throttle.factor.source": "file",
        "throttle.factor.file": str(path),
        "storage.check.interval": "PT0.1S",
    }


def test_a_write_waits_for_room(tmp_path: Path) -> None:
    path = tmp_path / "factor"
    path.write_text("0")
    given = options(path)
    factor = admit(given, timeout_ms=0)
    assert (factor.value, factor.why) == (0.0, f"{path} says 0")
    assert admit(given, timeout_ms=300).value == 0.0
    threading.Timer(0.3, path.write_text, ["0.5"]).start()
    assert admit(given).value == 0.5
    assert admit(given, timeout_ms=0).value == 0.5


def test_one_thread_watches_for_all_writes(tmp_path: Path) -> None:
    path = tmp_path / "factor"
    path.write_text("1")
    before = set(threading.enumerate())
    for _ in range(20):
        assert admit(options(path)).value == 1.0
    assert len(set(threading.enumerate()) - before) == 1


def test_values_need_not_be_texts(tmp_path: Path) -> None:
    """As with `option` of Spark's readers."""
    path = tmp_path / "factor"
    path.write_text("1")
    given: dict[str, Any] = options(path) | {"guard.admission": True, "guard.lease.ms": 60_000}
    assert admit(given | {"throttle.factor.file": path}).value == 1.0


def test_what_is_wrong_is_said_at_the_first_call(tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(KeyrangeError, match="THROTTLE_FACTOR_UNREADABLE"):
            admit(options(tmp_path / "missing"))
    with pytest.raises(InvalidError, match=r"min\.available"):
        admit({"kafka.admin.bootstrap.servers": "h:1"})
    (tmp_path / "missing").write_text("1")
    assert admit(options(tmp_path / "missing")).value == 1.0
