"""Locks of the kernel that are waited for until a deadline.

`flock` itself waits for as long as the holder lives, and one that was stopped (SIGSTOP, a frozen
container, a debugger) lives. Locks end with the process that holds them, however it ends.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

# How long to wait for what is held for some system calls at most.
SHORT_S: Final = 2.0
# A lock is looked at again after a sixteenth of the time that it was waited for: who gets it loses
# no more than that by looking in place of waiting, and who waits for long looks seldom.
_LOOK_PART: Final = 1 / 16
_LOOK_LEAST_S: Final = 0.0002
_LOOK_MOST_S: Final = 0.05


@contextmanager
def opened(path: Path | str, flags: int, directory: int | None = None) -> Iterator[int]:
    """A descriptor of a file or directory that is no link, for as long as the block runs; a file
    that is made is this user's alone."""
    flags |= os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600, dir_fd=directory)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def lock_within(file: int, mode: int, wait_s: float) -> bool:
    """Lock an open file, `mode` LOCK_SH or LOCK_EX; False where others held it for so long."""
    began = time.monotonic()
    while True:
        try:
            fcntl.flock(file, mode | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            pass
        waited_s = time.monotonic() - began
        if waited_s >= wait_s:
            return False
        look_s = min(max(waited_s * _LOOK_PART, _LOOK_LEAST_S), _LOOK_MOST_S)
        time.sleep(min(look_s, wait_s - waited_s))


def take_lock(path: Path) -> int | None:
    """A descriptor that holds the lock of a file, which is made where there is none, for as long as
    it is open; None where another one holds it."""
    file = os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        if lock_within(file, fcntl.LOCK_EX, 0):
            return file
    except OSError:
        os.close(file)
        raise
    os.close(file)
    return None


def lock_soon(file: int, mode: int, what: str) -> None:
    """Lock what nobody holds for long; raises TimeoutError, an OSError, where somebody does."""
    if not lock_within(file, mode, SHORT_S):
        raise TimeoutError(errno.ETIMEDOUT, f"a process that was stopped holds the lock of {what}")
