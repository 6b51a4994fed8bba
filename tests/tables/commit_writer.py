"""Processes that write commits until they are killed, for the tests that kill them.

`python -m tables.commit_writer PATH` forks a writer for each line of its input, which names a step:
a writer so has imported all already. It prints `writer` and its process, and the number of each
commit once it is acknowledged. At the step it kills itself, after some commits; "random" goes on
until somebody else does. `ended` and how it ended is the last that is printed of it.
"""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
import uuid
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from threading import Thread
from typing import Any

import deltalake

from keyrange.individual_commits.model.commit import BASE_EVERY, Commit
from keyrange.individual_commits.table import commit_table
from keyrange.individual_commits.table.commit_table import DeltaCommitTable
from keyrange.storage import delta_log, delta_store, table_store, upkeep
from tables.commit_contract import SOURCE, batch, fence

STEPS = (
    # Of a table that is not there yet, and so the first.
    "in creation",
    "before data file",
    "after data file",
    "after commit",
    "in compaction",
    "after compaction",
    "after checkpoint",
    "in vacuum",
)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_when(happened: Callable[[], bool]) -> None:
    """From a thread: the work goes on in Rust and holds no lock of Python's."""

    def watch() -> None:
        while not happened():
            time.sleep(0.0001)
        die()

    Thread(target=watch, daemon=True).start()


def data_files(path: Path) -> set[str]:
    return {each for each in os.listdir(path) if each.endswith(".parquet")}


def around(
    owner: Any, name: str, before: Callable[[], None] | None, after: Callable[[], None] | None
) -> None:
    """Let something happen around calls of a function."""
    real = getattr(owner, name)

    def call(*arguments: Any, **named: Any) -> Any:
        if before:
            before()
        result = real(*arguments, **named)
        if after:
            after()
        return result

    setattr(owner, name, call)


def arrange(path: Path, step: str) -> None:
    """Let the process die at a step, from then on."""

    def at_the_next_file() -> None:
        known = data_files(path)
        die_when(lambda: bool(data_files(path) - known))

    def at_a_removal() -> None:
        known = data_files(path)
        die_when(lambda: bool(known - data_files(path)))

    match step:
        case "before data file":
            around(delta_store.DeltaStore, "_put", die, None)
        case "after data file":
            around(delta_log.DeltaLog, "append", die, None)
        case "after commit":
            around(delta_log.DeltaLog, "append", None, die)
        case "in compaction":
            around(delta_store.DeltaStore, "_compact", at_the_next_file, None)
        case "after compaction":
            around(delta_store.DeltaStore, "_compact", None, die)
        case "after checkpoint":
            around(deltalake.DeltaTable, "create_checkpoint", None, die)
        case "in vacuum":
            around(deltalake.DeltaTable, "vacuum", at_a_removal, None)
        case "in creation":
            around(deltalake.DeltaTable, "create", None, die)


class Hasty(table_store.Layout):
    """Nothing that a compaction replaced is kept, so that vacuum has something to do: not beside
    a writer whose file no commit names yet."""

    __slots__ = ()

    def properties(self) -> dict[str, str]:
        kept = {"delta.deletedFileRetentionDuration": "interval 0 seconds"}
        return super().properties() | kept


def expected(commit: Commit) -> Commit:
    """The commit of a number, a run and a batch."""
    if commit.batch_id < 0:
        return fence(commit.seq, commit.run_id)
    whole = commit.seq % BASE_EVERY == 0
    return batch(commit.seq, commit.batch_id, commit.run_id, whole=whole)


def main(path: Path, step: str) -> None:
    layout = commit_table.LAYOUT
    if step == "random":
        # Whoever goes on so long compacts beside what it writes.
        upkeep._GOES_ON_FROM = 8
    else:
        layout = Hasty(*(getattr(layout, each.name) for each in fields(layout)))
    table = DeltaCommitTable(delta_store.DeltaStore(str(path), layout, {}), SOURCE)
    delta_store._COMPACT_EVERY = 6
    delta_store._VACUUM_EVERY_S = 0.0
    if step == "in creation":
        arrange(path, step)
    run_id = str(uuid.uuid4())
    table.append(fence(table.known().seq + 1, run_id))
    print(table.known().seq, run_id, -1, flush=True)
    for number in range(1000):
        if number == 7:
            arrange(path, step)
        known = table.known()
        seq = known.seq + 1
        commit = batch(seq, known.batch_id + 1, run_id, whole=seq % BASE_EVERY == 0)
        table.append(commit)
        print(commit.seq, run_id, commit.batch_id, flush=True)
        table.maintain()


def fork(path: Path, step: str) -> int:
    writer = os.fork()
    if writer:
        return writer
    try:
        print("writer", os.getpid(), flush=True)
        main(path, step)
    except BaseException:
        traceback.print_exc()
    # Nobody killed it.
    os._exit(1)


if __name__ == "__main__":
    for line in sys.stdin:
        _, status = os.waitpid(fork(Path(sys.argv[1]), line.strip()), 0)
        print("ended", os.waitstatus_to_exitcode(status), flush=True)
