"""Processes beside the one that measures, which work until their standard input ends."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Thread


@contextmanager
def companion(
    module: str, *arguments: object, heard: Callable[[str], object] | None = None
) -> Iterator[None]:
    """Run a module with arguments; `heard` is called with each line that it prints. Raises
    RuntimeError where it ends early."""
    with subprocess.Popen(
        [sys.executable, "-m", module, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=None if heard is None else subprocess.PIPE,
        text=True,
    ) as process:

        def listen() -> None:
            for line in process.stdout or ():
                assert heard is not None
                heard(line)

        listening = Thread(target=listen)
        listening.start()
        try:
            yield
            if process.poll() is not None:
                raise RuntimeError(f"{module} ended early")
        finally:
            assert process.stdin is not None
            process.stdin.close()
            listening.join()
