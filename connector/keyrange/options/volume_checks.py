"""How the options of the volume guard go together."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from keyrange.model.volumes import Policy
from keyrange.options.kafka_properties import parse_client_options
from keyrange.options.option import GivenOptions, by_name, near_option
from keyrange.options.value_parsers import Violations
from keyrange.options.volumes import (
    CLUSTER_VOLUMES,
    FILE,
    STATIC,
    TOPIC,
    VOLUME_ROWS,
    VolumeOptions,
)

__all__ = ["ADMIN_PREFIX", "VolumeOptions", "choose_volumes", "parse_volume_options"]

ADMIN_PREFIX: Final = "kafka.admin."

_log = logging.getLogger(__name__)
_BY_NAME: Final = by_name(VOLUME_ROWS)


def parse_volume_options(options: Mapping[str, str], needs_limit: bool = True) -> VolumeOptions:
    """The guard's options alone, for its commands and for `admit`; kafka.admin.* are required.

    Raises OPTION_NOT_ALLOWED, else one InvalidError that names everything wrong. `needs_limit`
    False is for commands that only look.
    """
    violations = Violations()
    given = GivenOptions(_BY_NAME, violations)
    admin: dict[str, str] = {}
    for name, value in options.items():
        folded = name.lower()
        if folded.startswith(ADMIN_PREFIX):
            admin[folded.removeprefix(ADMIN_PREFIX)] = value
        elif not given.take(name, value):
            hint = near_option(name, _BY_NAME)
            violations.add(name, f"is not one of the volume guard's{hint}")
    chosen = choose_volumes(given, admin, violations, by_itself=True, needs_limit=needs_limit)
    violations.check()
    return chosen


def choose_volumes(
    given: GivenOptions,
    admin: Mapping[str, str],
    violations: Violations,
    by_itself: bool = False,
    needs_limit: bool = True,
) -> VolumeOptions:
    """The guard's options with what is made of several of them.

    `admin` are the properties behind kafka.admin. as texts. `by_itself`: the guard is what is asked
    for, and not only if an option says so.
    """
    chosen = given.settings(VolumeOptions)
    is_on = (by_itself or chosen.admission or chosen.enforce) and chosen.interval_ms > 0
    reads_volumes = chosen.factor_source == CLUSTER_VOLUMES
    if chosen.validity_ms < chosen.interval_ms:
        violations.add(
            "throttle.factor.validity.duration",
            "must be at least storage.check.interval: "
            f"{chosen.validity_ms} and {chosen.interval_ms} ms",
        )
    _check_sources(given, chosen, violations)
    if chosen.enforce:
        _check_enforcement(given, chosen, violations)
    _warn_of_ends(chosen)
    client = None
    asks = reads_volumes or chosen.factor_source == TOPIC or chosen.enforce
    if admin or by_itself or (is_on and asks):
        client = parse_client_options(admin, violations, ADMIN_PREFIX)
    policy = _policy(chosen, is_on and needs_limit and reads_volumes, violations)
    return replace(chosen, policy=policy, client=client)


def _check_sources(given: GivenOptions, chosen: VolumeOptions, violations: Violations) -> None:
    """A setting of a source belongs to it, and the source needs it."""
    factor, quota = "throttle.factor.source", "quota.source"
    for option, source, named, name, needed in (
        ("throttle.factor", factor, chosen.factor_source, STATIC, True),
        ("throttle.factor.file", factor, chosen.factor_source, FILE, True),
        ("throttle.factor.topic", factor, chosen.factor_source, TOPIC, True),
        ("quota.producer.byte.rate", quota, chosen.quota_source, STATIC, False),
        ("quota.file", quota, chosen.quota_source, FILE, True),
    ):
        is_chosen, is_given = named == name, given.has(option)
        if is_given and not is_chosen:
            violations.add(option, f"is for {source}={name} only")
        elif is_chosen and needed and not is_given:
            violations.add(source, f"{name} needs {option}")


def _check_enforcement(given: GivenOptions, chosen: VolumeOptions, violations: Violations) -> None:
    if not chosen.reaper:
        violations.add(
            "guard.enforce",
            "needs guard.reaper, which names the job that releases the producers when the guard "
            "is dead",
        )
    # A part of "as much as they like" is nothing that a quota could say.
    has_base = chosen.quota_source != STATIC or given.has("quota.producer.byte.rate")
    for option, factor in (
        ("throttle.factor.fallback", chosen.fallback),
        ("throttle.factor", chosen.static_factor),
    ):
        if 0 < factor < 1 and not has_base:
            violations.add(
                option,
                f"{factor} needs quota.producer.byte.rate with guard.enforce: it is a share of "
                "that rate",
            )


def _warn_of_ends(chosen: VolumeOptions) -> None:
    """The ends of the ranges are allowed, and seldom what was meant."""
    size, ratio = chosen.min_available_bytes, chosen.min_available_ratio
    sizes = [] if size is None else [each.min_available_bytes for each in (size, *size.others)]
    ratios = [] if ratio is None else [each.min_available_ratio for each in (ratio, *ratio.others)]
    if 1 in ratios:
        _log.warning("option 'min.available.ratio' is 1.0: the throttle factor is always 0.0")
    for option, amounts in (("bytes", sizes), ("ratio", ratios)):
        if 0 in amounts:
            _log.warning(
                "option 'min.available.%s' is 0: nothing is held back before a volume is full",
                option,
            )


def _policy(chosen: VolumeOptions, is_needed: bool, violations: Violations) -> Policy | None:
    size, ratio = chosen.min_available_bytes, chosen.min_available_ratio
    if size is not None and ratio is not None:
        violations.add("min.available.ratio", "must not be given with min.available.bytes")
        return None
    limit = size or ratio
    if limit is None:
        # One that is given and wrong was named before.
        wrong = violations.unparsed & {"min.available.bytes", "min.available.ratio"}
        if is_needed and not wrong:
            violations.messages.append(
                "one of the options min.available.bytes and min.available.ratio must be specified"
            )
        return None
    return Policy(limit, chosen.fallback, chosen.validity_ms, chosen.interval_ms)
