"""What the last batches of this process came to, for whoever tells of them.

Spark reports a batch by what was known when it was planned. What became of it is known where it is
committed, which in classic sessions is the process in which listeners run; with Spark Connect it is
another one, and nothing is found here.
"""

from __future__ import annotations

import threading
from typing import Final

from keyrange.individual_commits.model.batch_results import BatchResult

# Listeners are told of a batch moments after it.
_KEPT_MAX: Final = 1_000

_lock = threading.Lock()
_results: dict[tuple[str, int], BatchResult] = {}


def keep(query_id: str, batch_id: int, result: BatchResult) -> None:
    with _lock:
        _results[query_id, batch_id] = result
        while len(_results) > _KEPT_MAX:
            del _results[next(iter(_results))]


def result_of(query_id: str, batch_id: int) -> BatchResult | None:
    """None where the batch was not committed by this process, or long ago."""
    with _lock:
        return _results.get((query_id, batch_id))
