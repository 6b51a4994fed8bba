"""Record batches that wait in a file of their task: a sender gets all rows, those of a partition in
their order, however the rows came."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from kafka.record import MemoryRecords

from keyrange.errors import KeyrangeError
from keyrange.sending.shard_sender import FileRows
from keyrange.storage.data_files import DataFile
from keyrange.storage.directory import Directory
from keyrange.wire.produced_batches import seal
from keyrange.wire.topic_limits import BatchSettings
from keyrange.work.staged_batches import StagedBatches

COUNTS = {"one": 3, "two": 1}


def staged(home: Path, topic: str, rows: list[pa.RecordBatch], **given: int) -> list[DataFile]:
    writer = StagedBatches(
        *(Directory(f"{home}/plan-x").create, "plan-x", topic, BatchSettings(batch_bytes=2_000)),
        *(COUNTS.__getitem__,),
        **given,
    )
    for batch in rows:
        writer.add(batch)
    return writer.finish()


def sent(home: Path, files: list[DataFile]) -> dict[tuple[str, int], list[tuple[bytes, bytes]]]:
    """Keys and values of each partition, as kafka-python reads what a sender seals."""
    found: dict[tuple[str, int], list[tuple[bytes, bytes]]] = {}
    for batch in FileRows(tuple(files), 0, str(home)):
        data = batch.content
        seal(data, 1, 0, 0)
        records = list(MemoryRecords(data.tobytes()).next_batch() or ())
        assert len(records) == batch.records
        assert len(data) == batch.size_bytes
        found.setdefault((batch.partition.topic, batch.partition.partition), []).extend(
            (each.key, each.value) for each in records
        )
    return found


def pieces(random: Random, table: pa.Table) -> list[pa.RecordBatch]:
    cuts = sorted(random.choices(range(table.num_rows + 1), k=random.randrange(9)))
    bounds = zip([0, *cuts], [*cuts, table.num_rows], strict=True)
    return [
        batch for start, end in bounds for batch in table.slice(start, end - start).to_batches()
    ]


@pytest.mark.parametrize("seed", range(20))
def test_all_rows_come_in_the_order_of_their_partition(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    count = random.randrange(1, 400)
    rows = [(b"k%d" % random.randrange(9), b"%d" % number) for number in range(count)]
    names = [random.choice(["one", "two"]) for _ in rows]
    columns = {"key": [key for key, _ in rows], "value": [value for _, value in rows]}
    is_routed = random.random() < 0.5
    if is_routed:
        columns["topic"] = names
    table = pa.table(columns)
    files = staged(
        tmp_path,
        "" if is_routed else "one",
        pieces(random, table),
        waiting_bytes=random.choice((0, 500, 1 << 20)),
    )
    assert [each.rows for each in files] == [count]
    found = sent(tmp_path, files)
    wanted: dict[tuple[str, bytes], list[bytes]] = {}
    for (key, value), name in zip(rows, names, strict=True):
        wanted.setdefault((name if is_routed else "one", key), []).append(value)
    by_key: dict[tuple[str, bytes], list[bytes]] = {}
    for (topic, number), records in found.items():
        assert number < COUNTS[topic]
        for key, value in records:
            by_key.setdefault((topic, key), []).append(value)
    assert by_key == wanted
    # A key is in one partition.
    assert sum(len({key for key, _ in each}) for each in found.values()) == len(wanted)


def test_a_file_that_was_damaged_is_named_and_nothing_of_it_sent(tmp_path: Path) -> None:
    random = Random(1)
    values = [b"%d" % number * 5 for number in range(60)]
    rows = pa.RecordBatch.from_pydict({"key": values, "value": values})
    [file] = files = staged(tmp_path, "one", [rows])
    written = sent(tmp_path, files)
    path = tmp_path / file.name
    whole = path.read_bytes()
    refused: list[KeyrangeError] = []
    for at in range(random.randrange(5), len(whole), 5):
        damaged = bytearray(whole)
        damaged[at] ^= 1 << random.randrange(8)
        path.write_bytes(damaged)
        try:
            # Some bytes of such a file say nothing.
            assert sent(tmp_path, files) == written
        except KeyrangeError as failure:
            refused.append(failure)
    assert {each.condition.name for each in refused} == {"VERDICT_DAMAGED"}
    assert all(file.name in each.message for each in refused)
    assert len(refused) > len(whole) // 5 // 2


def test_a_task_without_rows_leaves_no_file(tmp_path: Path) -> None:
    assert staged(tmp_path, "one", []) == []
    assert staged(tmp_path, "one", [pa.RecordBatch.from_pydict({"value": pa.nulls(0)})]) == []
    assert not [*tmp_path.iterdir()]


def test_a_row_that_the_topic_does_not_take_any_more_ends_the_task(tmp_path: Path) -> None:
    rows = pa.RecordBatch.from_pydict({"value": [b"v"], "partition": [3]})
    with pytest.raises(KeyrangeError, match=r"INVALID_RECORD.*partition is 3, and the topic has 3"):
        staged(tmp_path, "one", [rows])
