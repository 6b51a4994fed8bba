"""Looks at the volumes of a cluster, one after the other, each as a document.

Rule of this file: nothing of Spark. Heavy modules are imported when a command runs.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from keyrange.options.volumes import VolumeOptions


def looks(options: VolumeOptions, pause_ms: int) -> Iterator[dict[str, Any]]:
    """One document a check, without an end."""
    from keyrange.cli.times import now
    from keyrange.cli.volumes.document import describe
    from keyrange.guard.clock import monotonic_ms
    from keyrange.guard.model.policy import Throttle
    from keyrange.guard.model.volume_readings import View
    from keyrange.guard.sources import check_timeout_ms
    from keyrange.kafka.log_dirs import LogDirReader

    assert options.client is not None
    reader = LogDirReader(options.client)
    throttle = None if options.policy is None else Throttle(options.policy, monotonic_ms())
    view = View(options.validity_ms) if throttle is None else throttle.view
    limit = None if options.policy is None else options.policy.limit
    try:
        while True:
            reading = reader.read(check_timeout_ms(options.interval_ms))
            now_ms = monotonic_ms()
            (view if throttle is None else throttle).observe(reading, now_ms)
            factor = None if throttle is None else throttle.factor(now_ms)
            yield describe(reading, view, factor, limit, now_ms, now())
            time.sleep(pause_ms / 1000)
    finally:
        reader.close()


class VolumeLooks:
    """The next look at each call, by those of a command's options that are about volumes.

    `skipped` looks come before the first that is given: what grows shows between two.
    """

    def __init__(self, named: Mapping[str, str], pause_ms: int = 0, skipped: int = 0) -> None:
        self._named = named
        self._pause_ms = pause_ms
        self._skipped = skipped
        self._looks: Iterator[dict[str, Any]] | None = None

    def __call__(self) -> dict[str, Any]:
        """Raises what a look fails with; the call after it begins anew."""
        current, self._looks = self._looks or self._begin(), None
        document = next(current)
        self._looks = current
        return document

    def _begin(self) -> Iterator[dict[str, Any]]:
        from keyrange.options.volume_rows import VOLUME_ROWS
        from keyrange.options.volumes import ADMIN_PREFIX, parse_volume_options

        known = {row.name.lower() for row in VOLUME_ROWS}
        given = {
            name: value
            for name, value in self._named.items()
            if name.lower() in known or name.lower().startswith(ADMIN_PREFIX)
        }
        begun = looks(parse_volume_options(given, needs_limit=False), self._pause_ms)
        for _ in range(self._skipped):
            next(begun)
        return begun
