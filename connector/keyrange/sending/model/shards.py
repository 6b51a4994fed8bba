"""Which sender sends which files of a batch.

A file has all rows of its task, in their order, and a task has all records of its keys, so the rows
of a key are in one file. Who sends a batch again shares the files as whoever sent it first, because
it begins with the same numbers.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Final

# A sender more costs a task and a transaction.
_BYTES_PER_SENDER: Final = 8 << 20


def shared_out(sizes: Sequence[int], senders: int) -> list[list[int]]:
    """For each sender that takes part the places of its files, by their bytes: the largest first to
    whoever has least."""
    needed = -(-sum(sizes) // _BYTES_PER_SENDER)
    count = max(1, min(senders, len(sizes), needed))
    shares: list[list[int]] = [[] for _ in range(count)]
    loads = [(0, number) for number in range(count)]
    for at in sorted(range(len(sizes)), key=lambda at: (-sizes[at], at)):
        load, number = heapq.heappop(loads)
        shares[number].append(at)
        heapq.heappush(loads, (load + sizes[at], number))
    return [sorted(share) for share in shares if share]
