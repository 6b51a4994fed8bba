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


class MergedFigures:
    """What goes to which registry or provider. It may be asked from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: WeakKeyDictionary[Any, list[Samples]] = WeakKeyDictionary()

    def add(self, registry: Any, samples: Samples, begin: Callable[[Samples], None]) -> None:
        """Take in another one; `begin` is called with all of them where it is the first there."""
        with self._lock:
            known = self._known.get(registry, [])
            known.append(samples)
            if len(known) == 1:
                begin(lambda: _each_once(known))
                self._known[registry] = known


def _each_once(told: Iterable[Samples]) -> list[Sample]:
    """What all say, each figure once."""
    found = {(each.metric, each.labels): each for samples in told for each in samples()}
    return list(found.values())
