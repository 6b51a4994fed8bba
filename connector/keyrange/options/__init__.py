"""The options of `format("keyrange")`: texts in, one validated value out.

Names are not case-sensitive. All violations are reported together, before the first connection.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from keyrange.kafka.model.offsets import EARLIEST, LATEST
from keyrange.kafka.model.position_options import (
    Everywhere,
    GroupOffsets,
    Offsets,
    PositionSpec,
    Timestamp,
    Timestamps,
)
from keyrange.kafka.model.subscription import Assign, Subscribe, SubscribePattern, Subscription
from keyrange.options.commits import STORAGE_PREFIX, CommitOptions, choose_commits
from keyrange.options.kafka_properties import ClientSettings, parse_client_options, unknown_property
from keyrange.options.key_ranges import KeyRangeOptions, choose_key_ranges
from keyrange.options.mapping import MapInArrow, choose_mapping
from keyrange.options.members import MemberOptions, choose_members
from keyrange.options.option import Mode, Option
from keyrange.options.parsing import Violations
from keyrange.options.table import OPTIONS
from keyrange.options.volumes import ADMIN_PREFIX, VolumeOptions, choose_volumes
from keyrange.source.model.columns import COLUMNS, IDENTIFYING, chosen_columns

__all__ = [
    "OPTIONS",
    "KeyRangeOptions",
    "MapInArrow",
    "Mode",
    "Option",
    "SourceOptions",
    "check_names",
    "parse_options",
]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """All options of one source, validated. Plain data; it holds secrets only as `Secret`.

    `group_id_prefix` is "" where positions are mirrored to `client.group_id` or not at all;
    `fetch_offset_tries` None stands for the default, which depends on whether the cluster has
    answered before.
    """

    subscription: Subscription
    start: PositionSpec
    end: PositionSpec
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_ms: int
    max_bytes_per_trigger: int | None
    min_partitions: int | None
    max_records_per_partition: int | None
    bytes_per_task: int
    min_tasks: int
    include_headers: bool
    include_key_hash: bool
    key_ranges: KeyRangeOptions
    commits: CommitOptions
    members: MemberOptions
    volumes: VolumeOptions
    columns: tuple[str, ...] | None
    filter_pushdown: bool
    map_in_arrow: MapInArrow | None
    fail_on_data_loss: bool
    max_batch_rows: int
    max_batch_bytes: int
    max_record_batch_bytes: int
    group_id_prefix: str
    mirror_offsets: bool
    fetch_offset_tries: int | None
    fetch_offset_pause_ms: int
    poll_timeout_ms: int
    client: ClientSettings

    @property
    def chosen_columns(self) -> tuple[str, ...]:
        """The columns of the rows, in the source's order; those of the DataFrame where no function
        of mapInArrow works on them.

        What is done of a record is said by its topic, partition, offset and keyHash: a query that
        commits individually has them, whatever else was chosen.
        """
        chosen = chosen_columns(self.columns, self.include_headers, self.include_key_hash)
        needed = IDENTIFYING if self.commits.individual else ()
        return tuple(name for name in COLUMNS if name in chosen or name in needed)


_BY_NAME: Final = {row.name.lower(): row for row in OPTIONS}


def parse_options(options: Mapping[str, str], mode: Mode | None = None) -> SourceOptions:
    """All options of `format("keyrange")`; raises one InvalidError that names everything wrong.

    Spark makes a source before it says whether a batch or a stream will be read: `mode` None checks
    what holds for both.
    """
    violations = Violations()
    values: dict[str, Any] = {}
    client: dict[str, str] = {}
    admin: dict[str, str] = {}
    storage: dict[str, str] = {}
    given: set[str] = set()
    for name, value in options.items():
        folded = name.lower()
        if folded.startswith(ADMIN_PREFIX):
            admin[folded.removeprefix(ADMIN_PREFIX)] = value
        elif folded.startswith("kafka."):
            client[folded.removeprefix("kafka.")] = value
        elif folded.startswith(STORAGE_PREFIX):
            storage[name[len(STORAGE_PREFIX) :]] = value
        elif folded in _BY_NAME:
            given.add(_BY_NAME[folded].field)
            _read(_BY_NAME[folded], value, mode, values, violations)
        else:
            violations.add(name, _unknown(folded))
    for row in OPTIONS:
        if row.field not in values:
            values[row.field] = row.parse(row.default) if row.default is not None else None
    values["client"] = parse_client_options(client, violations)
    _check_together(values, violations)
    _choose_subscription(values, given, violations)
    _choose_positions(values, mode, violations)
    _choose_mirror(values, violations)
    choose_key_ranges(values, violations)
    choose_commits(values, given, storage, mode, violations)
    choose_members(values, client, violations)
    choose_volumes(values, admin, violations)
    choose_mapping(values, given, violations)
    if mode == "batch":
        _check_batch(values["start"], values["end"], violations)
    violations.check()
    return SourceOptions(**{name: values[name] for name in SourceOptions.__dataclass_fields__})


def check_names(names: Iterable[str]) -> None:
    """Whether the source has options of these names, whatever they are given.

    For who uses a few of many. Raises one InvalidError that names all that it has not.
    """
    violations = Violations()
    for name in names:
        folded = name.lower()
        prefix = next((each for each in (ADMIN_PREFIX, "kafka.") if folded.startswith(each)), "")
        if prefix:
            unknown = unknown_property(folded.removeprefix(prefix), prefix)
        else:
            is_known = folded in _BY_NAME or folded.startswith(STORAGE_PREFIX)
            unknown = None if is_known else _unknown(folded)
        if unknown is not None:
            violations.add(name, unknown)
    violations.check()


def _read(
    row: Option,
    value: str,
    mode: Mode | None,
    values: dict[str, Any],
    violations: Violations,
) -> None:
    if mode is not None and mode not in row.modes:
        reading = "batch reads" if mode == "batch" else "streaming queries"
        if not row.ignored:
            violations.add(row.name, f"is not valid in {reading}")
        else:
            _log.warning("option '%s' is ignored in %s", row.name, reading)
    with violations.collecting(row.name):
        values[row.field] = row.parse(value)


def _unknown(name: str) -> str:
    near = difflib.get_close_matches(name, _BY_NAME, 1)
    hint = f"; did you mean '{_BY_NAME[near[0]].name}'?" if near else ""
    return f"does not exist{hint}"


def _check_together(values: Mapping[str, Any], violations: Violations) -> None:
    least, most = values["min_offsets_per_trigger"], values["max_offsets_per_trigger"]
    if least is not None and most is not None and least > most:
        violations.add(
            "minOffsetsPerTrigger",
            f"must not be higher than maxOffsetsPerTrigger: {least} and {most}",
        )
    for field, option, column in _INCLUDED:
        if values[field] and values["columns"] and column not in values["columns"]:
            violations.add(option, f"must not be true where option 'columns' leaves {column} out")


_INCLUDED: Final = (
    ("include_headers", "includeHeaders", "headers"),
    ("include_key_hash", "includeKeyHash", "keyHash"),
)
_STRATEGIES: Final = ("subscribe", "subscribePattern", "assign")


def _choose_subscription(values: dict[str, Any], given: set[str], violations: Violations) -> None:
    chosen = [name for name in _STRATEGIES if _BY_NAME[name.lower()].field in given]
    if len(chosen) != 1:
        said = f"; given are {' and '.join(chosen)}" if chosen else ""
        violations.messages.append(
            f"exactly one of the options {', '.join(_STRATEGIES)} must be specified{said}"
        )
    values["subscription"] = Subscribe(values["subscribe"] or ())
    if values["assign"]:
        values["subscription"] = Assign(values["assign"])
    elif values["subscribe_pattern"]:
        values["subscription"] = SubscribePattern(
            values["subscribe_pattern"], values["subscribe_pattern_match"]
        )


def _choose_positions(values: dict[str, Any], mode: Mode | None, violations: Violations) -> None:
    """The start and the end, by the JVM connector's precedence: one time, times, offsets."""
    start = values["starting_offsets"] or Everywhere(EARLIEST if mode == "batch" else LATEST)
    rest, unmatched = values["starting_rest"], values["starting_unmatched"]
    if isinstance(start, Offsets | GroupOffsets):
        start = replace(start, rest=rest)
    spec = _first_given("starting", values, start, unmatched, rest)
    if isinstance(spec.place, GroupOffsets) and not spec.place.group_id:
        group_id = values["client"].group_id
        if not group_id:
            violations.add("startingOffsets", "'group' needs a name: group:NAME or kafka.group.id")
        spec = replace(spec, place=replace(spec.place, group_id=group_id))
    values["start"] = spec

    end, rest = values["ending_offsets"], values["ending_rest"]
    if isinstance(end, Offsets):
        end = replace(end, rest=rest)
    values["end"] = _first_given("ending", values, end, LATEST, rest)


