"""A partition's offsets as one line of text: what is committed, done above it, a pending record, to
come.

    ████████▒▒▒○▒▒▒▒▒▒○○▒▒▒▒▒▒▒▒░░░░····
    41,200                      50,000  61,000

The part between the committed offset and the position is drawn to scale; what lies before and
behind it only stands for more of the same.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from keyrange.individual_commits.model.partition_progress import PartitionState

WIDTH: Final = 76
_HEAD: Final = 6
_TAIL_MAX: Final = 12


@dataclass(frozen=True, slots=True)
class Marks:
    """One character for each kind of offsets."""

    committed: str
    done: str
    pending: str
    dense: str
    some: str
    waiting: str

    @property
    def legend(self) -> str:
        return (
            f"{self.committed} committed  {self.done} done above  {self.pending} pending  "
            f"{self.dense} 10%+  {self.some} done by some keys  {self.waiting} to come"
        )


BLOCKS: Final = Marks("█", "▒", "○", "●", "░", "·")
ASCII: Final = Marks("#", "=", "o", "O", "-", ".")


def marks_for(encoding: str | None) -> Marks:
    """What an output can show."""
    return BLOCKS if (encoding or "").lower().replace("-", "").startswith("utf") else ASCII


def draw(state: PartitionState, log_end: int, marks: Marks, width: int = WIDTH) -> list[str]:
    """The line, and the offsets below it. `log_end` -1 stands for one that is not known."""
    begin, position = state.committed, state.position
    head = _HEAD if begin else 0
    scaled = position - begin
    tail = 0
    if log_end > position:
        # To scale where there is room for it, and otherwise as long as there is.
        share = (log_end - position) * (width - head) // (log_end - begin)
        tail = min(max(share, 1), _TAIL_MAX)
    cells = min(width - head - tail, scaled)
    if not scaled:
        head = width - tail if begin else 0
    line = marks.committed * head + _scaled(state, cells, marks) + marks.waiting * tail
    labels = [(head - 1 if head and not scaled else head, f"{begin:,}")]
    if scaled:
        labels.append((head + cells, f"{position:,}"))
    if tail:
        labels.append((head + cells + tail, f"{log_end:,}"))
    return [line, _below(labels, width)]


def _scaled(state: PartitionState, cells: int, marks: Marks) -> str:
    """The offsets between committed and position."""
    if not cells:
        return ""
    begin, span = state.committed, state.position - state.committed
    pending = [record.offset for record in state.pending]
    scanned = [piece.scanned for piece in state.pieces]
    least, most = min(scanned), max(scanned)
    line = []
    for cell in range(cells):
        from_offset = begin + span * cell // cells
        until_offset = begin + span * (cell + 1) // cells
        found = bisect_left(pending, until_offset) - bisect_left(pending, from_offset)
        if found:
            dense = found * 10 >= until_offset - from_offset
            line.append(marks.dense if dense else marks.pending)
        elif from_offset >= most:
            line.append(marks.waiting)
        elif until_offset > least:
            line.append(marks.some)
        else:
            line.append(marks.done)
    return "".join(line)


def _below(labels: Sequence[tuple[int, str]], width: int) -> str:
    """Texts at their columns: the first begins there, the others end there, or farther left where
    the next one needs the room; never over one another."""
    (column, first), *others = labels
    ends: list[int] = []
    room = width
    for end, label in reversed(others):
        ends.insert(0, min(end, room))
        room = ends[0] - len(label) - 2
    text = " " * max(min(column, room - len(first)), 0) + first
    for end, (_, label) in zip(ends, others, strict=True):
        text = text.ljust(max(end - len(label), len(text) + 2)) + label
    return text
