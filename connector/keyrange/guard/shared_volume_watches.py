"""The watches of this process: one for the same settings, however many queries and sinks ask."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from keyrange.guard.factor_plugin import ForeignFactor
from keyrange.guard.factor_sources import BUILT_IN, ThrottleFactorSource, open_factor_source
from keyrange.guard.volume_watch import Watch, Watches
from keyrange.options.volume_checks import VolumeOptions

_WATCHES: Final = Watches()


def take_watch(options: VolumeOptions) -> Watch:
    """The watch of these settings, started; `leave_watch` follows once it is not needed."""
    return _WATCHES.take(_key(options), lambda: Watch(_opened(options), options.interval_ms))


def leave_watch(options: VolumeOptions) -> None:
    """The last one to leave ends the watch."""
    _WATCHES.leave(_key(options))


def _opened(options: VolumeOptions) -> ThrottleFactorSource:
    source = open_factor_source(options)
    is_ours = options.interval_ms == 0 or options.factor_source in BUILT_IN
    return source if is_ours else ForeignFactor(source, options)


def _key(options: VolumeOptions) -> Hashable:
    """All that a watch depends on, and nothing of what is done with its factor."""
    return (
        options.client,
        options.policy,
        (options.fallback, options.validity_ms, options.interval_ms),
        (options.factor_source, options.static_factor, options.factor_file, options.factor_topic),
    )
