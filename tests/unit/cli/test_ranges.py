"""`keyrange ranges` and `keyrange records` without a broker: what can be said, what is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import mmh3
import pytest

from commands import commanding
from keyrange.cli.ranges import commands as ranges
from keyrange.cli.ranges.commands import sample
from keyrange.cli.ranges.document import RangesPlan, document
from keyrange.errors import InvalidError
from keyrange.model.key_ranges import HASH_MAX
from keyrange.model.offsets import OffsetRange, TopicPartition
from keyrange.options import parse_options
from keyrange.source.planning import plan_cells, plan_read

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def owner(*arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = commanding.document("ranges", "owner", *arguments)
    return found


@pytest.mark.parametrize("key", ["N14228", "hex:00ff", ""])
def test_the_owner_of_a_key_needs_no_broker(key: str) -> None:
    content = {"hex:00ff": b"\x00\xff"}.get(key, key.encode())
    found = owner("--key", key, "--partitions", "8", "--ranges", "16")
    place = mmh3.hash64(content, 0, signed=False)[0] >> 1
    lo, hi = found["bounds"]
    assert found["hash"] == place
    assert lo <= place <= hi
    assert found["range"] == place * 16 // (HASH_MAX + 1)
    assert 0 <= found["partition"] < found["partitions"] == 8
    assert found["ranges"] == 16


def test_nobody_owns_a_null_key_beforehand() -> None:
    found = owner("--key", "null", "--partitions", "8", "--ranges", "16")
    assert [found[name] for name in ("partition", "hash", "range", "bounds")] == [None] * 4
    shown = commanding.run(
        "ranges", "owner", "--key", "null", "--partitions", "8", "--ranges", "16"
    ).stdout
    assert "as the producer chooses" in shown
    assert "that of each record's offset" in shown


def test_the_owner_names_the_partitioner_that_it_assumes() -> None:
    text = commanding.run(
        "ranges", "owner", "--key", "a", "--partitions", "2", "--ranges", "2"
    ).stdout
    assert "murmur2" in text
    assert "modulo" in text


def test_the_owner_is_told_without_spark() -> None:
    program = """
import sys
sys.modules["pyspark"] = None
sys.argv = ["keyrange", "ranges", "owner", "--key", "a", "--partitions", "2", "--ranges", "2"]
from keyrange.cli.main import main
main()
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("ranges", "owner", "--key", "a"),
        ("ranges", "owner", "--key", "a", "--partitions", "2"),
        ("ranges", "owner", "--key", "a", "--topic", "t", "--partitions", "2", "--ranges", "2"),
        ("ranges", "owner", "--key", "a", "--topic", "t,u"),
        ("ranges", "owner", "--key", "hex:z", "--partitions", "2", "--ranges", "2"),
        ("ranges", "owner", "--key", "a", "--partitions", "0", "--ranges", "2"),
        ("records", "--topic", "t"),
        ("records", "--key", "a", "--option", "KEYS=[]"),
        ("records", "--key", "a", "--limit", "0"),
    ],
    ids=" ".join,
)
def test_a_wrong_command_line_ends_with_2(arguments: tuple[str, ...]) -> None:
    result = commanding.run(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("ranges", "plan", "--topic", "t"), "kafka.bootstrap.servers"),
        (("ranges", "plan", "--option", "nope=1"), "'nope' does not exist"),
        (("ranges", "plan", "--option", "keyRanges={"), "keyRanges"),
        (("records", "--key", "a", "--topic", "t"), "kafka.bootstrap.servers"),
    ],
)
def test_wrong_options_are_one_error_of_the_catalogue(
    arguments: tuple[str, ...], said: str
) -> None:
    failure = commanding.run(*arguments).exception
    assert isinstance(failure, InvalidError)
    assert failure.condition.name == "INVALID_OPTIONS"
    assert said in str(failure)


@pytest.mark.parametrize(("null_keys", "first"), [("first", True), ("spread", False)])
def test_a_sample_puts_null_keys_where_the_query_has_them(null_keys: str, first: bool) -> None:
    """All in the first range they may make it hot, and the plan has to say so."""
    named = {"kafka.bootstrap.servers": "h:1", "subscribe": "t", "nullKeys": null_keys}
    reading: Any = SimpleNamespace(cluster=None, options=parse_options(named))
    assert sample(reading)._nulls_first is first


