"""The files of a Spark checkpoint: read as Spark writes them, refused by name where not."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyrange.errors import InvalidError
from keyrange.model.checkpoint import Checkpoint
from keyrange.model.offsets import OFFSET_MAX, OffsetRange, TopicPartition
from keyrange.storage.model.spark_log import (
    CheckpointProgress,
    as_jvm_offsets,
    first_positions,
    jvm_offset,
    next_positions,
    ranges_of,
    read_initial_offsets,
    read_planned_batch,
    read_progress,
    write_initial_offsets,
)
from samples import strategies  # noqa: F401  registers the hypothesis profiles

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
METADATA = '{"batchWatermarkMs":0,"batchTimestampMs":1700000000123,"conf":{}}'


def batch(batch_id: int, *lines: str) -> str:
    return "\n".join(("v1", METADATA, *lines))


def test_a_planned_batch_holds_the_end_of_every_source() -> None:
    read = read_planned_batch(3, batch(3, '{"t":{"0":5}}', "-", '{"u":{"0":7}}'))
    assert read.batch_id == 3
    assert read.planned_at_ms == 1_700_000_000_123
    assert read.ends == (Checkpoint({T0: 5}, foreign=True), None, Checkpoint({U0: 7}, foreign=True))


@pytest.mark.parametrize("line", ["-", "", "5", "[", "[" * 100_000, '{"sourceVersion":1}'])
def test_an_offset_of_another_source_is_none(line: str) -> None:
    assert read_planned_batch(0, batch(0, line, "-")).ends[0] is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "v2\n{}\n-",
        "{}",
        "v1",
        "v1\n",
        "v1\n[]\n-",
        "v1\n5\n-",
        "v1\n{\n-",
        'v1\n{"batchTimestampMs":null}\n-',
        'v1\n{"batchTimestampMs":"x"}\n-',
        'v1\n{"batchTimestampMs":1e999}\n-',
        'v1\n{"batchTimestampMs":-1}\n-',
        'v1\n{"batchTimestampMs":253402300800000}\n-',
        "v1\n" + "[" * 100_000,
    ],
    ids=lambda text: text[:30],
)
def test_a_file_that_is_not_sparks_is_refused(text: str) -> None:
    with pytest.raises(InvalidError) as caught:
        read_planned_batch(9, text)
    assert caught.value.condition.name == "UNSUPPORTED_CHECKPOINT"
    assert "offsets of batch 9 " in caught.value.message


def test_what_is_planned_above_the_last_commit_is_unfinished() -> None:
    planned = [read_planned_batch(number, batch(number, "-")) for number in (2, 0, 1)]
    progress = read_progress("q", planned, [0, 1])
    assert [each.batch_id for each in progress.planned] == [0, 1, 2]
    assert [each.batch_id for each in progress.unfinished] == [2]
    assert [each.batch_id for each in read_progress("q", planned, []).unfinished] == [0, 1, 2]


def test_a_batch_reads_from_the_end_before_or_from_its_initial_positions() -> None:
    before = read_planned_batch(0, batch(0, '{"t":{"0":5}}'))
    initial = '{"@keyrange":{"version":1,"initial":{"t":{"1":2}}},"t":{"0":8,"1":4}}'
    rows = ranges_of(read_planned_batch(1, batch(1, initial, "-")), before)
    assert rows == [
        {"source": 0, "partition": T0, "range": OffsetRange(5, 8)},
        {"source": 0, "partition": T1, "range": OffsetRange(2, 4)},
    ]
    [row] = ranges_of(before, None)
    assert row["range"] is None


def test_an_offset_of_a_newer_version_is_refused_and_not_taken_for_foreign() -> None:
    newer = '{"@keyrange": {"version": 99}}'
    with pytest.raises(InvalidError, match="UNSUPPORTED_CHECKPOINT"):
        read_planned_batch(3, f'v1\n{{"batchTimestampMs": 1}}\n{newer}')


def progress(*lines: str, committed: int) -> CheckpointProgress:
    """Batches 0, 1, ... of a query with one source, by the source's offsets."""
    planned = [read_planned_batch(number, batch(number, line)) for number, line in enumerate(lines)]
    return read_progress("q", planned, range(committed + 1))


def own(positions: str, **extra: object) -> str:
    """An offset of keyrange's."""
    return json.dumps({"@keyrange": {"version": 1, **extra}, **json.loads(positions)})


def test_the_next_offsets_are_the_end_of_the_last_committed_batch() -> None:
    read = progress(own('{"t":{"0":5}}'), own('{"t":{"0":8,"1":4}}'), committed=1)
    assert next_positions(read, 0) == {T0: 8, T1: 4}
    assert next_positions(read, 1) == {}


def test_the_next_offsets_of_an_unfinished_batch_are_where_it_began() -> None:
    """Partition 1 came with it; topic u, which was there before it, is gone."""
    first = own('{"t":{"0":5},"u":{"0":3}}')
    second = own('{"t":{"0":8,"1":4}}', initial={"t": {"1": 2}})
    assert next_positions(progress(first, second, committed=0), 0) == {T0: 5, T1: 2}


def test_a_topic_that_was_recreated_is_read_from_where_the_unfinished_batch_began() -> None:
    second = own('{"t":{"0":3}}', initial={"t": {"0": 0}})
    assert next_positions(progress(own('{"t":{"0":5}}'), second, committed=0), 0) == {T0: 0}


