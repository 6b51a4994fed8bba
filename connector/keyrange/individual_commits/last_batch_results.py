"""What the last batches of this process came to, for whoever tells of them.

Spark reports a batch by what was known when it was planned. What became of it is known where it is
committed, which in classic sessions is the process in which listeners run; with Spark Connect it is
another one, and nothing is found here.
"""

from __future__ import annotations

import threading
from typing import Final

from keyrange.individual_commits.model.batch_results import BatchResult
from keyrange.storage.model.merged_rows import Merged

# Listeners are told of a batch moments after it.
_KEPT_MAX: Final = 1_000

_lock = threading.Lock()
_results: dict[tuple[str, int], BatchResult] = {}
_merged: dict[tuple[str, int], Merged] = {}


def keep(query_id: str, batch_id: int, result: BatchResult) -> None:
    with _lock:
        _results[query_id, batch_id] = result
        while len(_results) > _KEPT_MAX:
            del _results[next(iter(_results))]


def keep_merged(query_id: str, batch_id: int, merged: Merged) -> None:
    """What a batch has changed in a table with keys, beside what is known of it so far."""
    with _lock:
        at = query_id, batch_id
        _merged[at] = _merged.get(at, Merged()) + merged
        while len(_merged) > _KEPT_MAX:
            del _merged[next(iter(_merged))]


def merged_of(query_id: str, batch_id: int) -> Merged | None:
    """None where this process has merged no rows of the batch, or long ago."""
    with _lock:
        return _merged.get((query_id, batch_id))


def result_of(query_id: str, batch_id: int) -> BatchResult | None:
    """None where the batch was not committed by this process, or long ago."""
    with _lock:
        return _results.get((query_id, batch_id))
