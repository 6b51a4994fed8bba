"""The cleanup: a small process that outlives a test run just long enough to clean up after it.

Rule of this file: only the standard library, for the process runs it as a script. It reads lines
from a pipe whose other end only its parent holds; when the parent ends, however it ends, the pipe
does too, and the process kills what it watches and removes the directory. A process, not
PR_SET_PDEATHSIG: that signal comes when the starting *thread* ends, and Linux alone has it.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path


class OrphanCleanup:
    """Kills the watched processes and removes a directory when this process dies."""

    def __init__(self, directory: Path | None) -> None:
        """`directory` is removed at the end of this process; None keeps all files."""
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, str(directory or "")],
            stdin=subprocess.PIPE,
            text=True,
            # Ctrl-C goes to a whole session: the cleanup has to survive it.
            start_new_session=True,
        )

    def watch(self, pid: int) -> None:
        self._send(f"watch {pid}")

    def forget(self, pid: int) -> None:
        """To be called before the pid is reaped, or soon after: the system uses it again."""
        self._send(f"forget {pid}")

    def close(self) -> None:
        """End the cleanup process; it kills what is still watched and removes the directory."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=60)

    def _send(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()


def _open(pid: int) -> int | None:
    """A handle that stays with the process when its pid is used again, where there are such."""
    if sys.platform != "linux":
        return None
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None


def _kill(pid: int, handle: int | None) -> None:
    try:
        if sys.platform == "linux" and handle is not None:
            signal.pidfd_send_signal(handle, signal.SIGKILL)
        else:
            os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def main(directory: str) -> None:
    """Read orders until the pipe ends, then clean up."""
    watched: dict[int, int | None] = {}
    for line in sys.stdin:
        order, _, pid = line.strip().partition(" ")
        if order == "watch":
            watched[int(pid)] = _open(int(pid))
        elif order == "forget":
            handle = watched.pop(int(pid), None)
            if handle is not None:
                os.close(handle)
    for number, handle in watched.items():
        _kill(number, handle)
    if directory:
        # Twice: a dying broker may still have written a file during the first pass.
        shutil.rmtree(directory, ignore_errors=True)
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1])
