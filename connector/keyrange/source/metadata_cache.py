"""What the planning process knows of topics and leaders: asked for anew where it is old."""

from __future__ import annotations

import time
from typing import Final

from keyrange.kafka.cluster import Cluster
from keyrange.kafka.cluster_view import ClusterView
from keyrange.kafka.subscribed_topics import describe
from keyrange.model.offsets import Positions, TopicPartition
from keyrange.options import SourceOptions

# A question to the cluster may take this part of one core's time while nothing comes.
IDLE_SHARE: Final = 0.03
_AGE_S: Final = 1.0
# A partition with a position that a broker does not tell of is asked for so long, before it counts
# as absent.
PATIENCE_S: Final = 3.0
_PAUSE_S: Final = 0.2


class Metadata:
    """The view of the cluster that a query plans by, of its subscription alone."""

    def __init__(self, options: SourceOptions, cluster: Cluster, patience_s: float) -> None:
        self._options = options
        self._cluster = cluster
        self._patience_s = patience_s
        self._view: ClusterView | None = None
        self._until = 0.0
        self._told: frozenset[TopicPartition] = frozenset()
        # All that ever was there.
        self._seen: set[TopicPartition] = set()
        # What was waited for in vain.
        self._missing: set[TopicPartition] = set()

    def forget(self) -> bool:
        """The next look asks the cluster; returns whether something was known."""
        known, self._view = self._view is not None, None
        return known

    def view(self, known: Positions) -> ClusterView:
        """The cluster as it is, or was a moment ago. A missing partition that had a position was
        deleted: it is left out here, and reported as the loss that it is; any other is a wrong
        name."""
        # A look for other partitions, as for where a query starts, did not wait for these.
        waited = known.keys() - self._told <= self._missing
        if self._view is not None and time.monotonic() < self._until and waited:
            return self._view
        cpu_at = time.process_time()
        self._seen.update(known)
        view = self._described(known)
        self._told = frozenset(view.partitions())
        self._seen |= self._told
        cost_s = time.process_time() - cpu_at
        age_s = max(_AGE_S, cost_s / IDLE_SHARE)
        self._until = time.monotonic() + min(age_s, self._options.client.metadata_max_age_ms / 1000)
        self._view = view
        return view

    def _described(self, known: Positions) -> ClusterView:
        """The cluster; where it tells nothing of a partition in `known`, what it tells a little
        later: a broker that has just started may know less than it did before."""
        until = time.monotonic() + self._patience_s
        while True:
            view = describe(self._cluster, self._options.subscription, self._seen)
            missing = known.keys() - set(view.partitions())
            if missing <= self._missing or time.monotonic() >= until:
                self._missing = missing
                return view
            time.sleep(_PAUSE_S)