def test_the_next_offsets_of_a_query_without_a_commit_are_the_initial_ones() -> None:
    assert next_positions(
        progress(own('{"t":{"0":8}}', initial={"t": {"0": 2}}), committed=-1), 0
    ) == {T0: 2}
    assert next_positions(progress(own('{"t":{"0":8}}'), committed=-1), 0) == {T0: None}


def test_the_jvm_connectors_first_batch_began_at_its_initial_offsets() -> None:
    planned = [read_planned_batch(0, batch(0, "-", '{"t":{"0":5,"1":6}}', own('{"u":{"0":7}}')))]
    read = read_progress("q", planned, [], {1: {T0: 2}, 2: {U0: 1}})
    assert next_positions(read, 1) == {T0: 2, T1: None}
    assert next_positions(read, 2) == {U0: None}
    later = [read_planned_batch(1, batch(1, '{"t":{"0":5}}'))]
    assert next_positions(read_progress("q", later, [], {0: {T0: 2}}), 0) == {T0: None}


def test_a_copy_begins_where_the_oldest_batch_on_file_began() -> None:
    first, second = own('{"t":{"0":5}}', initial={"t": {"0": 2}}), own('{"t":{"0":8,"1":4}}')
    assert first_positions(progress(first, second, committed=1), 0) == {T0: 2}
    assert first_positions(progress(second, committed=0), 0) == {T0: 8, T1: 4}
    assert first_positions(progress("-", committed=0), 0) == {}


def test_only_keyranges_offsets_are_rewritten() -> None:
    others = ["-", '{"sourceVersion": 1}', '{"u": {"0": 7}}', '{"path":"a\u2028b"}']
    mine = own('{"u":{"0":7},"t":{"10":1,"9":2}}', topicIds={"t": "x"})
    text = batch(4, others[0], mine, *others[1:])
    written = as_jvm_offsets(text)
    assert written.split("\n")[2:] == [
        others[0],
        '{"t":{"9":2,"10":1},"u":{"0":7}}',
        *others[1:],
    ]
    assert written.split("\n")[:2] == text.split("\n")[:2]
    assert as_jvm_offsets(written) == written


names = st.from_regex(r"[A-Za-z0-9._-]{1,9}", fullmatch=True).filter(lambda n: n not in (".", ".."))
positions = st.dictionaries(
    st.builds(TopicPartition, names, st.integers(0, 2**31 - 1)), st.integers(0, OFFSET_MAX)
)


@given(positions)
def test_initial_offsets_are_read_as_they_are_written(written: dict[TopicPartition, int]) -> None:
    data = write_initial_offsets(written)
    assert data.startswith(b"\0v1\n{")
    assert b" " not in data
    assert read_initial_offsets(data) == written


def test_initial_offsets_of_spark_2_1_0_have_a_length_and_no_version() -> None:
    document = b'{"kafka-initial-offset-2-1-0":{"2":0,"1":0,"0":0}}'
    read = read_initial_offsets(bytes([len(document)]) + document)
    assert read == {TopicPartition("kafka-initial-offset-2-1-0", number): 0 for number in range(3)}


def test_initial_offsets_of_a_newer_version_are_refused_naming_it() -> None:
    with pytest.raises(InvalidError, match="format version 99999, known is up to 1") as caught:
        read_initial_offsets(b'\0v99999\n{"t":{"0":1}}')
    assert caught.value.condition.name == "UNSUPPORTED_CHECKPOINT"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0",
        b"\0v1",
        b"\0v1\n",
        b"\0v\n{}",
        b"\0v0\n{}",
        b"\0v-1\n{}",
        b"\0vx\n{}",
        b"\0v" + b"9" * 5_000 + b"\n{}",
        b"\0v1\n[",
        b"\0v1\n[]",
        b"\0v1\n" + b"[" * 100_000,
        b'\0v1\n{"t":{"0":1',
        b'\0v1\n{"t":{"0":-1}}',
        b'\0v1\n{"t":{"0":"1"}}',
        b'\0v1\n{"t":1}',
        b"\0\xff\xfe",
        b'{"t":{"0":1}}',
    ],
    ids=lambda data: repr(data[:20]),
)
def test_damaged_initial_offsets_are_refused(data: bytes) -> None:
    with pytest.raises(InvalidError) as caught:
        read_initial_offsets(data)
    assert caught.value.condition.name == "INVALID_OFFSETS"


@given(positions, st.integers(0), st.integers(0, 255))
def test_a_changed_byte_is_read_or_refused_by_name(
    written: dict[TopicPartition, int], at: int, byte: int
) -> None:
    data = bytearray(write_initial_offsets(written))
    data[at % len(data)] = byte
    for damaged in (bytes(data), bytes(data[: at % len(data)])):
        condition = ""
        try:
            assert all(offset >= 0 for offset in read_initial_offsets(damaged).values())
        except InvalidError as failure:
            condition = failure.condition.name
        assert condition in ("", "INVALID_OFFSETS", "UNSUPPORTED_CHECKPOINT")


def test_positions_are_written_in_order_of_their_numbers() -> None:
    places = {TopicPartition("t", number): number for number in (10, 9)} | {
        TopicPartition("a", 0): 1
    }
    assert jvm_offset(places) == '{"a":{"0":1},"t":{"9":9,"10":10}}'
