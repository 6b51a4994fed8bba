"""Which task reads which key ranges: the plan of a batch that is split by key range or by offset.

All ranges of all partitions stand in one line, partition by partition; the line is cut into as many
stretches of about equal bytes as there are tasks. So a partition is shared by as few tasks as can
be, and a task that reads a whole partition has nothing to share.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import sqrt
from typing import Final, TypeVar

from keyrange.model.key_ranges import SPACE, KeyRange, cover_once, split_evenly
from keyrange.model.offset_splits import Split
from keyrange.model.offsets import OffsetRange, TopicPartition
from keyrange.model.reader_ranges import placement_of

# A range that has so many times its share of the partition is hot.
_HOT: Final = 2.0
# By chance a count hardly ever differs from its mean by more than so many square roots of it, and
# counts of a few say nothing.
_CHANCE: Final = 4.0
_FEW: Final = 4

# More ranges than tasks, so that the line can be cut where the bytes are.
_AUTO_RANGES_PER_TASK: Final = 4
_RANGES_MAX: Final = 1024

_Item = TypeVar("_Item")


def auto_ranges(
    ranges: Mapping[TopicPartition, OffsetRange],
    bytes_per_offset: Mapping[TopicPartition, float],
    cores: int,
) -> dict[TopicPartition, int]:
    """How many ranges each partition gets: by its share of the bytes, so that one hot partition has
    the cores of all."""
    sizes = {p: max(span.size * bytes_per_offset[p], 1.0) for p, span in ranges.items()}
    total = sum(sizes.values())
    wanted = {p: -int(-cores * size // total) for p, size in sizes.items()}
    return {
        p: min(count * _AUTO_RANGES_PER_TASK, _RANGES_MAX) if count > 1 else 1
        for p, count in wanted.items()
    }


def even_ranges(count: int) -> list[KeyRange]:
    """The whole space in ranges of equal size."""
    return split_evenly(SPACE, count)


@dataclass(frozen=True, slots=True)
class RangeEstimate:
    """A key range of a partition with the bytes that are expected in it; `hot` has far more than
    its share."""

    partition: TopicPartition
    span: KeyRange
    bytes: float
    hot: bool = False


def weigh(
    partition: TopicPartition,
    spans: Sequence[KeyRange],
    total_bytes: float,
    key_hashes: Sequence[int],
) -> list[RangeEstimate]:
    """The ranges with the bytes expected in each, by the places of a sample of records.

    A sample says something of a range only where it has far more or far fewer records there than
    by chance; all others have even parts of what is left. Taken at its word, a few hundred records
    would make ranges that are alike differ by a fifth.
    """
    in_order = sorted(key_hashes)
    shares: dict[KeyRange, float] = {}
    for span in spans:
        found = bisect_left(in_order, span.until_hash) - bisect_left(in_order, span.from_hash)
        even = len(key_hashes) * span.size / SPACE.size
        if abs(found - even) > _CHANCE * sqrt(even) and max(found, even) > _FEW:
            shares[span] = found / len(key_hashes)
    # Whole numbers: what is left of the space may be too small a part of it for a float.
    left_size = SPACE.size - sum(span.size for span in shares)
    left = max(1 - sum(shares.values()), 0.0)
    cells: list[RangeEstimate] = []
    for span in spans:
        share = shares[span] if span in shares else left * span.size / left_size
        hot = len(spans) > 1 and share > _HOT * span.size / SPACE.size and span in shares
        cells.append(RangeEstimate(partition, span, share * total_bytes, hot))
    return cells


def plan_tasks(
    cells: Sequence[RangeEstimate],
    ranges: Mapping[TopicPartition, OffsetRange],
    tasks: int,
    shared_name: Callable[[TopicPartition], str],
) -> list[tuple[Split, ...]]:
    """The splits of each task. `shared_name` names what readers of one partition share."""
    stretches = [each for each in cut_line(cells, lambda cell: cell.bytes, tasks) if each]
    readers: dict[TopicPartition, list[list[RangeEstimate]]] = {}
    for stretch in stretches:
        by_partition: dict[TopicPartition, list[RangeEstimate]] = {}
        for cell in stretch:
            by_partition.setdefault(cell.partition, []).append(cell)
        for partition, own in by_partition.items():
            readers.setdefault(partition, []).append(own)
    splits: dict[TopicPartition, list[Split]] = {
        partition: _splits(partition, ranges[partition], own, shared_name(partition))
        for partition, own in readers.items()
    }
    planned: list[tuple[Split, ...]] = []
    for stretch in stretches:
        partitions = sorted({cell.partition for cell in stretch})
        mine = [splits[partition].pop(0) for partition in partitions]
        planned.append(tuple(shared_first(mine)))
    return planned


def _splits(
    partition: TopicPartition,
    span: OffsetRange,
    readers: Sequence[Sequence[RangeEstimate]],
    shared_name: str,
) -> list[Split]:
    """One split per reader, of the same offsets and other keys."""
    whole = [
        Split(partition, span.from_offset, span.until_offset, round(sum(c.bytes for c in own)))
        for own in readers
    ]
    return among_readers(whole, [[cell.span for cell in own] for own in readers], shared_name)


def among_readers(
    splits: Sequence[Split], readers: Sequence[Sequence[KeyRange]], shared_name: str
) -> list[Split]:
    """Splits of the same offsets, one for each reader, with the keys that each reads; alone with
    all keys a reader needs to be told nothing."""
    if len(readers) == 1 and cover_once(readers[0]):
        return list(splits)
    placement, shared = placement_of(readers), shared_name if len(readers) > 1 else ""
    return [
        replace(split, placement=placement.of(reader), shared=shared)
        for reader, split in enumerate(splits)
    ]


def shared_first(splits: Iterable[Split]) -> list[Split]:
    """What is shared goes before what is not, so that its readers meet."""
    return sorted(splits, key=lambda split: not split.shared)


def cut_line(
    items: Sequence[_Item], weight: Callable[[_Item], float], pieces: int
) -> list[list[_Item]]:
    """Cut a line of things into at most `pieces` stretches of about equal weight.

    One that weighs more than a stretch should gets one of its own, in front of the others: what
    takes longest starts first. What stays is shared by the others.
    """
    pieces = max(min(pieces, len(items)), 1)
    heavy = _heavy(items, weight, pieces)
    alone = [[items[at]] for at in sorted(heavy)]
    rest = [item for at, item in enumerate(items) if at not in heavy]
    left = pieces - len(alone)
    if not rest or left < 1:
        return alone
    total = sum(map(weight, rest))
    stretches: list[list[_Item]] = [[]]
    done = 0.0
    for at, item in enumerate(rest):
        bound = total * len(stretches) / left
        enough = done + weight(item) / 2 > bound or len(rest) - at == left - len(stretches)
        if stretches[-1] and enough and len(stretches) < left:
            stretches.append([])
        stretches[-1].append(item)
        done += weight(item)
    return alone + stretches


def _heavy(items: Sequence[_Item], weight: Callable[[_Item], float], pieces: int) -> set[int]:
    """The items that weigh more than their stretch should, the heaviest first looked at."""
    left, total = pieces, sum(map(weight, items))
    heavy: set[int] = set()
    for at in sorted(range(len(items)), key=lambda at: -weight(items[at])):
        if left <= 1 or weight(items[at]) * left <= total:
            break
        heavy.add(at)
        total -= weight(items[at])
        left -= 1
    return heavy


def cut_by_bytes(
    ranges: Mapping[TopicPartition, OffsetRange],
    bytes_per_offset: Mapping[TopicPartition, float],
    tasks: int,
) -> list[tuple[Split, ...]]:
    """Even pieces by bytes over all tasks: a line of all offsets, cut where the bytes say.

    No order between pieces is promised; within each the offsets are in order.
    """
    sizes = {p: max(span.size * bytes_per_offset[p], 1e-9) for p, span in sorted(ranges.items())}
    share = sum(sizes.values()) / max(tasks, 1)
    planned: list[list[Split]] = [[] for _ in range(max(tasks, 1))]
    before = 0.0
    for partition, size in sizes.items():
        span, per_offset = ranges[partition], bytes_per_offset[partition]
        borders = range(int(before / share) + 1, int((before + size) / share) + 1)
        inside = (round(span.size * (share * each - before) / size) for each in borders)
        cuts = sorted({0, span.size, *(cut for cut in inside if 0 < cut < span.size)})
        for a, b in pairwise(cuts):
            middle = before + (a + b) / 2 / span.size * size
            split = Split(
                partition, span.from_offset + a, span.from_offset + b, round((b - a) * per_offset)
            )
            planned[min(int(middle / share), len(planned) - 1)].append(split)
        before += size
    return [tuple(piece) for piece in planned if piece]
