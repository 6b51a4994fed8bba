"""How the options about individual commits go together, and with the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from keyrange.model.commit_settings import DeliveryLimits, RedeliveryPolicy
from keyrange.options.commits import (
    DEAD_LETTERS,
    PENDING_BYTES_MAX,
    CommitOptions,
    beside,
    path_mistake,
)
from keyrange.options.option import Mode
from keyrange.options.secrets import Secret, parse_secret
from keyrange.options.source import SourceOptions
from keyrange.options.value_parsers import Violations


def choose_commits(
    source: SourceOptions,
    is_mode_named: bool,
    storage: Mapping[str, str],
    mode: Mode | None,
    violations: Violations,
) -> CommitOptions:
    """The options about commits with what is made of several of them.

    `is_mode_named` says whether commitMode was given, `storage` are the settings of the object
    store.
    """
    given = source.commits
    individual = _is_individual(given, is_mode_named, violations)
    if individual:
        _check_individual(source, mode, violations)
    secrets: dict[str, Secret] = {}
    for name, value in storage.items():
        if not name:
            violations.add("objectStore.", "must name a setting of the object store")
        with violations.collecting(f"objectStore.{name}"):
            secrets[name] = parse_secret(value)
    _check_places(given, violations)
    if given.backoff_ms > given.backoff_max_ms:
        violations.add(
            "redelivery.backoff",
            "must not be longer than redelivery.backoff.max: "
            f"{given.backoff_ms} and {given.backoff_max_ms} ms",
        )
    pending_max = min(given.range_pending_max, given.range_bytes_max // PENDING_BYTES_MAX)
    return replace(
        given,
        individual=individual,
        group=given.group or source.client.group_id or "default",
        dead_letter_table=given.dead_letter_table or beside(given.table, DEAD_LETTERS),
        verdict_directory=given.verdict_directory or beside(given.table, "_verdicts"),
        state_directory=given.state_directory or beside(given.table, "_state"),
        storage=secrets,
        policy=RedeliveryPolicy(given.deliveries_max, given.backoff_ms, given.backoff_max_ms),
        limits=DeliveryLimits(pending_max, given.range_lag_max),
    )


def _is_individual(given: CommitOptions, is_mode_named: bool, violations: Violations) -> bool:
    individual = given.commit_mode == "individual"
    allowed = given.allow_individual
    if allowed is None:
        return individual
    if is_mode_named and allowed != individual:
        violations.add(
            "allow.individual.commit",
            f"says the same as commitMode, and must not contradict it: {str(allowed).lower()} and "
            f"{given.commit_mode}",
        )
    return allowed


def _check_individual(source: SourceOptions, mode: Mode | None, violations: Violations) -> None:
    name = "commitMode"
    if mode == "batch":
        violations.add(name, "individual is not valid in batch reads: they commit nothing")
    if not source.commits.table:
        violations.add(name, "individual needs commitTable")
    split_by = source.key_ranges.split_by
    if split_by == "offset":
        violations.add(name, "individual needs splitBy=keyRange or partition: it keeps keys' order")
    for option, value in (
        ("minPartitions", source.min_partitions),
        ("maxRecordsPerPartition", source.max_records_per_partition),
    ):
        if split_by == "partition" and value is not None:
            violations.add(
                option,
                "is not valid with commitMode=individual: pieces of a partition do not keep its "
                "keys' order; splitBy=keyRange does",
            )
    if source.filter_pushdown:
        violations.add("filterPushdown", "is not valid with commitMode=individual")


def _check_places(given: CommitOptions, violations: Violations) -> None:
    """Paths are used by several processes, each with a working directory of its own."""
    taken: dict[str, str] = {}
    for option, path in (
        ("commitTable", given.table),
        ("deadLetterTable", given.dead_letter_table),
        ("verdictDirectory", given.verdict_directory),
        ("stateDirectory", given.state_directory),
    ):
        if not path:
            continue
        if mistake := path_mistake(path):
            violations.add(option, mistake)
        other = taken.setdefault(path.rstrip("/"), option)
        if other != option:
            violations.add(option, f"must not be the same path as {other}")
