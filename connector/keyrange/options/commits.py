"""What the options about individual commits come to, checked against one another and the others."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from keyrange.commits.model.intake import IntakeLimits
from keyrange.commits.model.log import Terms
from keyrange.commits.model.verdict import RedeliveryPolicy
from keyrange.options.commit_rows import HOLE_BYTES_MAX
from keyrange.options.option import Mode
from keyrange.options.parsing import Violations
from keyrange.options.secrets import Secret, parse_secret

STORAGE_PREFIX: Final = "committable.storage."
DEAD_LETTERS: Final = "_dead_letters"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitOptions:
    """How progress is committed; `individual` False stands for whole batches, and the rest for
    nothing then.

    `table` and `dead_letter_table` are paths or URIs of Delta tables, `verdict_directory` of a
    directory that driver and executors share. `storage` are settings of the object store, each a
    secret or a reference to one. Durations are in ms, 0 for none.
    """

    individual: bool = False
    table: str = ""
    group: str = ""
    dead_letter_table: str = ""
    dead_letter_topic: str = ""
    verdict_directory: str = ""
    writer: str = "delta-rs"
    storage: Mapping[str, Secret] = field(default_factory=dict, repr=False)
    # fail, resume or ignore
    on_fresh_start: str = "fail"
    transactional: bool = False
    keeps_order: bool = True
    unmentioned_is_done: bool = True
    record_timeout_ms: int = 0
    batch_time_budget_ms: int = 0
    # leave or drain
    available_now: str = "leave"
    available_now_timeout_ms: int = 600_000
    policy: RedeliveryPolicy = field(default_factory=RedeliveryPolicy)
    limits: IntakeLimits = field(default_factory=IntakeLimits)
    range_bytes_max: int = 1024 * 1024

    def revealed_storage(self) -> dict[str, str]:
        """The settings of the object store, secrets among them. Raises SECRET_NOT_FOUND."""
        return {name: value.reveal() for name, value in self.storage.items()}

    def terms(self, nulls_first: bool) -> Terms:
        """What the stored numbers rest on."""
        return Terms(
            null_keys="first" if nulls_first else "spread",
            isolation="transactional" if self.transactional else "immediate",
        )


def choose_commits(
    values: dict[str, Any],
    given: Collection[str],
    storage: Mapping[str, str],
    mode: Mode | None,
    violations: Violations,
) -> None:
    """Check what was parsed against one another, and put it together as `commits`.

    `given` are the fields that the user named, `storage` the settings of the object store.
    """
    individual = _is_individual(values, given, violations)
    if individual:
        _check_individual(values, mode, violations)
    secrets: dict[str, Secret] = {}
    for name, value in storage.items():
        if not name:
            violations.add("commitTable.storage.", "must name a setting of the object store")
        with violations.collecting(f"commitTable.storage.{name}"):
            secrets[name] = parse_secret(value)
    _check_places(values, violations)
    backoff_ms, backoff_max_ms = values["backoff_ms"], values["backoff_max_ms"]
    if backoff_ms > backoff_max_ms:
        violations.add(
            "redelivery.backoff",
            f"must not be longer than redelivery.backoff.max: {backoff_ms} and {backoff_max_ms} ms",
        )
    table = values["commit_table"] or ""
    holes_max = min(values["range_holes_max"], values["range_bytes_max"] // HOLE_BYTES_MAX)
    values["commits"] = CommitOptions(
        individual=individual,
        table=table,
        group=values["commit_group"] or values["client"].group_id or "default",
        dead_letter_table=values["dead_letter_table"] or beside(table, DEAD_LETTERS),
        dead_letter_topic=values["dead_letter_topic"] or "",
        verdict_directory=values["verdict_directory"] or beside(table, "_verdicts"),
        writer=values["commit_writer"],
        storage=secrets,
        on_fresh_start=values["on_fresh_start"],
        transactional=values["isolation"] == "transactional",
        keeps_order=values["key_order"] == "keep",
        unmentioned_is_done=values["unmentioned"] == "done",
        record_timeout_ms=values["record_timeout_ms"],
        batch_time_budget_ms=values["batch_time_budget_ms"],
        available_now=values["available_now"],
        available_now_timeout_ms=values["available_now_timeout_ms"],
        policy=RedeliveryPolicy(values["deliveries_max"], backoff_ms, backoff_max_ms),
        limits=IntakeLimits(holes_max, values["range_lag_max"]),
        range_bytes_max=values["range_bytes_max"],
    )


def _is_individual(
    values: Mapping[str, Any], given: Collection[str], violations: Violations
) -> bool:
    individual: bool = values["commit_mode"] == "individual"
    if "allow_individual" not in given or values["allow_individual"] is None:
        return individual
    allowed: bool = values["allow_individual"]
    if "commit_mode" in given and allowed != individual:
        violations.add(
            "allow.individual.commit",
            f"says the same as commitMode, and must not contradict it: {str(allowed).lower()} and "
            f"{values['commit_mode']}",
        )
    return allowed


def _check_individual(values: Mapping[str, Any], mode: Mode | None, violations: Violations) -> None:
    name = "commitMode"
    if mode == "batch":
        violations.add(name, "individual is not valid in batch reads: they commit nothing")
    if not values["commit_table"]:
        violations.add(name, "individual needs commitTable")
    split_by = values["split_by"]
    if split_by == "offset":
        violations.add(name, "individual needs splitBy=keyRange or partition: it keeps keys' order")
    for option, field_name in (
        ("minPartitions", "min_partitions"),
        ("maxRecordsPerPartition", "max_records_per_partition"),
    ):
        if split_by == "partition" and values[field_name] is not None:
            violations.add(
                option,
                "is not valid with commitMode=individual: pieces of a partition do not keep its "
                "keys' order; splitBy=keyRange does",
            )
    if values["filter_pushdown"]:
        violations.add("filterPushdown", "is not valid with commitMode=individual")


IS_PLACE: Final = re.compile(r"^(/|[A-Za-z][A-Za-z0-9+.-]*:/)")


def _check_places(values: Mapping[str, Any], violations: Violations) -> None:
    """Paths are used by several processes, each with a working directory of its own."""
    taken: dict[str, str] = {}
    by_name = values["commit_writer"] == "delta-spark"
    for option, field_name in _PLACES:
        place = values[field_name]
        if not place:
            continue
        if not IS_PLACE.match(place) and not (by_name and option != "verdictDirectory"):
            violations.add(option, "must be an absolute path or a URI")
        other = taken.setdefault(place.rstrip("/"), option)
        if other != option:
            violations.add(option, f"must not be the same place as {other}")
    table = values["commit_table"] or ""
    if by_name and table and not IS_PLACE.match(table) and not values["verdict_directory"]:
        violations.add("verdictDirectory", "is needed where commitTable is a name and not a path")


_PLACES: Final = (
    ("commitTable", "commit_table"),
    ("deadLetterTable", "dead_letter_table"),
    ("verdictDirectory", "verdict_directory"),
)


def beside(table: str, suffix: str) -> str:
    """A place of its own for what belongs to a commit table."""
    return table.rstrip("/") + suffix if table else ""
