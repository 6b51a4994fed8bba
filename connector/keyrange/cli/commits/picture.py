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
from typing import Final

from keyrange.individual_commits.model.partition_progress import PartitionState

WIDTH: Final = 76
_HEAD: Final = 6
_TAIL_MAX: Final = 12


# One character for each kind of offsets, in the order in which the legend explains them.
BLOCKS: Final = "█▒○●░·"
ASCII: Final = "#=oO-."
_LEGEND: Final = (
    "{} committed  {} done above  {} pending  {} 10%+  {} done by some keys  {} to come"
)


def legend(marks: str) -> str:
    return _LEGEND.format(*marks)


def marks_for(encoding: str | None) -> str:
    """What an output can show."""
    return BLOCKS if (encoding or "").lower().replace("-", "").startswith("utf") else ASCII


def draw(state: PartitionState, log_end: int, marks: str, width: int = WIDTH) -> list[str]:
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
    line = marks[0] * head + _scaled(state, cells, marks) + marks[-1] * tail
    labels = [(head - 1 if head and not scaled else head, f"{begin:,}")]
    if scaled:
        labels.append((head + cells, f"{position:,}"))
    if tail:
        labels.append((head + cells + tail, f"{log_end:,}"))
    return [line, _below(labels, width)]


def _scaled(state: PartitionState, cells: int, marks: str) -> str:
    """The offsets between committed and position."""
    if not cells:
        return ""
    _, done, few, dense, some, waiting = [*marks]
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
            line.append(dense if found * 10 >= until_offset - from_offset else few)
        elif from_offset >= most:
            line.append(waiting)
        elif until_offset > least:
            line.append(some)
        else:
            line.append(done)
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
