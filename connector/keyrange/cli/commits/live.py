"""What the broker says of the partitions that a commit table knows.

Rule of this file: nothing of Spark. Only commands that are told to ask the broker come here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer

from keyrange.cli.render import note

if TYPE_CHECKING:
    import pyarrow as pa

    from keyrange.cli.commits.recount import Log, Numbers
    from keyrange.cli.waiting import Waiting
    from keyrange.commits.model.state import PartitionState
    from keyrange.kafka.cluster import Cluster
    from keyrange.kafka.model.offsets import OffsetRange, TopicPartition
    from keyrange.kafka.view import ClusterView
    from keyrange.options import SourceOptions


@dataclass(frozen=True, slots=True)
class Live:
    """A cluster that answers, and those of the partitions that are still the same ones there."""

    options: SourceOptions
    cluster: Cluster
    view: ClusterView
    partitions: frozenset[TopicPartition]

    def logs(self) -> dict[TopicPartition, OffsetRange]:
        """From where to where the logs of the partitions go."""
        from keyrange.kafka.model.offsets import EARLIEST, LATEST, OffsetRange

        first, last = self.offsets_at(EARLIEST), self.offsets_at(LATEST)
        return {each: OffsetRange(first[each], last[each]) for each in first}

    def offsets_at(self, which: int) -> dict[TopicPartition, int]:
        """EARLIEST, LATEST, or the first record not before a time in ms (-1: there is none)."""
        if not self.partitions:
            return {}
        wanted = dict.fromkeys(sorted(self.partitions), which)
        found = self.cluster.list_offsets(self.view, wanted)
        return {partition: at for partition, (at, _) in found.items()}


@contextmanager
def ask(
    named: Mapping[str, str],
    states: Mapping[TopicPartition, PartitionState],
    columns: Iterable[str] = (),
) -> Iterator[Live]:
    """Ask for partitions. What is deleted or was made anew is left out, with a note on stderr.

    `named` are options of the source; `columns` those that are read. Raises what the source raises.
    """
    from keyrange.kafka.cluster import Cluster
    from keyrange.options import parse_options

    topics = sorted({partition.topic for partition in states})
    wanted = {**named, "subscribe": ",".join(topics) or "none"}
    if chosen := ",".join(columns):
        wanted["columns"] = chosen
    options = parse_options(wanted, "batch")
    cluster = Cluster(options.client)
    try:
        view = cluster.describe(topics, may_miss=topics)
        there = set(view.partitions())
        same = set()
        for partition, state in sorted(states.items()):
            topic_id = view.topic_id(partition.topic)
            if partition not in there:
                note(f"{partition} is not in the cluster any more")
            elif state.topic_id and topic_id and topic_id != state.topic_id:
                note(f"{partition} is another topic by now, the commits are of {state.topic_id}")
            else:
                same.add(partition)
        yield Live(options, cluster, view, frozenset(same))
    finally:
        cluster.close()


def check_live(live: bool, named: Mapping[str, str]) -> None:
    """Raises typer.BadParameter (exit code 2) where a broker is to be asked and none is named."""
    if live and "kafka.bootstrap.servers" not in {name.lower() for name in named}:
        raise typer.BadParameter("--live needs --bootstrap-servers")


def read_places(
    live: Live, states: Mapping[TopicPartition, PartitionState], bars: Waiting
) -> dict[TopicPartition, Log]:
    """The offsets of the records below the positions, and where their keys lie. The columns asked
    for must be topic, partition, offset and keyHash."""
    import numpy as np

    from keyrange.cli.commits.recount import Log
    from keyrange.kafka.fetching.fetch import SplitReader
    from keyrange.kafka.fetching.read_settings import read_settings
    from keyrange.kafka.model.offsets import OffsetRange
    from keyrange.ranges.model.splits import Split

    reader = SplitReader(live.cluster, live.view, read_settings(live.options))
    found: dict[TopicPartition, Log] = {}
    for partition, held in sorted(live.logs().items()):
        until = max(min(states[partition].position, held.until_offset), held.from_offset)
        span = OffsetRange(held.from_offset, until)
        pieces = []
        if span.size:
            split = Split(*partition, span.from_offset, span.until_offset, bytes_estimate=0)
            with bars.step(f"reading {partition}", span.size) as advance:
                for batch in reader.read([split]):
                    pieces.append(_columns(batch))
                    advance(batch.num_rows)
        offsets = [piece[0] for piece in pieces] or [np.empty(0, np.int64)]
        places = [piece[1] for piece in pieces] or [np.empty(0, np.int64)]
        found[partition] = Log(span, np.concatenate(offsets), np.concatenate(places))
        note(f"{partition}: {len(found[partition].offsets):,} records in {span} of the log")
    return found


def _columns(batch: pa.RecordBatch) -> tuple[Numbers, Numbers]:
    # Copied: a batch's buffers may be filled anew.
    offsets = batch.column("offset").to_numpy(zero_copy_only=False).copy()
    return offsets, batch.column("keyHash").to_numpy(zero_copy_only=False).copy()
