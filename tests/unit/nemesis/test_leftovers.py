"""What processes of a run keep, by looks at them."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from nemesis import leftovers


def test_descriptors_that_are_open_for_a_moment_are_none_that_a_process_keeps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leftovers, "everyone", lambda run: [psutil.Process()])
    monkeypatch.setattr(leftovers, "role", lambda process: "consumer")
    monkeypatch.setattr(leftovers, "_WARM_S", 0)
    usage = leftovers.Usage()
    usage.look("r", is_warm=True)
    with ExitStack() as opened:
        for n in range(90):
            opened.enter_context((tmp_path / str(n)).open("w"))
        usage.look("r", is_warm=True)
        assert not [*usage.grown(0)]
        usage.look("r", is_warm=True)
        assert [what for what, _ in usage.grown(0)] == ["descriptors"]
    usage.look("r", is_warm=True)
    assert not [*usage.grown(0)]