def planned(places: dict[TopicPartition, list[int]], **given: str) -> dict[str, Any]:
    """The document of a plan of 1,000 offsets of 10 bytes in `t-0` and 100 in `t-1`."""
    named = {"kafka.bootstrap.servers": "h:1", "subscribe": "t", "splitBy": "keyRange"}
    options = parse_options({**named, **given})
    ranges = {A: OffsetRange(0, 1000), B: OffsetRange(50, 150)}
    sizes = dict.fromkeys(ranges, 10.0)
    look = lambda partition: places.get(partition, [])  # noqa: E731
    by_key = options.key_ranges.split_by == "keyRange"
    cells = plan_cells(ranges, sizes, look, options) if by_key else []
    tasks = plan_read(ranges, sizes, look, options)
    samples = {partition: len(look(partition)) for partition in ranges}
    made = document(
        RangesPlan(tasks, cells, ranges, sizes, samples), options.key_ranges.split_by, 2
    )
    assert json.loads(json.dumps(made)) == made
    return made


def test_a_plan_says_who_reads_each_range_and_who_shares_a_partition() -> None:
    made = planned({}, keyRangesPerPartition="4", parallelism="4")
    first, second = made["partitions"]
    assert (made["offsets"], made["bytes"], len(made["tasks"])) == (1100, 11_000, 4)
    assert sum(row["records"] for row in first["ranges"]) == 1000
    assert sum(row["bytes"] for row in second["ranges"]) == 1000
    for partition in (first, second):
        assert {row["task"] for row in partition["ranges"]} == set(partition["tasks"])
        assert [row["index"] for row in partition["ranges"]] == [0, 1, 2, 3]
        for row in partition["ranges"]:
            splits = made["tasks"][row["task"]]["splits"]
            [split] = [each for each in splits if each["partition"] == partition["partition"]]
            assert split["ranges"] is None or any(
                lo <= row["range"][0] <= row["range"][1] <= hi for lo, hi in split["ranges"]
            )


def test_a_partition_is_fetched_once_by_those_that_share_it() -> None:
    four = {"keyRangesPerPartition": "4", "bytesPerTask": "0"}
    made = planned({}, **four)
    assert made["read_amplification"] == {"one_executor": 1.0, "without_sharing": 4.0}
    off = {"max.bytes.key.range.results": "0", "max.bytes.key.range.spill": "0"}
    alone = planned({}, **four, **off)
    assert alone["read_amplification"] == {"one_executor": 4.0, "without_sharing": 4.0}


def test_a_hot_range_is_marked() -> None:
    hot = HASH_MAX // 16 * 9
    made = planned({A: [hot] * 300}, keyRangesPerPartition="8", parallelism="2")
    [row] = [row for row in made["partitions"][0]["ranges"] if row["hot"]]
    assert row["range"][0] <= hot <= row["range"][1]
    assert row["records"] > 900
    assert made["partitions"][0]["sampled_records"] == 300


@pytest.mark.parametrize("split_by", ["partition", "offset"])
def test_other_splits_have_no_key_ranges(split_by: str) -> None:
    made = planned({}, splitBy=split_by, parallelism="2", bytesPerTask="0")
    assert made["read_amplification"] == {"one_executor": 1.0, "without_sharing": 1.0}
    assert [each["ranges"] for each in made["partitions"]] == [[], []]
    assert all(split["ranges"] is None for task in made["tasks"] for split in task["splits"])


def test_ranges_are_suggested_where_a_partition_holds_no_record(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All its offsets are markers of transactions, or were compacted away."""
    places = {A: [], B: [5, 5, 5, HASH_MAX]}
    sizes = SimpleNamespace(of=lambda _, pending: dict.fromkeys(pending, 10.0))
    monkeypatch.setattr(ranges, "_places", lambda _, partition, __: places[partition])
    monkeypatch.setattr(ranges, "sample", lambda _: sizes)
    named = {"kafka.bootstrap.servers": "h:1", "subscribe": "t", "splitBy": "keyRange"}
    options = parse_options(named | {"keyRangesPerPartition": "2"})
    pending = {A: OffsetRange(0, 2), B: OffsetRange(0, 4)}
    reading: Any = SimpleNamespace(options=options, pending=pending, view=None)
    ranges._suggest(reading)
    shown = capsys.readouterr()
    assert [len(json.loads(shown.out)["t"][number]) for number in "01"] == [2, 2]
    assert shown.err.splitlines() == [
        "t-0: 2 ranges by a sample of 0 records",
        "t-1: 2 ranges by a sample of 4 records; the heaviest key has 75.0% of it",
    ]
