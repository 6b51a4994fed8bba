"""What keeps a table quick to open and to read, beside what is written to it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from keyrange.storage.failure_text import text_of
from keyrange.storage.table_store import Conflict

_log: Final = logging.getLogger(__name__)

# Threads that do it.
UPKEEP: Final = "keyrange-upkeep"
# Whoever has looked so often goes on while a table is tidied up: it may take seconds. A run that
# has just begun may be over with this batch, and does it before that.
_GOES_ON_FROM: Final = 20


class Upkeep:
    """That of one table: once at a time. A process waits for it at its end."""

    def __init__(self, uri: str, storage: Mapping[str, str]) -> None:
        """`storage` are settings of the object store."""
        self._uri = uri
        self._storage = storage
        self._looks = 0
        self._thread: threading.Thread | None = None

    def look(self) -> None:
        """Called with each version that is written."""
        self._looks += 1

    def do(self, work: Callable[[], None]) -> bool:
        """Unless it is done already; whether it was done at once: what a handle would still read
        may be gone then. `work` has handles of its own, and raises nothing (see `attempt`)."""
        if self._looks < _GOES_ON_FROM:
            work()
            return True
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=work, name=UPKEEP)
            self._thread.start()
        return False

    @contextmanager
    def attempt(self, forget: Callable[[], None]) -> Iterator[None]:
        """What fails is told and no more, behind `forget`: what was to be kept is kept, and the
        next turn tries again."""
        try:
            yield
        except Exception as failure:
            forget()
            # Somebody else was faster; or the process ends, where nothing more is begun.
            if not isinstance(failure, Conflict) and threading.main_thread().is_alive():
                text = text_of(failure, self._storage)
                _log.warning("%s could not be tidied up: %s", self._uri, text)
