"""A broker's process: when it has started."""

from __future__ import annotations

from pathlib import Path

import pytest

from keyrange.embedded.process import JavaProcess
from keyrange.errors import KeyrangeError


def test_what_another_server_answers_at_the_port_is_no_start(tmp_path: Path) -> None:
    """Two brokers that begin at once may have chosen one port: the second one ends."""
    process = JavaProcess("broker 1", tmp_path / "server.log")
    said = "echo 'ERROR Socket server failed to bind: Address already in use'"

    def answers_for_it() -> bool:
        while process.running:
            pass
        return True

    with pytest.raises(KeyrangeError, match=r"BROKER_NOT_STARTED.*Address already in use"):
        process.run(["sh", "-c", said], answers_for_it, 5)
    assert not process.running
