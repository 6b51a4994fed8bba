"""The most memory that Python workers had while something ran."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Literal

from bench import spark as sparks

Size = Literal["VmHWM", "RssAnon", "Pss"]
# In which file the kernel says a size of a process, and how often it is looked at: the highest
# resident set is kept by the kernel, as long as the worker is there, and of the others nothing is.
_TOLD: Final[Mapping[Size, tuple[str, float]]] = {
    "VmHWM": ("status", 5.0),
    "RssAnon": ("status", 0.1),
    "Pss": ("smaps_rollup", 0.02),
}
# Walking the process tree costs more than to look at a process.
_LOOK_FOR_WORKERS_EVERY_S: Final = 0.25


class Peaks:
    """The highest size of all Python workers, in MB (1,000,000 bytes), for each time that something
    was watched. VmHWM is the resident set, in which pages that they share with other processes
    count whole, RssAnon what of it is of no mapped file, Pss with their share of such pages."""

    def __init__(self, size: Size = "VmHWM") -> None:
        self.found: list[float] = []
        self._size: Size = size

    @contextmanager
    def watched(self) -> Iterator[None]:
        for worker in sparks.python_workers():
            with suppress(OSError):
                # What it had before, for other sides, is forgotten.
                Path(f"/proc/{worker.pid}/clear_refs").write_text("5")
        ended, seen = threading.Event(), [0.0]

        def look() -> None:
            workers, look_at_s = [], 0.0
            while not ended.wait(_TOLD[self._size][1]):
                if time.monotonic() >= look_at_s:
                    workers = sparks.python_workers()
                    look_at_s = time.monotonic() + _LOOK_FOR_WORKERS_EVERY_S
                seen.extend(_size_mb(each.pid, self._size) for each in workers)

        looking = threading.Thread(target=look)
        looking.start()
        try:
            yield
        finally:
            ended.set()
            looking.join()
        seen.extend(_size_mb(each.pid, self._size) for each in sparks.python_workers())
        if not any(seen):
            raise RuntimeError("no Python worker was seen")
        self.found.append(max(seen))


def _size_mb(pid: int, size: Size) -> float:
    """0 for a process that has ended."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/{_TOLD[size][0]}").read_text().splitlines():
            if line.startswith(f"{size}:"):
                return int(line.split()[1]) * 1024 / 1e6
    return 0.0
