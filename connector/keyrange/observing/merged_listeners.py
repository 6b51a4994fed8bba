"""The figures of several listeners as those of one, where they go to one place.

A cell of a notebook that is run again brings a second listener of the same queries: each figure is
told once all the same, by the listener that came last.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any
from weakref import WeakKeyDictionary

from keyrange.observing.model.query_metrics import Sample

Samples = Callable[[], Iterable[Sample]]


class Merged:
    """What all say, each figure once. It may be asked from any thread."""

    def __init__(self) -> None:
        self._all: list[Samples] = []

    def add(self, samples: Samples) -> None:
        self._all = [*self._all, samples]

    def __call__(self) -> list[Sample]:
        found: dict[Any, Sample] = {}
        for samples in self._all:
            found |= {(each.metric, each.labels): each for each in samples()}
        return list(found.values())


class MergedFigures:
    """What goes to which registry or provider."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: WeakKeyDictionary[Any, Merged] = WeakKeyDictionary()

    def add(self, registry: Any, samples: Samples, begin: Callable[[Samples], None]) -> None:
        """Take in another one; `begin` is called with all of them where it is the first there."""
        with self._lock:
            merged = self._known.get(registry)
            if merged is not None:
                merged.add(samples)
                return
            merged = Merged()
            merged.add(samples)
            begin(merged)
            self._known[registry] = merged