def _first_given(
    side: str,
    values: Mapping[str, Any],
    place: Everywhere | Offsets | GroupOffsets,
    unmatched: int | None,
    rest: int | None,
) -> PositionSpec:
    """What a side's options say, by precedence: one time, times, else `place`."""
    time_ms, times_ms = values[f"{side}_timestamp_ms"], values[f"{side}_timestamps"]
    if time_ms is not None:
        return PositionSpec(f"{side}Timestamp", Timestamp(time_ms, unmatched))
    if times_ms is not None:
        return PositionSpec(f"{side}OffsetsByTimestamp", Timestamps(times_ms, unmatched, rest))
    return PositionSpec(f"{side}Offsets", place)


def _choose_mirror(values: dict[str, Any], violations: Violations) -> None:
    prefix, group_id = values["group_id_prefix"] or "", values["client"].group_id
    if group_id and prefix:
        _log.warning("option 'groupIdPrefix' is ignored: kafka.group.id is given")
        prefix = ""
    if values["mirror_offsets"] and not (prefix or group_id):
        violations.add("mirrorOffsets", "needs the group's name: kafka.group.id or groupIdPrefix")
    values["group_id_prefix"] = prefix
    if values["mirror_offsets"] is None:
        values["mirror_offsets"] = bool(prefix or group_id)


