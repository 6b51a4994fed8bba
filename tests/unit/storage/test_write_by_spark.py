"""Settings of a session by which Delta knows whose batch a merge is of."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from keyrange.storage import write_by_spark
from keyrange.storage.write_by_spark import SparkWriter


class _Conf(dict[str, str]):
    def set(self, name: str, value: str) -> None:
        self[name] = value

    def unset(self, name: str) -> None:
        self.pop(name, None)


@pytest.mark.parametrize("is_shared", [True, False])
def test_queries_of_one_session_take_turns_with_its_settings(
    is_shared: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A merge with another query's settings would pass for the batch of that one."""
    monkeypatch.setattr(write_by_spark.tempfile, "gettempdir", lambda: str(tmp_path))
    conf = _Conf(shuffle="4")
    session: Any = SimpleNamespace(conf=conf, **({"session_id": "one"} if is_shared else {}))
    first, second = (SparkWriter(session, name) for name in "ab")
    seen: list[str] = []

    def merge() -> None:
        with second._settings({"application": "second", "shuffle": "8"}):
            seen.append(conf["application"])

    other = threading.Thread(target=merge)
    with first._settings({"application": "first"}):
        other.start()
        other.join(0.3)
        assert bool(seen) != is_shared
    other.join()
    assert seen == ["second"]
    if is_shared:
        assert conf == {"shuffle": "4"}
