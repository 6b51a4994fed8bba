"""Garbage collection where many objects are made that are part of no circle."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_OBJECTS_UNTIL_COLLECTED: Final = 100_000


@contextmanager
def rare_collections() -> Iterator[None]:
    """To look for circles among rows takes a quarter of the time that work on small records takes,
    and among the splits of many partitions two fifths of that of their plan."""
    before = gc.get_threshold()
    gc.set_threshold(_OBJECTS_UNTIL_COLLECTED, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
