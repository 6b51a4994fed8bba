"""Terminals that programs write to."""

from __future__ import annotations

import os
from collections.abc import Callable


def read_all(leader: int) -> bytes:
    """What is written to a terminal until nobody holds its other side; closes this one."""
    pieces = []
    try:
        while piece := os.read(leader, 65_536):
            pieces.append(piece)
    except OSError:
        # How a terminal without a writer ends.
        pass
    finally:
        os.close(leader)
    return b"".join(pieces)


def read_until(leader: int, is_enough: Callable[[bytes], bool]) -> bytes:
    """What is written to a terminal up to where it is enough; more may be left to read."""
    pieces = b""
    while not is_enough(pieces):
        pieces += os.read(leader, 65_536)
    return pieces
