"""`keyrange ranges` and `keyrange records` against a real broker."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import mmh3
import pytest
from typer.testing import Result

from brokers.real_broker import Record, Topics
from commands.commanding import run
from commands.documents import read_document
from keyrange.cli import records as records_command
from keyrange.errors import InvalidError, KeyrangeError
from keyrange.kafka.messages.produce import partition_of
from keyrange.model.key_ranges import (
    SPACE,
    KeyRange,
    cover_once,
    hash_of,
    index_of,
    read_ranges,
    split_evenly,
)

PARTITIONS = 3
# A key in three is one and the same; some have none.
KEYS = [b"hot" if n % 3 == 0 else None if n % 10 == 1 else b"key-%d" % (n % 40) for n in range(600)]
pytestmark = pytest.mark.broker


@pytest.fixture(scope="module")
def topic(topics: Topics) -> str:
    name = topics.create_topic("keys", PARTITIONS)
    # A producer chooses a partition at random for records without a key, and each choice makes
    # other sizes of key ranges.
    chosen = [None if key is not None else n // 10 % PARTITIONS for n, key in enumerate(KEYS)]
    topics.produce(name, [Record(b"value %d" % n, key, chosen[n]) for n, key in enumerate(KEYS)])
    odd = [
        Record(b"\xff\x1b", b"\x00\xfe", 0),
        Record(None, b"", 0),
        Record(b"x" * 500, b"long", 0),
    ]
    topics.produce(name, odd)
    return name


def keyrange(topics: Topics, topic: str, *arguments: str) -> Result:
    servers = ["--bootstrap-servers", topics.cluster.bootstrap_servers, "--topic", topic]
    result = run(*arguments, *servers)
    if isinstance(result.exception, KeyrangeError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result


def found(topics: Topics, topic: str, *arguments: str) -> list[dict[str, Any]]:
    result = keyrange(topics, topic, "records", *arguments, "--output", "json")
    return [read_document(line) for line in result.stdout.splitlines()]


def test_records_of_a_key_are_all_of_them_in_order(topics: Topics, topic: str) -> None:
    rows = found(topics, topic, "--key", "hot", "--limit", "1000")
    assert [row["value"] for row in rows] == [f"value {n}" for n in range(0, 600, 3)]
    assert {row["key"] for row in rows} == {"hot"}
    assert [row["offset"] for row in rows] == sorted(row["offset"] for row in rows)


def test_records_of_several_keys_and_of_none(topics: Topics, topic: str) -> None:
    rows = found(topics, topic, "--key", "null", "--key", "key-5", "--limit", "1000")
    wanted = [n for n, key in enumerate(KEYS) if key in (None, b"key-5")]
    assert sorted(int(row["value"].split()[1]) for row in rows) == wanted
    assert {row["key"] for row in rows} == {None, "key-5"}


def test_bytes_that_are_no_text(topics: Topics, topic: str) -> None:
    [odd] = found(topics, topic, "--key", "hex:00fe")
    assert (odd["key"], odd["value"]) == ({"hex": "00fe"}, {"hex": "ff1b"})
    [empty] = found(topics, topic, "--key", "")
    assert (empty["key"], empty["value"]) == ("", None)
    table = keyrange(topics, topic, "records", "--key", "base64:AP4=", "--key", "").stdout
    assert "hex:00fe" in table
    assert "hex:ff1b" in table
    assert "null" in table


def test_a_day_that_python_does_not_have_is_shown_as_it_was_written(topics: Topics) -> None:
    topic = topics.create_topic("far", 1)
    topics.produce(topic, [b"\x02", b"\xfe\xff\xff\xff\x0f"])
    schema = '{"type":"int","logicalType":"date"}'
    options = [f"--option={each}" for each in ("valueFormat=avro", f"valueSchema={schema}")]
    near, far = found(topics, topic, "--last", "2", *options)
    assert (near["value"], far["value"]) == ("1970-01-02", {"hex": "feffffff0f"})
    assert far["_bad_value"].startswith("value: a time beyond those")
    assert near.get("_bad_value") is None


def test_a_table_cuts_long_values_and_json_does_not(topics: Topics, topic: str) -> None:
    table = keyrange(topics, topic, "records", "--key", "long").stdout
    assert "x" * 120 + "..." in table
    assert "x" * 121 not in table
    [row] = found(topics, topic, "--key", "long")
    assert row["value"] == "x" * 500


def test_a_limit_stops_the_reading_and_says_so(topics: Topics, topic: str) -> None:
    result = keyrange(topics, topic, "records", "--key", "hot", "--limit", "2", "--output", "json")
    assert len(result.stdout.splitlines()) == 2
    assert "2 records of --limit" in result.stderr


def test_a_key_that_no_record_has_is_named(topics: Topics, topic: str) -> None:
    result = keyrange(topics, topic, "records", "--key", "nobody", "--key", "long")
    assert "no record has the key nobody: 603 offsets looked through" in result.stderr
    assert "x" * 120 in result.stdout
    alone = keyrange(topics, topic, "records", "--key", "nobody", "--key", "hex:01")
    assert "no record has the keys nobody, hex:01" in alone.stderr
    assert alone.stdout == ""
    assert "no record" not in keyrange(topics, topic, "records", "--key", "long").stderr


def test_positions_say_where_to_look(topics: Topics, topic: str) -> None:
    [first, *_, last] = found(topics, topic, "--key", "hot", "--limit", "1000")
    span = {
        "startingOffsets": {topic: {str(first["partition"]): first["offset"] + 1}},
        "endingOffsets": {topic: {str(first["partition"]): last["offset"]}},
    }
    options = [f"--option={name}={json.dumps(at)}" for name, at in span.items()]
    options += ["--option=startingOffsetsDefault=earliest", "--option=endingOffsetsDefault=latest"]
    rows = found(topics, topic, "--key", "hot", "--limit", "1000", *options)
    assert len(rows) == 198
    later = found(topics, topic, "--key", "hot", "--option=startingTimestamp=0")
    assert later[0] == first


def test_the_last_records_of_each_partition(topics: Topics, topic: str) -> None:
    tails: dict[int, list[int]] = {}
    for row in found(topics, topic, "--follow", "--option=startingOffsets=earliest", "--limit=603"):
        tails.setdefault(row["partition"], []).append(row["offset"])
    rows = found(topics, topic, "--last", "2")
    wanted = [(number, at) for number in sorted(tails) for at in tails[number][-2:]]
    assert [(row["partition"], row["offset"]) for row in rows] == wanted
    all_hot = found(topics, topic, "--key", "hot", "--limit", "1000")
    assert found(topics, topic, "--key", "hot", "--last", "3") == all_hot[-3:]
    limited = keyrange(topics, topic, "records", "--last", "2", "--limit", "1")
    assert "1 records of --limit" in limited.stderr


def test_the_last_record_is_found_below_the_marker_of_its_transaction(topics: Topics) -> None:
    name = topics.create_topic("marked-last", 1)
    topics.produce_transaction(name, [Record(b"one", b"a", 0)])
    assert [row["value"] for row in found(topics, name, "--last", "1")] == ["one"]


def test_new_records_are_printed_as_they_come(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = topics.create_topic("followed", 2)
    topics.produce(name, [Record(b"before", b"a", 0)])
    coming = [[Record(b"one", b"a", 0)], [Record(b"two", None, 1), Record(b"a\nb", b"a", 1)]]

    def sleep(_: float) -> None:
        topics.produce(name, coming.pop(0))

    clock = SimpleNamespace(sleep=sleep, monotonic=time.monotonic)
    monkeypatch.setattr(records_command, "time", clock)
    lines = keyrange(topics, name, "records", "--follow", "--limit", "3").stdout.splitlines()
    cells = [line.split(" ") for line in lines]
    assert [cell[:3] for cell in cells] == [[name, "0", "1"], [name, "1", "0"], [name, "1", "1"]]
    assert [cell[4:] for cell in cells] == [["a", "one"], ["null", "two"], ["a", "a", "b"]]
    coming = [[Record(b"x", b"b", 0), Record(b"three", b"a", 0)]]
    rows = found(topics, name, "--key", "a", "--last", "1", "--follow", "--limit", "3")
    assert [row["value"] for row in rows] == ["one", "a\nb", "three"]


def test_a_format_is_as_kcat_has_it(topics: Topics) -> None:
    name = topics.create_topic("formatted", 1)
    headers = [("trace", b"t1"), ("odd", b"\xff")]
    topics.produce(name, [Record(b"v 1", b"k", 0, 1_234, headers), Record(None, b"\xff", 0, 5)])
    form = r"%t-%p:%o\t%k %v %s %T %h %% %x \\n\n"
    told = keyrange(topics, name, "records", "--last", "9", "--format", form).stdout
    assert told == (
        f"{name}-0:0\tk v 1 v 1 1234 trace=t1,odd=hex:ff % %x \\n\n"
        f"{name}-0:1\thex:ff null null 5  % %x \\n\n"
    )
    bare = keyrange(topics, name, "records", "--last", "9", "--format", "%k %o %v").stdout
    assert bare == "k 0 v 1\nhex:ff 1 null\n"
    refused = run("records", "--last", "1", "--format", "%k", "--output", "json")
    assert refused.exit_code == 2


def at_offset(topics: Topics, key_hash: str, *arguments: str) -> Result:
    servers = ["--bootstrap-servers", topics.cluster.bootstrap_servers]
    return run("records", "--offset", key_hash, *servers, *arguments)


def test_the_record_at_an_offset_is_that_one(topics: Topics, topic: str) -> None:
    wanted = found(topics, topic, "--key", "hot", "--limit", "1000")[7]
    result = at_offset(topics, f"{topic}-{wanted['partition']}:{wanted['offset']}", "--output=json")
    assert [read_document(line) for line in result.stdout.splitlines()] == [wanted]
    assert result.stderr == ""


def test_an_offset_that_the_log_does_not_hold_is_named_with_what_it_holds(
    topics: Topics, topic: str
) -> None:
    said = str(at_offset(topics, f"{topic}-0:999999").exception)
    assert f"--offset {topic}-0:999999 is not in the log, which holds [0, " in said
    assert "retention" not in said


def test_an_offset_without_a_record_says_so(topics: Topics) -> None:
    topic = topics.create_topic("marked", 1)
    topics.produce_transaction(topic, [Record(b"one", b"a", 0)])
    result = at_offset(topics, f"{topic}-0:1")
    assert result.exit_code == 0
    assert f"there is no record at {topic}-0:1" in result.stderr


@pytest.mark.parametrize(
    ("key_hash", "arguments", "said"),
    [
        ("orders", [], "TOPIC-PARTITION:OFFSET"),
        ("orders-0:-1", [], "TOPIC-PARTITION:OFFSET"),
        ("-0:1", [], "TOPIC-PARTITION:OFFSET"),
        ("orders-0:1", ["--topic", "orders"], "leave out subscribe"),
        ("orders-0:1", ["--option", "startingoffsets=earliest"], "leave out startingoffsets"),
        ("orders-0:1", ["--key", "a"], "--key, --last or --follow, or --offset"),
        ("", [], "--key, --last or --follow, or --offset"),
    ],
)
def test_an_offset_is_named_in_one_way(
    topics: Topics, key_hash: str, arguments: list[str], said: str
) -> None:
    result = at_offset(topics, key_hash, *arguments)
    assert result.exit_code == 2
    assert said in " ".join(result.stderr.split())


def test_a_long_scan_says_how_far_it_is(
    topics: Topics, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records_command, "_PASS_BYTES", 2_000)
    monkeypatch.setattr(records_command, "_PROGRESS_S", 0.0)
    result = keyrange(topics, topic, "records", "--key", "hot", "--limit", "1000")
    assert "looked through" in result.stderr
    assert "of 603 offsets" in result.stderr
    assert result.stdout.count("hot") == 200


def test_a_plan_covers_what_is_there(topics: Topics, topic: str) -> None:
    options = ["--option=parallelism=4", "--option=keyRangesPerPartition=4"]
    result = keyrange(topics, topic, "ranges", "plan", *options, "--output", "json")
    plan = read_document(result.stdout)
    assert plan["offsets"] == 603
    assert sum(each["sampled_records"] for each in plan["partitions"]) == 603
    assert any(row["hot"] for each in plan["partitions"] for row in each["ranges"])
    table = keyrange(topics, topic, "ranges", "plan", *options).stdout
    assert "read amplification without sharing" in table
    assert "hot" in table


def test_what_is_suggested_is_taken_and_more_even(topics: Topics, topic: str) -> None:
    four = "--option=keyRangesPerPartition=4"
    result = keyrange(topics, topic, "ranges", "plan", "--suggest", four)
    suggested = json.loads(result.stdout)[topic]
    assert "the heaviest key" in result.stderr
    option = f"--option=keyRanges={result.stdout.strip()}"
    plan = read_document(
        keyrange(topics, topic, "ranges", "plan", option, "--output", "json").stdout
    )
    for each in plan["partitions"]:
        cut = read_ranges(suggested[str(each["partition"])])
        assert len(each["ranges"]) == len(cut)
        assert cover_once(cut)
        assert _largest(each["partition"], cut) < _largest(
            each["partition"], split_evenly(SPACE, 4)
        )


def _largest(partition: int, ranges: Sequence[KeyRange]) -> int:
    """How many of the records with a key are in the fullest range of a partition."""
    key_hashes = [
        hash_of(key) for key in KEYS if key and partition_of(key, PARTITIONS) == partition
    ]
    return max(Counter(index_of(ranges, key_hash) for key_hash in key_hashes).values())


@pytest.mark.parametrize("key", ["hot", "key-5", "key-17"])
def test_the_owner_is_where_the_records_are(topics: Topics, topic: str, key: str) -> None:
    """kafka-python's producer has the partitioner of Java's."""
    option = "--option=keyRangesPerPartition=16"
    result = keyrange(topics, topic, "ranges", "owner", "--key", key, option, "--output", "json")
    owner = read_document(result.stdout)
    [row] = found(topics, topic, "--key", key, "--limit", "1")
    assert owner["partition"] == row["partition"]
    assert owner["partitions"] == PARTITIONS
    assert owner["hash"] == mmh3.hash64(key.encode(), 0, signed=False)[0] >> 1
    assert index_of(read_ranges([owner["bounds"]]), owner["hash"]) == 0


def test_the_owner_by_given_ranges_may_be_another_query(topics: Topics, topic: str) -> None:
    key_hash = mmh3.hash64(b"hot", 0, signed=False)[0] >> 1
    below = f"--option=keyRanges={json.dumps({topic: [[0, key_hash - 1]]})}"
    partial = "--option=keyRangesCoverage=partial"
    arguments = ("ranges", "owner", "--key", "hot", below, partial)
    assert "another query reads it" in keyrange(topics, topic, *arguments).stdout


def test_topics_that_are_not_to_be_split_are_refused(topics: Topics, topic: str) -> None:
    kept = f"--option=accept.range.fetch={json.dumps({topic: False})}"
    for arguments in (("plan",), ("plan", "--suggest"), ("owner", "--key", "a")):
        with pytest.raises(InvalidError, match="RANGE_FETCH_NOT_ACCEPTED"):
            keyrange(topics, topic, "ranges", *arguments, kept)


def test_a_topic_that_is_not_there_is_named(topics: Topics) -> None:
    for arguments in (("records", "--key", "a"), ("ranges", "plan")):
        with pytest.raises(InvalidError, match="no topic named nowhere"):
            keyrange(topics, "nowhere", *arguments)


def test_an_empty_topic_has_an_empty_plan(topics: Topics) -> None:
    empty = topics.create_topic("empty", 2)
    plan = read_document(keyrange(topics, empty, "ranges", "plan", "--output", "json").stdout)
    assert (plan["offsets"], plan["tasks"], plan["partitions"]) == (0, [], [])
    assert found(topics, empty, "--key", "a") == []
    result = keyrange(topics, empty, "ranges", "owner", "--key", "a", "--output", "json")
    assert read_document(result.stdout)["ranges"] == 1
