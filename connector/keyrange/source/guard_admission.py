"""What the volume guard lets a query take in: with factor 0.0 nothing new.

For queries that write back to the cluster they read. A query that is held back stays alive and says
why; it goes on taking in what Kafka's retention is about to delete, since to wait for room must not
lose records.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any, Final

from keyrange.errors import KeyrangeError
from keyrange.guard.clock import monotonic_ms
from keyrange.guard.model.throttle_factor import Factor
from keyrange.guard.volume_watch import Watch, leave_watch, take_watch
from keyrange.kafka.cluster import Cluster
from keyrange.kafka.cluster_view import ClusterView
from keyrange.kafka.model.retention_deadline import Retention, must_reach, young_since_ms
from keyrange.kafka.record_sizes import RecordSizes
from keyrange.kafka.retention import retentions
from keyrange.model.offsets import READ_UNCOMMITTED, OffsetRange, Positions, TopicPartition, pending
from keyrange.options import SourceOptions
from keyrange.source.trigger_limits import SizesOf
from keyrange.text import formats

_log = logging.getLogger(__name__)

# How old may be what is known of retention while a query is held back.
_YOUNG_AGE_MS: Final = 5_000
_TOPICS_AGE_MS: Final = 60_000
# How often it is said that a query is held back still.
_SAY_AGAIN_MS: Final = 3_600_000
# How many offsets before the end of a log its newest records are sampled.
_NEWEST: Final = 1_000


class Admission:
    """The guard of one query; `begin` before anything is asked of it."""

    def __init__(self, options: SourceOptions, cluster: Cluster) -> None:
        self._options = options.volumes
        self._limited = (
            options.max_offsets_per_trigger is not None or options.max_bytes_per_trigger is not None
        )
        self._cluster = cluster
        self._watch: Watch | None = None
        # Whether nothing may be read but what retention makes necessary, which is due then.
        self.holds = False
        self._held_ms = self._say_again_ms = 0
        self._held: frozenset[TopicPartition] = frozenset()
        self._retentions: Mapping[str, Retention] = {}
        self._retentions_until_ms = 0
        self._topics: set[str] = set()
        self._young: dict[TopicPartition, int] = {}
        self._young_until_ms = 0
        self._unknown = ""
        self._newest_sizes = RecordSizes(cluster)

    def begin(self) -> None:
        """Look at the volumes for the first time in this run.

        Raises what that fails with, such as an address where nobody answers. A cluster that refuses
        to tell, or takes too long to, is no failure here: the fallback holds until it has told.
        """
        if self._watch is not None:
            return
        self._watch = take_watch(self._options)
        try:
            factor = self._watch.first()
        except KeyrangeError:
            self.close()
            raise
        if not self._limited and 0.0 < self._options.fallback < 1.0:
            _log.warning(
                "throttle.factor.fallback is %s, and without maxOffsetsPerTrigger and "
                "maxBytesPerTrigger there is nothing that it is a part of: everything is read then",
                self._options.fallback,
            )
        _log.info("the throttle factor is %s: %s", factor.value, factor.why)

    def close(self) -> None:
        watch, self._watch = self._watch, None
        if watch is not None:
            leave_watch(self._options)

    @property
    def factor(self) -> float:
        return self._known().value

    def admitted(
        self, start: Positions, latest: Positions, view: ClusterView, sizes_of: SizesOf
    ) -> dict[TopicPartition, int]:
        """How far each partition may be read: to `latest`, or while the factor is 0.0 only as far
        as retention makes it necessary."""
        factor = self._known()
        if factor.value > 0.0:
            if self.holds:
                self.holds = False
                self._held = frozenset()
                _log.warning("the query takes in new records again: %s", factor.why)
            return dict(latest)
        if not self.holds:
            self.holds = True
            self._held_ms = monotonic_ms()
            self._say_again_ms = self._held_ms + _SAY_AGAIN_MS
            _log.warning("the query takes in nothing new: %s", factor.why)
        elif monotonic_ms() >= self._say_again_ms:
            # No batch tells of it: nothing else does, where a volume never recovers.
            self._say_again_ms = monotonic_ms() + _SAY_AGAIN_MS
            held = formats.span(monotonic_ms() - self._held_ms)
            _log.warning("the query has taken in nothing new for %s: %s", held, factor.why)
        waiting = pending(start, latest)
        ends = dict(latest)
        if waiting:
            needed = self._needed(start, {p: latest[p] for p in waiting}, view, sizes_of)
            ends |= needed
        self._held = frozenset(p for p in waiting if ends[p] < latest[p])
        return ends

    def metrics(self) -> dict[str, Any]:
        """The factor and why it is so, for the progress of the query. The counts are of the guard's
        life, and begin anew with a run."""
        assert self._watch is not None
        figures = self._watch.figures
        factor = figures.factor
        return {
            "throttleFactor": factor.value,
            "why": factor.why,
            "forMs": monotonic_ms() - factor.since_ms,
            "fallback": factor.is_fallback,
            "violated": len(factor.violated),
            "activeBrokers": figures.active_brokers,
            "activeLogDirs": figures.active_log_dirs,
            "limitViolated": figures.limit_violated,
            "fallbackApplied": figures.fallback_applied,
            "timeToFullMs": -1 if factor.time_to_full_ms is None else factor.time_to_full_ms,
            "partitionsHeld": len(self._held) if self.holds else 0,
        }

    def _known(self) -> Factor:
        assert self._watch is not None
        return self._watch.factor

    def _needed(
        self, start: Positions, latest: Positions, view: ClusterView, sizes_of: SizesOf
    ) -> dict[TopicPartition, int]:
        """Where a batch has to end for retention's sake."""
        now_ms = monotonic_ms()
        topics = {partition.topic for partition in latest}
        if now_ms >= self._retentions_until_ms or not topics <= self._topics:
            self._ask_retentions(topics)
            self._newest_sizes.forget()
            self._topics = topics
            self._retentions_until_ms = now_ms + _TOPICS_AGE_MS
        timed = [
            p for p in latest if (kept := self._retentions.get(p.topic)) and kept.ms is not None
        ]
        if now_ms >= self._young_until_ms or not self._young.keys() >= set(timed):
            self._young = self._ask_young(timed, view)
            age_ms = min(_YOUNG_AGE_MS, self._options.interval_ms)
            self._young_until_ms = now_ms + age_ms
        sized = {
            p: span
            for p, span in pending(start, latest).items()
            if (kept := self._retentions.get(p.topic)) and kept.bytes is not None
        }
        sizes = dict(sizes_of(sized)) if sized else {}
        # Where it is held the query sees the same old records again, and newer ones may be larger.
        newest = {
            p: OffsetRange(max(span.from_offset, span.until_offset - _NEWEST), span.until_offset)
            for p, span in sized.items()
        }
        for partition, size in self._newest_sizes.of(view, newest).items():
            sizes[partition] = max(size, sizes[partition])
        return must_reach(start, latest, self._retentions, self._young, sizes)

    def _ask_retentions(self, topics: set[str]) -> None:
        timeout_ms = self._cluster.settings.request_timeout_ms
        self._retentions, unknown = retentions(self._cluster, topics, timeout_ms)
        if unknown and unknown != self._unknown:
            _log.warning(
                "records of topics whose retention is not known are not held back, they could be "
                "deleted meanwhile; reading it needs DESCRIBE_CONFIGS on the topics: %s",
                unknown,
            )
        self._unknown = unknown

    def _ask_young(
        self, partitions: list[TopicPartition], view: ClusterView
    ) -> dict[TopicPartition, int]:
        """The first record of each partition that retention leaves alone for now."""
        now_ms = int(time.time() * 1000)
        interval_ms = self._options.interval_ms
        wanted: dict[TopicPartition, int] = {}
        for partition in partitions:
            retention_ms = self._retentions[partition.topic].ms
            assert retention_ms is not None
            wanted[partition] = max(young_since_ms(retention_ms, now_ms, interval_ms), 0)
        if not wanted:
            return {}
        found = self._cluster.list_offsets(view, wanted, READ_UNCOMMITTED)
        return {partition: at for partition, (at, _) in found.items()}
