"""The most memory that Python workers had while something ran."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from bench import spark as sparks

# A size of a process in the kernel's words, and how often it is looked at: the highest resident set
# is kept by the kernel, as long as the worker is there, and of what is no mapped file nothing is.
_LOOKED_AT_S: Final = {"VmHWM": 5.0, "RssAnon": 0.1}


class Peaks:
    """The highest resident set of all Python workers, in MB (1,000,000 bytes), for each time that
    something was watched: pages that they share with other processes count whole. With `is_own`
    what of it is of no mapped file."""

    def __init__(self, is_own: bool = False) -> None:
        self.found: list[float] = []
        self._name = "RssAnon" if is_own else "VmHWM"

    @contextmanager
    def watched(self) -> Iterator[None]:
        for worker in sparks.python_workers():
            with suppress(OSError):
                # What it had before, for other sides, is forgotten.
                Path(f"/proc/{worker.pid}/clear_refs").write_text("5")
        ended, seen = threading.Event(), [0.0]

        def look() -> None:
            while not ended.wait(_LOOKED_AT_S[self._name]):
                seen.extend(self._sizes_mb())

        looking = threading.Thread(target=look)
        looking.start()
        try:
            yield
        finally:
            ended.set()
            looking.join()
        seen.extend(self._sizes_mb())
        if not any(seen):
            raise RuntimeError("no Python worker was seen")
        self.found.append(max(seen))

    def _sizes_mb(self) -> list[float]:
        return [_status_mb(each.pid, self._name) for each in sparks.python_workers()]


def _status_mb(pid: int, name: str) -> float:
    """0 for a process that has ended."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024 / 1e6
    return 0.0
