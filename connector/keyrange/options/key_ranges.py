"""The options about key ranges, their parsers, and how they go together."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from keyrange.model.key_ranges import HASH_MAX, KeyRange, complement
from keyrange.model.offsets import TopicPartition, topic_name_fault
from keyrange.model.query_ranges import EVERY, Ownership, owned, read_ownership
from keyrange.options.option import INT32_MAX, INT64_MAX, option
from keyrange.options.positions import SubscriptionOptions
from keyrange.options.value_parsers import (
    Violations,
    boolean,
    int_between,
    is_one,
    json_document,
    one_of,
    size_between,
)

_RANGES_MAX: Final = 65_536
_NO_RANGES: Final[Ownership] = {}
_RANGES_TEXT: Final = (
    '{"topic": {"0": [[lo, hi], ...], "1": []}}, or for all its partitions {"topic": [[lo, hi]]}; '
    f"both ends included, within [0, {HASH_MAX}]; [] is the whole partition"
)
_ACCEPT_TEXT: Final = 'such as {"orders": false}, or true or false'
_KEYS_TEXT: Final = 'JSON, a list of texts, null or {"base64": "..."}'


def _count(value: str) -> int | None:
    if value.strip().lower() == "auto":
        return None
    return int_between(1, _RANGES_MAX)(value)


def _ranges(value: str) -> Ownership:
    document = _by_topic(value, _RANGES_TEXT)
    try:
        found = read_ownership(document)
    except ValueError as failure:
        raise ValueError(f"must be JSON, {_RANGES_TEXT}; {failure}") from None
    if not found:
        raise ValueError(f"must name at least one topic: {_RANGES_TEXT}")
    return found


def _accept(value: str) -> tuple[bool, Mapping[str, bool]]:
    if value.strip().lower() in ("true", "false"):
        return boolean(value), {}
    topics = _by_topic(value, _ACCEPT_TEXT)
    if not all(isinstance(each, bool) for each in topics.values()):
        raise ValueError(f"must be JSON, {_ACCEPT_TEXT}")
    return True, topics


def _keys(value: str) -> tuple[bytes | None, ...]:
    try:
        document = json.loads(value)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, list) or not document:
        raise ValueError(f"must be {_KEYS_TEXT}")
    return tuple(_key(each) for each in document)


def _key(document: Any) -> bytes | None:
    if document is None:
        return None
    if isinstance(document, str):
        return document.encode("utf-8", "surrogatepass")
    if isinstance(document, dict) and list(document) == ["base64"]:
        try:
            return base64.b64decode(document["base64"], validate=True)
        except (binascii.Error, TypeError, ValueError):
            pass
    raise ValueError(f"must be {_KEYS_TEXT}")


def _by_topic(value: str, form: str) -> dict[str, Any]:
    document = json_document(value, form)
    if not isinstance(document, dict):
        raise ValueError(f"must be JSON, {form}")
    for topic in document:
        if fault := topic_name_fault(topic):
            raise ValueError(f"must name topics, and {fault}")
    return document


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRangeOptions:
    """How partitions are split, and which keys are read.

    `ranges_per_partition` None stands for auto. `ranges` are those that were given, `partial` says
    that others read the rest. `accept` says whether topics may be split, and of which by name
    another thing. `cores` None stands for those of this host.
    """

    split_by: str = option(
        "splitBy",
        one_of("partition", "keyRange", "offset"),
        "How tasks share the work. partition: a task reads whole partitions. keyRange: several "
        "tasks read one partition, each its own keys, and every key's records stay in order. "
        "offset: a task reads a run of offsets; the runs have about equal bytes, and no order "
        "between them.",
        default="partition",
    )
    ranges_per_partition: int | None = option(
        "keyRangesPerPartition",
        _count,
        "Into how many ranges of equal size the planner cuts the hash space of a partition. "
        "auto: by the cores and by the partition's share of the unread bytes.",
        values="a number, or auto",
        default="auto",
    )
    ranges: Ownership = option(
        "keyRanges",
        _ranges,
        "The key ranges to read, instead of keyRangesPerPartition.",
        values=f"JSON {_RANGES_TEXT}",
        unset=_NO_RANGES,
    )
    partial: bool = option(
        "keyRangesCoverage",
        is_one("partial", "full", "partial"),
        "full: keyRanges has to cover the space of each partition that it names. partial: other "
        "queries read the rest; keyRanges then has to name all partitions, and a query keeps "
        "the ranges that its checkpoint began with.",
        default="full",
    )
    accept: tuple[bool, Mapping[str, bool]] = option(
        "accept.range.fetch",
        _accept,
        "Whether topics may be split by key range or offset: false for those whose records need "
        "the order of their partition. A query that would split them is refused.",
        values='true, false, or JSON {"topic": false}',
        default="true",
    )
    nulls_first: bool = option(
        "nullKeys",
        is_one("first", "spread", "first"),
        "The key range to which a record without a key belongs. spread: that of the hash of its "
        "offset, so such records have no order. first: always the first key range, in order.",
        default="spread",
    )
    # A key may be a secret of the user's users: it is not shown.
    keys: tuple[bytes | None, ...] | None = option(
        "keys",
        _keys,
        "Reads only records with these keys. Tasks leave out all others while they decode.",
        values=_KEYS_TEXT,
        shown=False,
    )
    cores: int | None = option(
        "parallelism",
        int_between(1, INT32_MAX, "a number of tasks"),
        "How many tasks can run at once, for splitBy=keyRange and offset: the cores of all "
        "executors. A Python source cannot ask Spark. Default: the cores of the driver's host.",
    )
    memory_bytes: int = option(
        "max.bytes.key.range.results",
        size_between(0, INT64_MAX, "200m"),
        "How many bytes of records, decoded by one task for others, an executor keeps in shared "
        "memory. They count against a pod's memory.",
        default="209715200",
    )
    spill_bytes: int = option(
        "max.bytes.key.range.spill",
        size_between(0, INT64_MAX, "20g"),
        "How much more an executor keeps in its local directories. Without room in either, each "
        "task fetches for itself.",
        default="20g",
    )
    keep_values: bool = option(
        "reserve.message.value.range.fetch",
        boolean,
        "Whether a task keeps values for other tasks. false: it keeps only the offsets of the "
        "records, and the other tasks fetch these again; for values of a megabyte and more.",
        default="true",
    )

    @property
    def keys_fingerprint(self) -> str:
        """The same for the same `keys` in any order, and "" for all keys; it shows none of them."""
        if self.keys is None:
            return ""
        each = repr(sorted({*map(repr, self.keys)}))
        return f"sha256:{hashlib.sha256(each.encode()).hexdigest()[:16]}"

    def given(self, partition: TopicPartition) -> tuple[KeyRange, ...] | None:
        """The ranges that were given for a partition, or for its topic."""
        return owned(self.ranges, partition)

    @property
    def ownership(self) -> Ownership:
        """What this query reads where others read the rest; empty where it reads everything."""
        return self.ranges if self.partial else {}

    def accepts_splits(self, topic: str) -> bool:
        of_others, of_named = self.accept
        return of_named.get(topic, of_others)


def check_key_ranges(
    given: KeyRangeOptions,
    where: SubscriptionOptions,
    is_cut_by_records: bool,
    violations: Violations,
) -> None:
    """Check the options against one another, and against what is read."""
    split_by = given.split_by
    if given.ranges and split_by != "keyRange":
        violations.add("keyRanges", "needs splitBy=keyRange")
    if given.partial and not given.ranges:
        violations.add("keyRangesCoverage", "partial needs keyRanges")
    if not given.partial:
        for partition, spans in sorted(given.ranges.items()):
            if gaps := complement(spans):
                violations.add(
                    "keyRanges",
                    f"leaves {gaps[0]} of {_named(partition)} out; say keyRangesCoverage=partial "
                    "where others read the rest",
                )
    if split_by != "partition" and is_cut_by_records:
        violations.add("maxRecordsPerPartition", f"is not valid with splitBy={split_by}")
    named = {*(partition.topic for partition in where.assign), *where.subscribe}
    refused = sorted(topic for topic in named if not given.accepts_splits(topic))
    if split_by != "partition" and refused:
        violations.add(
            "splitBy",
            f"{split_by} [RANGE_FETCH_NOT_ACCEPTED]: accept.range.fetch keeps topic {refused[0]} "
            f"in the order of its partitions, and splitBy={split_by} would not; read it with "
            "splitBy=partition, in a query of its own",
        )


def _named(partition: TopicPartition) -> str:
    every = partition.partition == EVERY
    return f"topic {partition.topic}" if every else f"partition {partition}"
