"""The key ranges of a consumer over a scripted broker, and what tests do with them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from brokers.scripted_broker import Fetched, ScriptedCluster, World
from keyrange.consumer.owned_ranges import OwnedRanges
from keyrange.consumer.settings import parse_consumer_options
from keyrange.individual_commits.model.auditing import Handovers, audit
from keyrange.individual_commits.table.commit_table import LAYOUT, DeltaCommitTable
from keyrange.members.range_listener import KeyRangeListener
from keyrange.model.offsets import TopicPartition
from keyrange.storage.delta_store import DeltaStore
from samples.strategies import Batch, Record, encode_batch

FIRST = TopicPartition("t", 0)


def a_key_each(offset: int, count: int) -> Fetched:
    """The records from an offset on of a log of so many, each with a key of its own."""
    records = (Record(n, key=b"%d" % (offset + n)) for n in range(count - offset))
    return Fetched(encode_batch(Batch(offset, tuple(records))), count)


def options_at(path: Path, **given: str) -> dict[str, str]:
    """Of a consumer of group `g`, whose commits are at `path`."""
    return {
        "kafka.bootstrap.servers": "h:1",
        "commitTable": str(path / "commits"),
        "commitGroup": "g",
        "mirrorOffsets": "false",
        "startingOffsets": "earliest",
        **given,
    }


def holding(
    world: World, path: Path, slot: str = "a", fails: bool = True, **given: str
) -> OwnedRanges:
    """What a slot of group `g` holds, whose commits are at `path`; `fails` where data is lost."""
    options = options_at(path, **{"failOnDataLoss": str(fails).lower(), **given})
    level = given.get("kafka.isolation.level", "read_uncommitted")
    cluster: Any = ScriptedCluster(world, isolation_level=level)
    return OwnedRanges(parse_consumer_options(options), cluster, slot)


def batches(
    made: OwnedRanges, listener: KeyRangeListener | None = None
) -> Iterator[pa.RecordBatch]:
    """What comes now."""
    for _ in range(5):
        _, batch = made.next(listener or KeyRangeListener()) or (None, None)
        if batch is not None:
            yield batch


def polled(made: OwnedRanges, listener: KeyRangeListener | None = None) -> list[int]:
    """The offsets of what comes now."""
    return [at for batch in batches(made, listener) for at in batch.column("offset").to_pylist()]


def acknowledged(made: OwnedRanges, *offsets: int) -> int:
    return made.acknowledge(FIRST, np.array(offsets))


def done(made: OwnedRanges, *offsets: int) -> int:
    """Acknowledged and committed; how many of them counted."""
    found = acknowledged(made, *offsets)
    made.commit()
    return found


def commits_of(path: Path, slot: str) -> DeltaCommitTable:
    store = DeltaStore(str(path / "commits"), LAYOUT, {})
    return DeltaCommitTable(store, f"consumer/g/{slot}")


def commits_fit(path: Path, *slots: str) -> bool:
    """Whether what each slot has committed contradicts nothing."""
    histories = {f"consumer/g/{slot}": list(commits_of(path, slot).history()) for slot in slots}
    handovers = Handovers(histories)
    return not [each for found in histories.values() for each in audit(found, handovers)]
