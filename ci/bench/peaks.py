"""The most memory that Python workers had while something ran."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from bench import spark as sparks


class Peaks:
    """The highest VmHWM of all Python workers, in MB (1,000,000 bytes), for each time that
    something was watched: pages that they share with other processes count whole."""

    def __init__(self) -> None:
        self.found: list[float] = []

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Workers that end before the block does are not seen; Spark keeps idle ones for longer."""
        for worker in sparks.python_workers():
            with suppress(OSError):
                # What it had before, for other sides, is forgotten.
                Path(f"/proc/{worker.pid}/clear_refs").write_text("5")
        yield
        peaks = [_peak_mb(worker.pid) for worker in sparks.python_workers()]
        if not any(peaks):
            raise RuntimeError("no Python worker was seen")
        self.found.append(max(peaks))


def _peak_mb(pid: int) -> float:
    """0 for a process that has ended."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024 / 1e6
    return 0.0
