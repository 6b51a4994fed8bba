"""What the options of the volume guard come to, checked against one another."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from keyrange.errors import invalid_options
from keyrange.guard.model.enforcement import Settings
from keyrange.guard.model.policy import Limit, Policy
from keyrange.guard.model.ramp import WINDOW_MS, floor_rate
from keyrange.options.kafka_properties import ClientSettings, parse_client_options
from keyrange.options.parsing import Violations
from keyrange.options.volume_rows import CLUSTER_VOLUMES, FILE, STATIC, VOLUME_ROWS

ADMIN_PREFIX: Final = "kafka.admin."
BASE_RATE: Final = 2**30

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeOptions:
    """The guard. `policy` None stands for no limit, which sources but cluster-volumes do without.

    `excluded` are names of users, without `User:`. `static_factor` and `factor_file`, `base_rate`
    and `quota_file` are for the sources of these names. `admin` are the properties behind
    kafka.admin. as they were given, for a process that reads them anew. Rates are bytes a second,
    durations in ms.
    """

    admission: bool = False
    enforce: bool = False
    dry_run: bool = True
    reaper: str = ""
    excluded: frozenset[str] = frozenset()
    policy: Policy | None = None
    fallback: float = 1.0
    validity_ms: int = 300_000
    # 0: never
    interval_ms: int = 60_000
    factor_source: str = CLUSTER_VOLUMES
    static_factor: float = 1.0
    factor_file: str = ""
    quota_source: str = STATIC
    base_rate: int = BASE_RATE
    quota_file: str = ""
    mute_ms: int = 60_000
    connections: int = 8
    request_bytes: int = 2**20
    lease_ms: int = 60_000
    admin: Mapping[str, str] = field(default_factory=dict, repr=False)
    client: ClientSettings | None = None

    @property
    def is_on(self) -> bool:
        """Whether anything is checked at all."""
        return (self.admission or self.enforce) and self.interval_ms > 0

    def enforcement(self, base_rate: int, stamp: int, chance: int) -> Settings:
        """What a guard goes by; `base_rate` is what the quota source says, and the floor at least.

        `stamp` are seconds since 1970, and `chance` is a random number.
        """
        floor = floor_rate(self.mute_ms, WINDOW_MS, self.connections, self.request_bytes)
        return Settings(
            floor=floor,
            base=max(base_rate, floor),
            stamp=stamp,
            chance=chance,
            excluded=self.excluded,
            lease_ms=self.lease_ms,
            release_ms=self.interval_ms,
            dry_run=self.dry_run or not self.enforce,
        )


_BY_NAME: Final = {row.name.lower(): row for row in VOLUME_ROWS}


def parse_volume_options(options: Mapping[str, str], needs_limit: bool = True) -> VolumeOptions:
    """The guard's options alone, for its commands and for `admit`; kafka.admin.* are required.

    Raises one InvalidError that names everything wrong. `needs_limit` False is for who looks only.
    """
    violations = Violations()
    values: dict[str, Any] = {}
    admin: dict[str, str] = {}
    for name, value in options.items():
        folded = name.lower()
        if folded.startswith(ADMIN_PREFIX):
            admin[folded.removeprefix(ADMIN_PREFIX)] = value
        elif folded in _BY_NAME:
            row = _BY_NAME[folded]
            with violations.collecting(row.name):
                values[row.field] = row.parse(value)
        else:
            near = difflib.get_close_matches(folded, _BY_NAME, 1)
            hint = f"; did you mean '{_BY_NAME[near[0]].name}'?" if near else ""
            violations.add(name, f"is not one of the volume guard's{hint}")
    for row in VOLUME_ROWS:
        if row.field not in values:
            values[row.field] = row.parse(row.default) if row.default is not None else None
    choose_volumes(values, admin, violations, by_itself=True, needs_limit=needs_limit)
    if violations.messages:
        raise invalid_options(violations.messages)
    chosen: VolumeOptions = values["volumes"]
    return chosen


def choose_volumes(
    values: dict[str, Any],
    admin: Mapping[str, str],
    violations: Violations,
    by_itself: bool = False,
    needs_limit: bool = True,
) -> None:
    """Check what was parsed against one another, and put it together as `volumes`.

    `admin` are the properties behind kafka.admin. as texts. `by_itself`: the guard is what is asked
    for, and not only if an option says so.
    """
    acts = values["guard_admission"] or values["guard_enforce"]
    is_on = (by_itself or acts) and values["check_interval_ms"] > 0
    reads_volumes = values["factor_source"] == CLUSTER_VOLUMES
    _check_times(values, violations)
    _check_sources(values, violations)
    if values["guard_enforce"]:
        _check_enforcement(values, violations)
    _warn_of_ends(values)
    client = None
    if admin or by_itself or (is_on and (reads_volumes or values["guard_enforce"])):
        client = parse_client_options(admin, violations, ADMIN_PREFIX)
    values["volumes"] = VolumeOptions(
        admission=values["guard_admission"],
        enforce=values["guard_enforce"],
        dry_run=values["guard_dry_run"],
        reaper=values["guard_reaper"] or "",
        excluded=values["guard_exclude"] or frozenset(),
        policy=_policy(values, is_on and needs_limit and reads_volumes, violations),
        fallback=values["factor_fallback"],
        validity_ms=values["factor_validity_ms"],
        interval_ms=values["check_interval_ms"],
        factor_source=values["factor_source"],
        static_factor=1.0 if values["static_factor"] is None else values["static_factor"],
        factor_file=values["factor_file"] or "",
        quota_source=values["quota_source"],
        base_rate=values["base_rate"] or BASE_RATE,
        quota_file=values["quota_file"] or "",
        mute_ms=values["guard_mute_ms"],
        connections=values["guard_connections"],
        request_bytes=values["guard_request_bytes"],
        lease_ms=values["guard_lease_ms"],
        admin=dict(admin),
        client=client,
    )


def _check_times(values: Mapping[str, Any], violations: Violations) -> None:
    interval_ms, validity_ms = values["check_interval_ms"], values["factor_validity_ms"]
    if validity_ms < interval_ms:
        violations.add(
            "throttle.factor.validity.duration",
            f"must be at least storage.check.interval: {validity_ms} and {interval_ms} ms",
        )


def _check_sources(values: Mapping[str, Any], violations: Violations) -> None:
    """A setting of a source belongs to it, and the source needs it."""
    for option, source, setting, name, needed in _SETTINGS:
        is_chosen, is_given = values[source] == name, values[setting] is not None
        if is_given and not is_chosen:
            violations.add(option, f"is for {_OPTIONS[source]}={name} only")
        elif is_chosen and needed and not is_given:
            violations.add(_OPTIONS[source], f"{name} needs {option}")


_OPTIONS: Final = {
    "factor_source": "throttle.factor.source",
    "quota_source": "quota.source",
}
_SETTINGS: Final = (
    ("throttle.factor", "factor_source", "static_factor", STATIC, True),
    ("throttle.factor.file", "factor_source", "factor_file", FILE, True),
    ("quota.producer.byte.rate", "quota_source", "base_rate", STATIC, False),
    ("quota.file", "quota_source", "quota_file", FILE, True),
)


def _check_enforcement(values: Mapping[str, Any], violations: Violations) -> None:
    if not values["guard_reaper"]:
        violations.add(
            "guard.enforce",
            "needs guard.reaper, which says who releases the producers when the guard is dead",
        )
    # A part of "as much as they like" is nothing that a quota could say.
    has_base = values["quota_source"] != STATIC or values["base_rate"] is not None
    for option, setting in (
        ("throttle.factor.fallback", "factor_fallback"),
        ("throttle.factor", "static_factor"),
    ):
        factor = values[setting]
        if factor is not None and 0 < factor < 1 and not has_base:
            violations.add(
                option,
                f"{factor} needs quota.producer.byte.rate with guard.enforce: of what it is a part",
            )


def _warn_of_ends(values: Mapping[str, Any]) -> None:
    """The ends of the ranges are allowed, and seldom what was meant."""
    if values["min_available_ratio"] == 1:
        _log.warning("option 'min.available.ratio' is 1.0: the throttle factor is always 0.0")
    for option in ("bytes", "ratio"):
        if values[f"min_available_{option}"] == 0:
            _log.warning(
                "option 'min.available.%s' is 0: nothing is held back before a volume is full",
                option,
            )


def _policy(values: Mapping[str, Any], is_needed: bool, violations: Violations) -> Policy | None:
    size, ratio = values["min_available_bytes"], values["min_available_ratio"]
    if size is not None and ratio is not None:
        violations.add("min.available.ratio", "must not be given with min.available.bytes")
        return None
    if size is None and ratio is None:
        # One that is given and wrong was named before.
        wrong = violations.unparsed & {"min.available.bytes", "min.available.ratio"}
        if is_needed and not wrong:
            violations.messages.append(
                "one of the options min.available.bytes and min.available.ratio must be specified"
            )
        return None
    return Policy(
        Limit(min_available_bytes=size, min_available_ratio=ratio),
        values["factor_fallback"],
        values["factor_validity_ms"],
        values["check_interval_ms"],
    )
