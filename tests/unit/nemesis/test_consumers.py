"""The nemesis's consumers: who ended by itself is not who was asked to stop."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from nemesis.consumers import Consumers


def test_an_end_before_the_stop_is_one_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "consumer-0-1.log").write_text("keyrange: [BROKER_UNREACHABLE] no broker answered")
    ended = subprocess.Popen([sys.executable, "-c", "raise SystemExit(1)"])
    ended.wait()
    world: Any = SimpleNamespace(logs=tmp_path, now=9.0, say=lambda text: None)
    consumers = Consumers(world, [])
    consumers._began_s["consumer-0"] = 0.0
    consumers.running["consumer-0"] = ended

    assert consumers.stop() == 0

    assert [end.why for end in consumers.ends] == ["BROKER_UNREACHABLE"]
