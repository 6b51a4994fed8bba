"""The most memory that Python workers had while something ran."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from bench import spark as sparks

_LOOK_EVERY_S: Final = 0.1


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
        peaks = [_status_mb(worker.pid, "VmHWM") for worker in sparks.python_workers()]
        if not any(peaks):
            raise RuntimeError("no Python worker was seen")
        self.found.append(max(peaks))


class AnonymousPeaks:
    """The most memory of Python workers that is of no mapped file, in MB, for each time that
    something was watched. The kernel keeps no highest value of it, so it is looked at again and
    again."""

    def __init__(self) -> None:
        self.found: list[float] = []

    @contextmanager
    def watched(self) -> Iterator[None]:
        ended, seen = threading.Event(), [0.0]

        def look() -> None:
            while not ended.wait(_LOOK_EVERY_S):
                seen.extend(_status_mb(each.pid, "RssAnon") for each in sparks.python_workers())

        looking = threading.Thread(target=look)
        looking.start()
        try:
            yield
        finally:
            ended.set()
            looking.join()
        if not max(seen):
            raise RuntimeError("no Python worker was seen")
        self.found.append(max(seen))


def _status_mb(pid: int, name: str) -> float:
    """A size of a process in the kernel's words, 0 for one that has ended."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024 / 1e6
    return 0.0