def _check_batch(start: PositionSpec, end: PositionSpec, violations: Violations) -> None:
    _no_position(start, LATEST, violations)
    _no_position(end, EARLIEST, violations)
    first, last = start.place, end.place
    offsets = isinstance(first, Offsets) and isinstance(last, Offsets)
    timestamps = isinstance(first, Timestamps) and isinstance(last, Timestamps)
    if not (offsets or timestamps):
        return
    assert isinstance(first, Offsets | Timestamps)
    assert isinstance(last, Offsets | Timestamps)
    if first.rest is None and last.rest is None and first.each.keys() != last.each.keys():
        violations.add(
            end.option,
            f"must name the same partitions as {start.option} "
            "[MISMATCHED_TOPIC_PARTITIONS_BETWEEN_START_OFFSET_AND_END_OFFSET]",
        )
    for partition in sorted(first.each.keys() & last.each.keys()):
        if 0 <= last.each[partition] < first.each[partition]:
            violations.add(
                end.option,
                f"must not lie before {start.option}: {partition} from {first.each[partition]} to "
                f"{last.each[partition]} [UNRESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET]",
            )


def _no_position(spec: PositionSpec, refused: int, violations: Violations) -> None:
    word = "latest" if refused == LATEST else "earliest"
    if isinstance(spec.place, Everywhere) and spec.place.which == refused:
        violations.add(spec.option, f"can't be {word} for batch queries")
    elif isinstance(spec.place, Offsets):
        for partition in sorted(p for p, at in spec.place.each.items() if at == refused):
            violations.add(spec.option, f"for {partition} can't be {word} for batch queries")
        if spec.place.rest == refused:
            violations.add(f"{spec.option}Default", f"can't be {word} for batch queries")
