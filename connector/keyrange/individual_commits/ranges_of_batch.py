"""The key ranges of a planned batch. Their number is the plan's, not the options': these may change
between any two batches, and the state of a partition is cut where the ranges end."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import repeat

from keyrange.individual_commits.model.partition_progress import cut_span
from keyrange.individual_commits.model.state_columns import Places, spread
from keyrange.kafka.model.offsets import TopicPartition
from keyrange.options import SourceOptions
from keyrange.ranges.model.key_ranges import KeyRange, complement
from keyrange.ranges.model.range_plan import even_ranges
from keyrange.source.model.checkpoint import CommitMark


def spans_of(partition: TopicPartition, mark: CommitMark, options: SourceOptions) -> list[KeyRange]:
    """The key ranges that a batch cuts a partition into; what others read is among them."""
    given = options.key_ranges.given(partition)
    if given is not None:
        return sorted([*given, *complement(given)])
    cuts = mark.cuts.get(partition, ())
    return [
        each for span in even_ranges(mark.ranges.get(partition, 1)) for each in cut_span(span, cuts)
    ]


def begins_of_ranges(
    partitions: Iterable[TopicPartition], mark: CommitMark, options: SourceOptions
) -> Places:
    """Where the ranges begin that `spans_of` has of each partition. Few partitions are cut in a way
    of their own."""
    names, keys = list(partitions), options.key_ranges
    given = map(keys.given, names) if keys.ranges else repeat(None)
    counts = (mark.ranges.get(each, 1) for each in names)
    known: dict[object, int] = {}
    lists: list[list[int]] = []
    which: list[int] = []
    for partition, *key in zip(names, given, counts, map(mark.cuts.get, names), strict=False):
        number = known.setdefault(tuple(key), len(lists))
        if number == len(lists):
            lists.append([each.from_hash for each in spans_of(partition, mark, options)])
        which.append(number)
    return spread(lists, which)
