"""Processes that work beside each other without Spark, and how long they take together.

Each says `ready`, waits for a line, works, and says how many rows it has written.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack


def seconds_to_write(commands: Iterable[Sequence[str]], rows: int) -> float:
    """How long it takes from when all of them are ready to when the last one is done. `commands`
    are a module and its arguments each. Raises RuntimeError unless they write `rows` together."""
    with ExitStack() as stack:
        running = [
            stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-m", *command],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            for command in commands
        ]
        answers = [_answer(process) for process in running]
        started = time.perf_counter()
        for process in running:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        answers = [_answer(process) for process in running]
        taken = time.perf_counter() - started
    if sum(map(int, answers)) != rows:
        raise RuntimeError(f"{answers} of {rows} rows were written")
    return taken


def wait_for_the_others() -> None:
    """What such a process calls before it begins."""
    print("ready", flush=True)
    sys.stdin.readline()


def _answer(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    answer = process.stdout.readline().strip()
    if not answer:
        raise RuntimeError(f"{process.args} ended with {process.wait()}")
    return answer
