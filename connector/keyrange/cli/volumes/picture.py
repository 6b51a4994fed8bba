"""How full a volume is, as a line of text.

Rule of this file: plain values in, text out.
"""

from __future__ import annotations

from typing import Final

WIDTH: Final = 30
USED, FREE, LIMIT = "#", ".", "|"


def bar(used: float, limit: float | None, width: int = WIDTH) -> str:
    """`used` and `limit` are parts of the volume, 0 to 1; a line stands where the limit is."""
    filled = min(max(round(used * width), 0), width)
    # Nearly full is not full, and nearly empty not empty.
    if used < 1:
        filled = min(filled, width - 1)
    if used > 0:
        filled = max(filled, 1)
    cells = [USED] * filled + [FREE] * (width - filled)
    if limit is not None:
        cells.insert(min(max(round(limit * width), 0), width), LIMIT)
    return "".join(cells)
