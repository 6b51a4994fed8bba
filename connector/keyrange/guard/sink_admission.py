"""Holding a sink back that writes to the cluster whose volumes are watched."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import cache

from keyrange.errors import KeyrangeError
from keyrange.guard.model.throttle_factor import Factor
from keyrange.guard.volume_watch import Watch, leave_watch, take_watch
from keyrange.options.volume_checks import parse_volume_options

_log = logging.getLogger(__name__)


def admit(options: Mapping[str, str], timeout_ms: int | None = None) -> Factor:
    """Wait until there is room: until the throttle factor is above 0.0.

    Call it before a write to the cluster. `options` are those of the volume guard, named as for the
    source; `timeout_ms` 0 answers at once, None waits for as long as it takes; the first call waits
    for the first check besides, half a minute at the most. Returns the factor in force then: a
    `value` of 0.0 says that the time is over and there still is no room, `why` tells the reason. A
    query whose foreachBatch waits here cannot be stopped meanwhile, since Spark waits for that
    function: `timeout_ms` is for it. The volumes are watched by a thread of this process from the
    first call on, one for the same options.

    Raises INVALID_OPTIONS, and at the first call what its check fails with, such as
    BROKER_UNREACHABLE.
    """
    watch = _watch_of(tuple(sorted((name, _text(value)) for name, value in options.items())))
    factor = watch.factor
    if factor.value > 0.0 or timeout_ms == 0:
        return factor
    _log.warning("a write waits for room: %s", factor.why)
    factor = watch.wait(lambda now: now.value > 0.0, timeout_ms)
    if factor.value > 0.0:
        _log.warning("a write goes on: %s", factor.why)
    return factor


def _text(value: object) -> str:
    """A value as Spark's `option` takes it: not only texts."""
    return str(value).lower() if isinstance(value, bool) else str(value)


@cache
def _watch_of(options: tuple[tuple[str, str], ...]) -> Watch:
    """A watch that goes on to the end of the process."""
    parsed = parse_volume_options(dict(options))
    watch = take_watch(parsed)
    try:
        watch.first()
    except KeyrangeError:
        leave_watch(parsed)
        raise
    return watch
