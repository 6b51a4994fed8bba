"""The options of the volume guard, and their parsers."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from keyrange.model.volumes import Limit, Policy, VolumeName
from keyrange.options.kafka_properties import ClientSettings
from keyrange.options.option import INT32_MAX, INT64_MAX, option, rows_of, text_option
from keyrange.options.value_parsers import (
    boolean,
    int_between,
    iso_duration_ms,
    local_path,
    ms_between,
    not_empty,
    part_of_one,
    size_between,
)

_ENTRY_POINT: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*", re.ASCII)
_PRINCIPAL: Final = "User:"
CLUSTER_VOLUMES: Final = "cluster-volumes"
STATIC: Final = "static"
FILE: Final = "file"
TOPIC: Final = "topic"
BASE_RATE: Final = 2**30


def _source(value: str) -> str:
    if not _ENTRY_POINT.fullmatch(value.strip()):
        raise ValueError("must be the name of an entry point")
    return value.strip()


def _principals(value: str) -> frozenset[str]:
    """The names behind `User:`; a distinguished name has commas, so semicolons part them."""
    names = [each.strip() for each in value.split(";") if each.strip()]
    if not names or not all(each.removeprefix(_PRINCIPAL) != each != _PRINCIPAL for each in names):
        raise ValueError("must hold principals as User:NAME, with ';' between them")
    return frozenset(each.removeprefix(_PRINCIPAL) for each in names)


def _limit(of_which: str, parse: Callable[[str], Any]) -> Callable[[str], Limit]:
    """A limit by one of `Limit`'s two amounts, and behind semicolons those of volumes, as
    `BROKER:LOG_DIR=LIMIT`."""

    def parse_all(value: str) -> Limit:
        others, *named = value.split(";")
        return limit(others, others=tuple(map(parse_named, named)))

    def limit(amount: str, **more: Any) -> Limit:
        return Limit(**{of_which: parse(amount)}, **more)

    def parse_named(entry: str) -> Limit:
        found = _NAMED.fullmatch(entry.strip())
        if found is None:
            raise ValueError(
                "must be a limit, and behind each ';' BROKER:LOG_DIR=LIMIT, with * for all "
                f"brokers, not '{entry.strip()[:80]}'"
            )
        broker, log_dir, amount = found.groups()
        return limit(amount, name=VolumeName(None if broker == "*" else int(broker), log_dir))

    return parse_all


_NAMED: Final = re.compile(r"(\*|[0-9]{1,10})\s*:\s*(.*[^\s])\s*=\s*([^=]*)", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeOptions:
    """The guard. `policy` None stands for no limit, which sources but cluster-volumes do without.

    `excluded` are names of users, without `User:`. `static_factor`, `factor_file`, `factor_topic`,
    `base_rate` and `quota_file` are for the sources of these names. Rates are bytes a second,
    durations in ms.
    """

    policy: Policy | None = None
    client: ClientSettings | None = None
    min_available_bytes: Limit | None = option(
        "min.available.bytes",
        _limit("min_available_bytes", size_between(0, INT64_MAX, "10g")),
        "The throttle factor is 0.0 while any volume of the cluster has no more than this "
        "available. The guard needs this or min.available.ratio, and not both. Limits of single "
        "volumes follow, each after a semicolon: the first one that matches counts; BROKER may be "
        "*, and LOG_DIR may hold * and ?.",
        values="bytes, such as 10g, or 10g;BROKER:LOG_DIR=50g",
        part=True,
    )
    min_available_ratio: Limit | None = option(
        "min.available.ratio",
        _limit("min_available_ratio", part_of_one),
        "The same as a part of each volume. 0.01 is one hundredth.",
        values="0.0 to 1.0, or 0.1;BROKER:LOG_DIR=0.05",
        part=True,
    )
    fallback: float = option(
        "throttle.factor.fallback",
        part_of_one,
        "The throttle factor if no check has succeeded for throttle.factor.validity.duration, or "
        "none yet.",
        default="1.0",
    )
    validity_ms: int = option(
        "throttle.factor.validity.duration",
        iso_duration_ms,
        "How long the last factor holds while checks fail, and how long the guard remembers the "
        "volumes of a broker that is gone. At least storage.check.interval.",
        default="PT5M",
    )
    interval_ms: int = option(
        "storage.check.interval",
        iso_duration_ms,
        "How often the guard checks the volumes. PT0S: never, and it holds nothing back.",
        default="PT1M",
    )
    factor_source: str = option(
        "throttle.factor.source",
        _source,
        "The source of the throttle factor. cluster-volumes: the log dirs of all brokers. static: "
        "throttle.factor. file: throttle.factor.file. topic: throttle.factor.topic. Others are "
        "entry points of the group keyrange.throttle_factor_sources.",
        values="cluster-volumes, static, file, topic, or a name",
        default=CLUSTER_VOLUMES,
    )
    static_factor: float = option(
        "throttle.factor",
        part_of_one,
        "The factor of throttle.factor.source=static.",
        unset=1.0,
    )
    factor_file: str = text_option(
        "throttle.factor.file",
        local_path,
        "A file that holds the factor, for throttle.factor.source=file. It is read at every check.",
    )
    factor_topic: str = text_option(
        "throttle.factor.topic",
        not_empty,
        "A topic of the cluster of kafka.admin.*, for throttle.factor.source=topic. The value of "
        "the last record of its first partition is the factor, as text. Without a newer record "
        "for throttle.factor.validity.duration the fallback holds.",
        values="a topic",
    )
    quota_source: str = option(
        "quota.source",
        _source,
        "Where the guard takes the byte rate from that limits clients without a "
        "producer_byte_rate of their own. It always takes quotas that the cluster has from the "
        "cluster. static: quota.producer.byte.rate. file: quota.file. Others are entry points "
        "of the group keyrange.quota_sources.",
        values="static, file, or a name",
        default=STATIC,
    )
    base_rate: int = option(
        "quota.producer.byte.rate",
        size_between(1, 2**53, "64m"),
        "Bytes a second and broker that no client exceeds, whatever its quota: throttling begins "
        "there. Too low, and the first step is a long one. Default: 1g, from which it takes three "
        "minutes to the floor.",
        unset=BASE_RATE,
    )
    quota_file: str = text_option(
        "quota.file",
        local_path,
        "A file that holds this rate, for quota.source=file.",
    )
    admission: bool = option(
        "guard.admission",
        boolean,
        "Whether the query takes in nothing new while the throttle factor is 0.0. For jobs that "
        "write to the cluster that they read: a reader that stops frees no disk.",
        default="false",
    )
    enforce: bool = option(
        "guard.enforce",
        boolean,
        "Whether `keyrange volumes guard` slows the cluster's producers by client quotas. Needs "
        "guard.reaper; see guard.dry.run.",
        default="false",
    )
    dry_run: bool = option(
        "guard.dry.run",
        boolean,
        "With guard.enforce: the guard changes no quota, and reports the changes that it would "
        "make.",
        default="true",
    )
    reaper: str = text_option(
        "guard.reaper",
        not_empty,
        "The name of the job that runs `keyrange volumes reap` when the guard is dead, such as "
        "cronjob/reap: Kafka's quotas have no end of their own.",
        values="words",
    )
    excluded: frozenset[str] = option(
        "guard.exclude",
        _principals,
        "Principals whose quotas the guard does not change. Each needs a high producer_byte_rate "
        "of its own in the cluster, because the quota for clients without one would limit it too. "
        "Until each has one, the guard throttles no client.",
        values="User:NAME;User:NAME",
        unset=frozenset[str](),
    )
    mute_ms: int = option(
        "guard.max.mute.ms",
        ms_between(22_000, INT32_MAX),
        "The longest time for which a throttled client may be muted. It sets the floor, together "
        "with guard.connections and guard.request.max.bytes.",
        default="60000",
    )
    connections: int = option(
        "guard.connections",
        int_between(1, 100_000, "a number"),
        "Connections of producers that share one quota on one broker, at the most: the producers "
        "with one client id, or one user.",
        default="8",
    )
    request_bytes: int = option(
        "guard.request.max.bytes",
        size_between(1, INT32_MAX, "64m"),
        "The producers' max.request.size.",
        default="1m",
    )
    lease_ms: int = option(
        "guard.lease.ms",
        ms_between(22_000, 3_600_000),
        "If a guard does not renew its lease for so long, a reaper takes it for dead and releases "
        "the clients that it throttled. The same for guards and reapers.",
        default="60000",
    )

    @property
    def is_on(self) -> bool:
        """Whether anything is checked at all."""
        return (self.admission or self.enforce) and self.interval_ms > 0


VOLUME_ROWS: Final = rows_of(VolumeOptions)
