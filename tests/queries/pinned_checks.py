"""What tests of pinned queries do to them and ask of them alike."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import psutil

from queries.pinned_cluster import PinnedCluster, PinnedRun


def restart(cluster: PinnedCluster, run: PinnedRun, victim: psutil.Process) -> None:
    """kill -9 of an executor; returns when the one that Spark starts in its place is a member, and
    batches have gone on."""
    before = {each.pid for each in cluster.executors()}
    cluster.kill_executor(victim)

    def came() -> bool:
        new = [status for pid, status in run.members().items() if pid not in before]
        return any(status.state == "STABLE" for status in new)

    run.wait(came)
    run.more_batches()


def restart_oldest(cluster: PinnedCluster, run: PinnedRun) -> None:
    """The same of the executor that was not restarted for the longest, of two."""
    restart(cluster, run, cluster.executors()[0])
    cluster.has_executors(2)


def check_counts(rows: Sequence[dict[str, Any]]) -> None:
    """Of a counting job's table: each key is counted from one on, in its order."""
    by_key: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for row in rows:
        by_key[row["key"]].append((row["offset"], row["n"]))
    for key, found in by_key.items():
        assert [n for _, n in sorted(found)] == [*range(1, len(found) + 1)], key
