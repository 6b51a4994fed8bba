"""What keeps a table quick to open and to read, beside what is written to it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

# Threads that do it.
UPKEEP: Final = "keyrange-upkeep"
# Whoever has looked so often goes on while a table is tidied up: it may take seconds. A run that
# has just begun may be over with this batch, and does it before that.
_GOES_ON_FROM: Final = 20


class Upkeep:
    """That of one table: once at a time. A process waits for it at its end."""

    def __init__(self) -> None:
        self._looks = 0
        self._thread: threading.Thread | None = None

    def look(self) -> None:
        """Called with each version that is written."""
        self._looks += 1

    def do(self, work: Callable[[], None]) -> bool:
        """Unless it is done already; whether it was done at once: what a handle would still read
        may be gone then. `work` has handles of its own, and tells what fails."""
        if self._looks < _GOES_ON_FROM:
            work()
            return True
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=work, name=UPKEEP)
            self._thread.start()
        return False
