"""An executor that copies state beside its tasks: of key ranges that its slot gets next, or would
get if their owner were lost.

A thread of one of its Python processes asks the planning process what there is to copy. If that
process ends, the next task of the executor begins such a thread again, which finds what was copied.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from threading import Thread, get_native_id
from typing import Any, Final

from keyrange.errors import KeyrangeError
from keyrange.keyed_state.cache import StateCache, copies_of
from keyrange.keyed_state.copying import Copying
from keyrange.members.binding.caller import ask_for_copies
from keyrange.members.binding.channel import BadLine
from keyrange.members.model.copy_book import CopyOrder
from keyrange.members.model.late_binding import NO_SLOT
from keyrange.members.model.task_greeting import Address
from keyrange.members.slot_directories import made_slots_directory
from keyrange.options import SourceOptions
from keyrange.ranges.sharing.locks import take_lock
from keyrange.storage.directory import Directory

_log = logging.getLogger(__name__)

_NICE: Final = 10
# How long a thread waits that has copied everything.
_PAUSE_S: Final = 0.5
# As often it is told everything anew: what of that is there is kept from being swept, since no task
# reads the copies of a standby, and what somebody has removed is copied again.
_AGAIN_S: Final = 3_600.0
# Address of the planning process to the thread that copies for it.
_copying: Final[dict[Address, Thread]] = {}

Announce = Callable[[str, int, Mapping[str, Any]], bool]


class Heir:
    """`slot` says which slot the executor has, `announce` tells the user's listener what it gets by
    which epoch, and whether that is ready. `lock` is a file: one process of an executor copies."""

    def __init__(
        self,
        options: SourceOptions,
        address: Address,
        slot: Callable[[], str],
        announce: Announce,
        lock: Path,
    ) -> None:
        self._options, self._address = options, address
        self._slot, self._announce, self._lock = slot, announce, lock
        # What was copied, and for which slot.
        self._done: tuple[str, int] = (NO_SLOT, 0)
        self._again_at = time.monotonic() + _AGAIN_S

    def begin(self) -> None:
        """Copy in a thread, unless this process does."""
        known = _copying.get(self._address)
        if known is not None and known.is_alive():
            return
        _copying.clear()
        thread = Thread(target=self._run_behind_tasks, name="keyrange-heir", daemon=True)
        _copying[self._address] = thread
        thread.start()

    def run(self) -> None:
        """Until there is nothing to copy any more, or nobody to ask."""
        lock = take_lock(self._lock)
        if lock is None:
            return
        try:
            while self._step():
                time.sleep(_PAUSE_S)
        except (KeyrangeError, BadLine, OSError) as failure:
            _log.info("this executor copies no state for now: %s", failure)
        finally:
            os.close(lock)

    def _run_behind_tasks(self) -> None:
        with suppress(OSError):
            # Linux has priorities of threads. What is started here has it too.
            os.setpriority(os.PRIO_PROCESS, get_native_id(), _NICE)
        self.run()

    def _step(self) -> bool:
        """Copy all that is new; whether more may come. Raises as the planning process and the store
        of the state fail."""
        slot = self._slot()
        if slot == NO_SLOT:
            return False
        if time.monotonic() >= self._again_at:
            self._done, self._again_at = (NO_SLOT, 0), time.monotonic() + _AGAIN_S
        done = self._done[1] if self._done[0] == slot else 0
        while True:
            news = ask_for_copies(self._address, slot, done)
            if not news or not news["isWanted"]:
                return False
            if news["version"] == done:
                return True
            self._copy(news["sourceId"], map(CopyOrder.from_json, news["orders"]))
            if not self._announce(slot, news["epoch"], news["announced"]):
                return True
            done = news["version"]
            self._done = (slot, done)

    def _copy(self, source_id: str, orders: Any) -> None:
        commits, members = self._options.commits, self._options.members
        root = copies_of(made_slots_directory(members.slot_directory), source_id)
        directory = Directory(commits.state_directory, commits.revealed_storage())
        copying = Copying(directory, members.warmup_bytes_per_second, time.sleep)
        for order in orders:
            cache = StateCache(root / order.place)
            for run in order.runs:
                try:
                    copying.copy(cache, run)
                except KeyrangeError as failure:
                    if failure.condition.name != "STATE_GONE":
                        raise
                    # A commit since has merged it into another one.
                    _log.debug("%s", failure)
            for span in order.spans:
                cache.sweep(span, order.runs)
        _log.debug("%d bytes of state were read for copies", copying.read_bytes)
