"""What the driver asks a topic at the start of a query: the schema that its records bring with
them, of formats whose records may."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, nullcontext
from dataclasses import replace
from typing import Any, Final

from keyrange.errors import invalid_options
from keyrange.formats.format import Format, format_of
from keyrange.kafka.cluster import Cluster
from keyrange.kafka.cluster_view import ClusterView
from keyrange.kafka.fetching.fetch import SplitReader
from keyrange.kafka.fetching.read_settings import read_settings
from keyrange.kafka.position_lookup import bind
from keyrange.kafka.subscribed_topics import describe, retrying
from keyrange.model.offset_splits import Split
from keyrange.model.offsets import EARLIEST, LATEST, OffsetRange, TopicPartition
from keyrange.model.value_forms import Schema, Side
from keyrange.options import SourceOptions

# As many of the last offsets of a partition are looked at first, then eight times as many.
_FIRST: Final = 16
_MOST: Final = 8_192
# Any of them says the columns; the younger record the younger ones.
_PARTITIONS_MAX: Final = 32


def schema_in_records(
    options: SourceOptions, column: Side, format_name: str, known: Cluster | None = None
) -> Schema:
    """The schema of the youngest record that brings one, among the last of each partition; by the
    cluster that is `known` of the last few of them, as somebody asks again and again.

    Raises INVALID_OPTIONS where none does, UnfitSchema, and what reading raises.
    """
    most = _MOST if known is None else _FIRST
    with closing(Cluster(options.client)) if known is None else nullcontext(known) as cluster:
        found = retrying(
            cluster,
            options.fetch_offset_tries,
            options.fetch_offset_pause_ms,
            lambda: _youngest(cluster, options, column, format_of(format_name), most),
        )
    if found is None:
        raise invalid_options(
            f"option '{column}Format' is {format_name} without {column}Schema, and no record "
            "of the topic brings a schema: give it, as DDL, or let the connector write schemas "
            "(schemas.enable=true)"
        )
    return found


def _youngest(
    cluster: Cluster, options: SourceOptions, column: Side, format_: Format, most: int
) -> Schema | None:
    assert options.subscription is not None
    view = describe(cluster, options.subscription)
    partitions = view.partitions()[:_PARTITIONS_MAX]
    firsts = bind(cluster, view, dict.fromkeys(partitions, EARLIEST))
    ends = bind(cluster, view, dict.fromkeys(partitions, LATEST))
    # What a query selects says nothing of what records are like.
    plain = replace(
        options,
        columns=(column, "timestamp"),
        key_ranges=replace(options.key_ranges, keys=None),
    )
    found: list[tuple[Any, Schema]] = []
    for partition in partitions:
        last = _last(cluster, view, plain, partition, firsts[partition], ends[partition], most)
        told = ((at, format_.said_by(payload)) for at, payload in last)
        youngest = next(((at, schema) for at, schema in told if schema is not None), None)
        if youngest is not None:
            found.append(youngest)
    return max(found, key=lambda each: each[0])[1] if found else None


def _last(
    cluster: Cluster,
    view: ClusterView,
    options: SourceOptions,
    partition: TopicPartition,
    first: int,
    end: int,
    most: int,
) -> Iterator[tuple[Any, bytes]]:
    """The last payloads of a partition with their times, from the youngest on."""
    size, until = _FIRST, end
    while until > first and end - until < most:
        span = OffsetRange(max(end - size, first), until)
        reader = SplitReader(cluster, view, read_settings(options))
        split = Split(partition, span.from_offset, span.until_offset, 0)
        rows = [
            (at, payload)
            for batch in reader.read([split])
            for payload, at in zip(*(each.to_pylist() for each in batch.columns), strict=True)
            if payload is not None
        ]
        yield from reversed(rows)
        until, size = span.from_offset, size * 8
