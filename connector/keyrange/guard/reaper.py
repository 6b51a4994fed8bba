"""Undoing what a dead guard has left, from anywhere."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from keyrange.guard.clock import monotonic_ms
from keyrange.guard.enforcer import LATE, QuotaStore, Say, described
from keyrange.guard.model.lease import LeaseWatch, is_held, read_lease
from keyrange.guard.model.quota_ramp import WINDOW_MS
from keyrange.guard.model.quota_requests import LATENESS, Alter, reap, release

# How often a reaper looks, as a part of the lease.
_LOOKS: Final = 10
# Brokers know of a change when they have read it in the metadata log.
_LOOKS_AFTER: Final = 25
_PAUSE_S: Final = 0.2
# A guard that lives finds out at one look that its lease is gone, and takes it again at the next.
_RETAKEN_S: Final = WINDOW_MS / 1000 + 1


def reap_dead(
    store: QuotaStore,
    lease_ms: int,
    say: Say,
    now_ms: Callable[[], int] = monotonic_ms,
    sleep: Callable[[float], None] = time.sleep,
) -> bool:
    """Release what is held by a guard that does not move its lease; False where one lives.

    Takes no time where nothing is held, else as long as a lease lasts. Raises KeyrangeError.
    """
    watch = LeaseWatch()
    while True:
        at_ms = now_ms()
        quotas = store.read()
        if not is_held(quotas):
            say("nothing is held", {})
            return True
        lease = read_lease(quotas)
        if watch.since_ms is not None and lease != watch.lease:
            say("a guard lives", {} if lease is None else {"epoch": lease.epoch})
            return False
        watch, commands = reap(watch, quotas, at_ms, lease_ms)
        if commands and _send(store, commands, say, now_ms):
            return _is_free(store, sleep)
        sleep(lease_ms / _LOOKS / 1000)


def release_all(
    store: QuotaStore,
    lease_ms: int,
    say: Say,
    now_ms: Callable[[], int] = monotonic_ms,
    sleep: Callable[[float], None] = time.sleep,
) -> bool:
    """Release whatever is held, by whomever; returns whether nothing is held any more.

    A guard that lives throttles again: it is looked for as long as that may take, and said.
    """
    at_ms = now_ms()
    commands = release(store.read(), at_ms + lease_ms // LATENESS)
    if not commands:
        say("nothing is held", {})
        return True
    if not _send(store, commands, say, now_ms) or not _is_free(store, sleep):
        return False
    for _ in range(int(_RETAKEN_S / _PAUSE_S)):
        sleep(_PAUSE_S)
        lease = read_lease(store.read())
        if lease is not None:
            say("a guard lives", {"epoch": lease.epoch})
            return False
    return True


def _is_free(store: QuotaStore, sleep: Callable[[float], None]) -> bool:
    """Whether nothing is held any more, as soon as the brokers have heard of it."""
    for _ in range(_LOOKS_AFTER):
        if not is_held(store.read()):
            return True
        sleep(_PAUSE_S)
    return False


def _send(
    store: QuotaStore, commands: tuple[Alter, ...], say: Say, now_ms: Callable[[], int]
) -> bool:
    """Whether all were sent in time. After it, what they were made from may be over: people may
    have set quotas since, and a guard may hold them."""
    for command in commands:
        store.alter(command.alterations, validate_only=True)
        if now_ms() > command.until_ms:
            say("trouble", {"error": LATE})
            return False
        store.alter(command.alterations, validate_only=False)
        say("released", described(command))
    return True
