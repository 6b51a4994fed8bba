"""All options of a source from their texts, checked one by one and together.

Names are not case-sensitive, and one that no option has is refused with the one that may be meant.
All violations are reported together, before the first connection.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from keyrange.model.columns import chosen_columns
from keyrange.options.commit_checks import choose_commits
from keyrange.options.commits import STORAGE_PREFIX, CommitOptions
from keyrange.options.kafka_properties import (
    TLS_PROPERTIES,
    parse_client_options,
    property_without_prefix,
    unknown_property,
)
from keyrange.options.key_ranges import KeyRangeOptions, check_key_ranges
from keyrange.options.map_in_arrow import choose_mapping
from keyrange.options.members import MemberOptions, choose_members
from keyrange.options.option import GivenOptions, Mode, Option, by_name, near_option, texts_of
from keyrange.options.positions import (
    EndOptions,
    StartOptions,
    SubscriptionOptions,
    check_batch,
    choose_end,
    choose_start,
    choose_subscription,
)
from keyrange.options.registry import REGISTRY_TLS_PREFIX, SHOWN_PREFIX, choose_registry
from keyrange.options.source import OPTIONS, SourceOptions
from keyrange.options.value_format import choose_values
from keyrange.options.value_parsers import Violations
from keyrange.options.volume_checks import ADMIN_PREFIX, choose_volumes

_log = logging.getLogger(__name__)

BY_NAME: Final = by_name(OPTIONS)
KAFKA_PREFIX: Final = "kafka."
# What begins options that are passed on; of two that fit the first one counts.
_PREFIXES: Final = (ADMIN_PREFIX, KAFKA_PREFIX, STORAGE_PREFIX, REGISTRY_TLS_PREFIX)


def parse_options(options: Mapping[str, object], mode: Mode | None = None) -> SourceOptions:
    """All options of `format("keyrange")`; raises one InvalidError that names everything wrong.

    Spark makes a source before it says whether a batch or a stream will be read: `mode` None checks
    what holds for both.
    """
    violations = Violations()
    given = GivenOptions(BY_NAME, violations, mode)
    passed_on: dict[str, dict[str, str]] = {prefix: {} for prefix in _PREFIXES}
    for name, value in texts_of(options, violations).items():
        if prefix := prefix_of(name):
            rest = name[len(prefix) :]
            passed_on[prefix][rest if prefix == STORAGE_PREFIX else rest.lower()] = value
        elif not given.take(name, value):
            violations.add(name, unknown(name))
    client = passed_on[KAFKA_PREFIX]
    source = given.settings(
        SourceOptions,
        client=parse_client_options(client, violations),
        key_ranges=given.settings(KeyRangeOptions),
        commits=given.settings(CommitOptions),
        members=given.settings(MemberOptions),
        registry=choose_registry(given, passed_on[REGISTRY_TLS_PREFIX], violations),
    )
    _check_together(source, violations)
    subscription = choose_subscription(given, violations)
    start = choose_start(given.settings(StartOptions), mode, source.client.group_id, violations)
    end = choose_end(given.settings(EndOptions))
    source = _with_mirror(source, given.has("mirrorOffsets"), violations)
    where = given.settings(SubscriptionOptions)
    is_cut = source.max_records_per_partition is not None
    check_key_ranges(source.key_ranges, where, is_cut, violations)
    storage, is_named = passed_on[STORAGE_PREFIX], given.names("commitMode")
    commits = choose_commits(source, is_named, storage, mode, violations)
    members = choose_members(source.members, source.key_ranges, commits, client, violations)
    volumes = choose_volumes(given, passed_on[ADMIN_PREFIX], violations)
    mapping = choose_mapping(given, source.filter_pushdown, commits.individual, violations)
    columns = chosen_columns(source.columns, source.include_headers, source.include_key_hash)
    values = choose_values(given, columns, commits.dead_letter_table, source.registry, violations)
    letters = commits.dead_letter_topic
    if letters and subscription is not None and subscription.reads(letters):
        text = "must not be a topic that the query reads: each dead letter would come as a record"
        violations.add("deadLetterTopic", text)
    if mode == "batch":
        check_batch(start, end, violations)
    violations.check()
    return replace(
        source,
        subscription=subscription,
        start=start,
        end=end,
        commits=commits,
        members=members,
        volumes=volumes,
        map_in_arrow=mapping,
        values=values,
    )


def _check_together(source: SourceOptions, violations: Violations) -> None:
    least, most = source.min_offsets_per_trigger, source.max_offsets_per_trigger
    if least is not None and most is not None and least > most:
        violations.add(
            "minOffsetsPerTrigger",
            f"must not be higher than maxOffsetsPerTrigger: {least} and {most}",
        )
    for is_included, option, column in (
        (source.include_headers, "includeHeaders", "headers"),
        (source.include_key_hash, "includeKeyHash", "keyHash"),
    ):
        if is_included and source.columns and column not in source.columns:
            violations.add(option, f"must not be true where option 'columns' leaves {column} out")


def _with_mirror(source: SourceOptions, is_said: bool, violations: Violations) -> SourceOptions:
    """Whether and where offsets are mirrored; `is_said` where an option says whether."""
    prefix, group_id = source.group_id_prefix, source.client.group_id
    if group_id and prefix:
        _log.warning("option 'groupIdPrefix' is ignored: kafka.group.id is given")
        prefix = ""
    has_name = bool(prefix or group_id)
    if source.mirror_offsets and not has_name:
        violations.add("mirrorOffsets", "needs the group's name: kafka.group.id or groupIdPrefix")
    mirrors = source.mirror_offsets if is_said else has_name
    return replace(source, group_id_prefix=prefix, mirror_offsets=mirrors)


def prefix_of(name: str) -> str:
    """The prefix of options that are passed on by their own names, which one begins with; "" for an
    option that the source has itself."""
    return next((each for each in _PREFIXES if name.lower().startswith(each)), "")


def check_names(names: Iterable[str]) -> None:
    """Whether the source has options of these names, whatever they are given.

    For who uses a few of many. Raises one InvalidError that names all that it has not.
    """
    violations = Violations()
    for name in names:
        folded, prefix = name.lower(), prefix_of(name)
        if prefix in (ADMIN_PREFIX, KAFKA_PREFIX):
            problem = unknown_property(folded.removeprefix(prefix), prefix)
        elif prefix == REGISTRY_TLS_PREFIX:
            rest = f"ssl.{folded.removeprefix(prefix)}"
            problem = unknown_property(rest, SHOWN_PREFIX, TLS_PROPERTIES)
        else:
            problem = None if prefix or folded in BY_NAME else unknown(name)
        if problem is not None:
            violations.add(name, problem)
    violations.check()


def unknown(name: str, rows: Mapping[str, Option] = BY_NAME) -> str:
    """What is said of an option that does not exist: the one of `rows` that may be meant."""
    if name.lower() == "checkpointlocation":
        return (
            "is none of the source: it is the second argument of into() of a keyrange.job, and of "
            'other queries writeStream.option("checkpointLocation", ...)'
        )
    return property_without_prefix(name) or f"does not exist{near_option(name, rows)}"
