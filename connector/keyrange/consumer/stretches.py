"""Records of a partition that a consumer was handed together, as arrays: a batch that is
acknowledged whole costs no loop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from keyrange.individual_commits.model.partition_progress import PendingRecord
from keyrange.model.key_ranges import KeyRange
from keyrange.model.offsets import OffsetRange
from keyrange.work.model.outcome import Cause

Longs = np.ndarray[Any, np.dtype[np.int64]]
Flags = np.ndarray[Any, np.dtype[np.bool_]]

_CAUSES = (Cause.UNMENTIONED, Cause.TIMED_OUT)


@dataclass(slots=True, eq=False)
class Stretch:
    """Records that were handed out together, by offset; `columns` are offset, key hash, deliveries
    and since when (ms). `waits`: they are not acknowledged; `news`: they were, since the last
    commit. `covers_from` is the offset behind the record that was handed out before the first of
    them."""

    columns: Longs
    waits: Flags
    news: Flags
    covers_from: int
    due_ms: int

    @property
    def offsets(self) -> Longs:
        found: Longs = self.columns[0]
        return found

    @property
    def key_hashes(self) -> Longs:
        found: Longs = self.columns[1]
        return found

    def find(self, offsets: Longs) -> Longs:
        """Where those of some offsets, which are in order, are that wait."""
        # Many batches may have a record or two left, and a batch's offsets are asked of each.
        begin, end = np.searchsorted(offsets, (self.offsets[0], self.offsets[-1] + 1))
        offsets = offsets[begin:end]
        at = np.minimum(np.searchsorted(self.offsets, offsets), len(self.offsets) - 1)
        at = at[self.offsets[at] == offsets]
        found: Longs = at[self.waits[at]]
        return found

    def within(self, spans: Sequence[KeyRange]) -> list[Stretch]:
        """The part of it that is of some key ranges."""
        keep = np.zeros(len(self.offsets), bool)
        for span in spans:
            keep |= self.of(span)
        return self.only(keep)

    def of(self, span: KeyRange) -> Flags:
        # The last hash of the space is as large as a column's numbers can be.
        found: Flags = self.key_hashes >= span.from_hash
        found &= self.key_hashes <= span.until_hash - 1
        return found

    def only(self, keep: Flags) -> list[Stretch]:
        """Some rows of it; an empty list where these are none."""
        if not keep.any():
            return []
        return [
            replace(
                self,
                columns=self.columns[:, keep],
                waits=self.waits[keep],
                news=self.news[keep],
            )
        ]

    def ranges(self) -> list[OffsetRange]:
        """What was acknowledged since the last commit, each record with what lies before it and was
        committed, or is of other keys."""
        edges = np.flatnonzero(np.diff(np.concatenate(([0], self.news.view(np.int8), [0]))))
        found = []
        for first, behind in edges.reshape(-1, 2).tolist():
            begin = int(self.offsets[first - 1]) + 1 if first else self.covers_from
            found.append(OffsetRange(begin, int(self.offsets[behind - 1]) + 1))
        return found

    def pending(self, which: Flags, worked: bool) -> list[PendingRecord]:
        """Some of them as pending records, with one delivery more where it has come to its end."""
        return [
            PendingRecord(offset, key_hash, count + worked, 0, since, _CAUSES[count + worked > 0])
            for offset, key_hash, count, since in self.columns[:, which].T.tolist()
        ]
