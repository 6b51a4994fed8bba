"""When what waits comes again: by a clock that nobody sets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from keyrange.consumer import reading_order as reading_module
from keyrange.consumer.owned_ranges import OwnedRanges
from keyrange.consumer.settings import parse_consumer_options
from keyrange.kafka.cluster_view import ClusterView
from keyrange.members import status
from keyrange.members.range_listener import KeyRangeListener
from keyrange.model.key_ranges import SPACE
from keyrange.model.offset_splits import Split
from keyrange.model.offsets import TopicPartition

FIRST = TopicPartition("t", 0)
END = 10
GAP_MS = 300_000
HOUR_MS = 3_600_000


class Clock:
    """Stands for the module `time`."""

    def __init__(self) -> None:
        self.passed_ms, self.wall_ms = 50_000, 1_700_000_000_000

    def monotonic(self) -> float:
        return self.passed_ms / 1e3

    def monotonic_ns(self) -> int:
        return self.passed_ms * 1_000_000

    def time_ns(self) -> int:
        return self.wall_ms * 1_000_000

    def wait(self, ms: int) -> None:
        self.passed_ms += ms
        self.wall_ms += ms


class Reader:
    """Reads a log of END records."""

    bytes_received = 0

    def __init__(self, *_: object) -> None: ...

    def read(self, splits: list[Split]) -> Iterator[pa.RecordBatch]:
        for split in splits:
            offsets = list(range(split.from_offset, split.until_offset))
            rows = {"topic": split.topic, "partition": split.partition}
            columns = {name: [value] * len(offsets) for name, value in rows.items()}
            hashes = [each * 1_000 for each in offsets]
            yield pa.RecordBatch.from_pydict({**columns, "offset": offsets, "keyHash": hashes})


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    for module in (reading_module, status):
        monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(reading_module, "SplitReader", Reader)
    monkeypatch.setattr(
        OwnedRanges, "_begin", lambda _self, wanted, _later: dict.fromkeys(wanted, 0)
    )
    return clock


def holding(tmp_path: Path) -> OwnedRanges:
    options = {
        "kafka.bootstrap.servers": "h:1",
        "commitTable": str(tmp_path / "commits"),
        "commitGroup": "g",
        "mirrorOffsets": "false",
        "gap.timeout.ms": str(GAP_MS),
    }
    cluster: Any = SimpleNamespace(
        list_offsets=lambda _, wanted: dict.fromkeys(wanted, (END, 0)),
        describe=lambda _, may_miss: ClusterView("", {}, {}),
    )
    made = OwnedRanges(parse_consumer_options(options), cluster, "a")
    made.take(ClusterView("", {}, {}), {FIRST: [SPACE]})
    return made


def polled(made: OwnedRanges) -> int:
    """How many rows come."""
    rows = 0
    while (found := made.next(KeyRangeListener())) is not None:
        rows += len(found[1])
    return rows


def test_a_clock_that_is_set_hands_nothing_out_again(clock: Clock, tmp_path: Path) -> None:
    made = holding(tmp_path)
    begun_ms = clock.wall_ms
    assert polled(made) == END

    clock.wall_ms += HOUR_MS
    assert polled(made) == 0
    clock.wall_ms -= 3 * HOUR_MS
    clock.wait(GAP_MS - 1)
    assert polled(made) == 0
    clock.wait(1)
    assert polled(made) == END
    # The table is read by others, whose clocks passed otherwise.
    made._works[FIRST].acknowledge(made._works[FIRST]._stretches[-1].offsets[-1:])
    [piece] = made._works[FIRST].pieces()
    assert {record.since_ms for record in piece.pending} == {begun_ms}
