"""splitBy=offset: consumers share records whose order does not matter, also those of one key."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from brokers.scripted_broker import Fetched, World
from keyrange.consumer import owned_ranges, reading_order
from keyrange.consumer.owned_ranges import OwnedRanges
from keyrange.errors import KeyrangeError
from keyrange.members.range_listener import KeyRangeListener
from keyrange.model.key_ranges import SPACE, KeyRange, hash_of, split_evenly
from queries.scripted_consumer import FIRST, batches, commits_fit, done, holding, polled
from samples.strategies import Batch, Record, encode_batch

LOW, HIGH = split_evenly(SPACE, 2)
COUNT = 40


def of_two_keys(offset: int, count: int) -> Fetched:
    records = (
        Record(n, key=b"odd" if (offset + n) % 2 else b"even") for n in range(count - offset)
    )
    return Fetched(encode_batch(Batch(offset, tuple(records))), count)


@pytest.fixture
def world() -> World:
    """A log of 40 records of two keys, that may grow."""
    made = World(lambda _node, _partition, offset: of_two_keys(offset, made.latest), latest=COUNT)
    return made


def sharing(
    world: World, path: Path, slot: str, *spans: KeyRange, split_by: str = "offset", **given: str
) -> OwnedRanges:
    made = holding(world, path, slot, splitBy=split_by, **given)
    made.take(world.view(), {FIRST: list(spans)})
    return made


def test_records_of_one_key_come_to_several(world: World, tmp_path: Path) -> None:
    low, high = (sharing(world, tmp_path, s, span) for s, span in (("a", LOW), ("b", HIGH)))
    mine, theirs = list(batches(low)), list(batches(high))
    for found, span in ((mine, LOW), (theirs, HIGH)):
        table = pa.Table.from_batches(found)
        assert set(table.column("key").to_pylist()) == {b"even", b"odd"}
        places = [hash_of(at.to_bytes(8, "big")) for at in table.column("offset").to_pylist()]
        assert table.column("keyHash").to_pylist() == places
        assert all(map(span.contains, places))
    offsets = [at for batch in (*mine, *theirs) for at in batch.column("offset").to_pylist()]
    assert sorted(offsets) == list(range(COUNT))


def test_a_rebalance_in_the_middle(world: World, tmp_path: Path) -> None:
    """Records that wait go to the new owner of their offsets, and nothing that is done."""
    first = sharing(world, tmp_path, "a", SPACE)
    assert polled(first) == list(range(COUNT))
    done(first, *range(0, COUNT, 3))
    second = sharing(world, tmp_path, "b", HIGH)
    with pytest.raises(KeyrangeError, match="COMMITS_FENCED"):
        done(first, 1, 2)
    first.drop()
    first.take(world.view(), {FIRST: [LOW]})
    world.latest = COUNT + 10
    mine, theirs = polled(first), polled(second)
    left = [each for each in range(COUNT + 10) if each >= COUNT or each % 3]
    assert sorted([*mine, *theirs]) == left
    assert {at for at in left if LOW.contains(hash_of(at.to_bytes(8, "big")))} == set(mine)
    done(first, *mine)
    done(second, *theirs)
    assert first.committed(FIRST) == COUNT + 10
    assert commits_fit(tmp_path, "a", "b")


class GivenUp(KeyRangeListener):
    def __init__(self) -> None:
        self.offsets: list[int] = []

    def on_deliveries_spent(self, records: pa.RecordBatch) -> None:
        self.offsets += records.column("offset").to_pylist()


@pytest.mark.parametrize("split_by", ["offset", "keyRange"])
def test_a_record_that_waits_too_long_comes_alone_and_is_given_up(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, split_by: str
) -> None:
    """By key those come with it that wait of its key."""
    now_ms = 0
    for module in (owned_ranges, reading_order):
        monkeypatch.setattr(module, "passed_ms", lambda: now_ms)
    given = {"gap.timeout.ms": "100", "maxDeliveries": "2", "maxBatchRows": "10"}
    made = sharing(world, tmp_path, "a", SPACE, split_by=split_by, **given)
    first = made.next(KeyRangeListener())
    assert first is not None
    done(made, *[at for at in range(10) if at != 4])
    now_ms = 50
    assert polled(made) == list(range(10, COUNT))
    now_ms = 120
    with_it = [4] if split_by == "offset" else [4, *range(10, COUNT, 2)]
    assert polled(made) == with_it
    done(made, *range(10, COUNT))
    listener, now_ms = GivenUp(), 240
    assert polled(made, listener) == []
    assert listener.offsets == [4]
    assert made.commit() == {FIRST: COUNT}


def test_keys_are_asked_for_by_their_bytes(world: World, tmp_path: Path) -> None:
    made = sharing(world, tmp_path, "a", SPACE, keys='["odd"]')
    assert polled(made) == list(range(1, COUNT, 2))


def test_records_in_hand_are_of_the_places_that_they_were_handed_out_by(
    world: World, tmp_path: Path
) -> None:
    before = sharing(world, tmp_path, "a", SPACE, split_by="keyRange")
    polled(before)
    done(before, *range(0, COUNT, 2))
    changed = "COMMIT_TERMS_CHANGED.*splitBy was keyRange and is offset"
    with pytest.raises(KeyrangeError, match=changed):
        sharing(world, tmp_path, "a", SPACE)
    done(before, *range(1, COUNT, 2))
    after = sharing(world, tmp_path, "a", SPACE)
    world.latest = COUNT + 2
    assert polled(after) == [COUNT, COUNT + 1]
    done(after, COUNT + 1)
    with pytest.raises(KeyrangeError, match="splitBy was offset and is keyRange"):
        sharing(world, tmp_path, "b", SPACE, split_by="keyRange")
