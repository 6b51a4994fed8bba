"""The offset that Spark stores: what was written stays readable, and its text stays the same."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyrange.errors import InvalidError
from keyrange.model.checkpoint import Checkpoint, CommitMark, read_checkpoint, read_positions
from keyrange.model.key_ranges import HASH_MAX, SPACE, KeyRange
from keyrange.model.offsets import OFFSET_MAX, TopicPartition
from keyrange.model.query_ranges import EVERY
from samples import strategies  # noqa: F401  registers the hypothesis profiles

GOLDEN = Path(__file__).parents[2] / "golden"

partitions = st.builds(
    TopicPartition,
    st.from_regex(r"[A-Za-z0-9._-]{1,20}", fullmatch=True).filter(
        lambda name: name not in (".", "..")
    ),
    st.integers(0, 2**31 - 1) | st.integers(0, 12),
)
offsets = st.integers(0, OFFSET_MAX)
checkpoints = st.builds(
    Checkpoint,
    positions=st.dictionaries(partitions, offsets, max_size=6),
    topic_ids=st.dictionaries(st.text(max_size=5), st.text(max_size=22), max_size=3),
    leader_epochs=st.dictionaries(partitions, st.integers(-1, 2**31 - 1), max_size=3),
    initial=st.dictionaries(partitions, offsets, max_size=3),
    fresh=st.booleans(),
    absent=st.dictionaries(partitions, offsets, max_size=3),
    ownership=st.dictionaries(
        partitions, st.sampled_from([(SPACE,), (KeyRange(0, 5), KeyRange(6, 2**62))]), max_size=3
    ),
    commits=st.none()
    | st.builds(
        CommitMark,
        source_id=st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True),
        seq=offsets,
        due_ms=st.integers(-1, OFFSET_MAX),
        ranges=st.dictionaries(partitions, st.integers(1, 1024), max_size=3),
        pending_max=st.none() | st.integers(1, 10_000),
        keeps_order=st.none() | st.booleans(),
        deliveries_max=st.none() | st.integers(1, 100),
        resumes=st.none() | st.tuples(st.text(min_size=1, max_size=9), offsets),
        log_ends=st.dictionaries(partitions, offsets, max_size=3),
        cuts=st.dictionaries(
            partitions,
            st.sets(st.integers(1, HASH_MAX), min_size=1).map(lambda at: tuple(sorted(at))),
            max_size=3,
        ),
    ),
)


def as_text(document: Any) -> str:
    """As Spark's worker writes an offset: keys in the order that they come in."""
    return json.dumps(document, separators=(",", ":"))


def golden(name: str) -> str:
    return (GOLDEN / name).read_text().strip()


V1 = Checkpoint(
    positions={
        TopicPartition("orders", 0): 23,
        TopicPartition("orders", 1): 41,
        TopicPartition("orders", 10): OFFSET_MAX,
        TopicPartition("pay.ments-2_x", 0): 0,
    },
    topic_ids={"orders": "a9Yp3wWpQkSjpQ4bq8lK0g", "pay.ments-2_x": "AAAAAAAAAAAAAAAAAAAABQ"},
    leader_epochs={TopicPartition("orders", 0): 7, TopicPartition("orders", 1): 0},
    initial={TopicPartition("orders", 1): 40},
)
PARTIAL = Checkpoint(
    positions={TopicPartition("orders", 0): 23, TopicPartition("pay", 3): 4},
    ownership={
        TopicPartition("orders", EVERY): (KeyRange(0, 2**62),),
        TopicPartition("pay", 3): (KeyRange(5, 9), KeyRange(2**62, HASH_MAX + 1)),
    },
)
ABSENT = Checkpoint(
    positions={TopicPartition("orders", 0): 23},
    topic_ids={"old": "b" * 32, "orders": "a" * 32, "pay": "c" * 32},
    leader_epochs={TopicPartition("old", 0): 3, TopicPartition("orders", 0): 7},
    absent={
        TopicPartition("pay", 3): 4,
        TopicPartition("old", 0): 9,
        TopicPartition("old", 10): 0,
        TopicPartition("orders", 1): 41,
    },
)
COMMITS = Checkpoint(
    positions={TopicPartition("orders", 0): 23, TopicPartition("orders", 1): 41},
    commits=CommitMark("5d2f9c3ab8e04f6f", 17),
)
COMMITS_FULL = Checkpoint(
    positions={TopicPartition("orders", 0): 23, TopicPartition("orders", 1): 41},
    commits=CommitMark(
        "5d2f9c3ab8e04f6f",
        0,
        due_ms=1_750_000_000_000,
        ranges={TopicPartition("orders", 1): 16},
        pending_max=10_000,
        keeps_order=False,
        deliveries_max=5,
        resumes=("0c6d", 4),
        log_ends={TopicPartition("orders", 1): 50},
    ),
)
COMMITS_CUT = Checkpoint(
    positions={TopicPartition("orders", 0): 23},
    commits=CommitMark(
        "5d2f9c3ab8e04f6f", 17, cuts={TopicPartition("orders", 0): (2**61, 2**62 + 5, HASH_MAX)}
    ),
)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("checkpoint-v1.json", V1),
        ("checkpoint-v1-commits-cut.json", COMMITS_CUT),
        ("checkpoint-v1-commits.json", COMMITS),
        ("checkpoint-v1-commits-full.json", COMMITS_FULL),
        ("checkpoint-v1-fresh.json", Checkpoint({TopicPartition("orders", 0): 5}, fresh=True)),
        ("checkpoint-v1-partial.json", PARTIAL),
        ("checkpoint-v1-absent.json", ABSENT),
    ],
)
def test_version_1_is_read_and_written_as_it_always_was(name: str, expected: Checkpoint) -> None:
    assert read_checkpoint(json.loads(golden(name))) == expected
    assert as_text(expected.to_json()) == golden(name)


def test_an_offset_of_the_jvm_connector_is_read() -> None:
    positions = {
        TopicPartition("topicA", 0): 23,
        TopicPartition("topicA", 1): 345,
        TopicPartition("topicB", 0): 0,
    }
    read = read_checkpoint(json.loads(golden("checkpoint-jvm.json")))
    assert read == Checkpoint(positions, foreign=True)
    plain = read.to_json()
    del plain["@keyrange"]
    assert as_text(plain) == golden("checkpoint-jvm.json")


def test_who_wrote_an_offset_is_known_when_it_is_read_and_stored_nowhere() -> None:
    position = {TopicPartition("t", 0): 1}
    foreign = read_checkpoint({"t": {"0": 1}})
    assert foreign.foreign
    assert foreign.to_json() == Checkpoint(position).to_json()
    assert not read_checkpoint(foreign.to_json()).foreign


@given(checkpoints)
def test_what_is_written_is_read_back(checkpoint: Checkpoint) -> None:
    text = as_text(checkpoint.to_json())
    assert read_checkpoint(json.loads(text)) == checkpoint


@given(checkpoints, st.randoms(use_true_random=False))
def test_the_text_is_the_same_for_the_same_state(checkpoint: Checkpoint, random: Any) -> None:
    """Spark compares offsets as text: another order in a dict must not make another offset."""

    def shuffled(mapping: Any) -> dict[Any, Any]:
        entries = list(mapping.items())
        random.shuffle(entries)
        return dict(entries)

    mark = checkpoint.commits
    other = Checkpoint(
        shuffled(checkpoint.positions),
        shuffled(checkpoint.topic_ids),
        shuffled(checkpoint.leader_epochs),
        shuffled(checkpoint.initial),
        checkpoint.fresh,
        ownership=shuffled(checkpoint.ownership),
        commits=mark and replace(mark, ranges=shuffled(mark.ranges)),
        absent=checkpoint.absent,
    )
    assert as_text(other.to_json()) == as_text(checkpoint.to_json())


def test_partitions_stand_in_order_of_their_numbers() -> None:
    positions = {TopicPartition("t", number): 0 for number in (10, 9, 100, 1)}
    assert list(Checkpoint(positions).to_json()["t"]) == ["1", "9", "10", "100"]


def test_the_start_of_a_batch_is_the_initial_position_where_there_is_one() -> None:
    start = Checkpoint({TopicPartition("t", 0): 5, TopicPartition("t", 1): 6})
    end = Checkpoint({}, initial={TopicPartition("t", 1): 2, TopicPartition("t", 2): 3})
    starts = [end.start_of(TopicPartition("t", number), start) for number in range(4)]
    assert starts == [5, 2, 3, None]


@pytest.mark.parametrize("version", [3, 99999])
def test_a_newer_version_is_refused(version: int) -> None:
    with pytest.raises(InvalidError) as caught:
        read_checkpoint({"@keyrange": {"version": version}, "t": {"0": 1}})
    assert caught.value.condition.name == "UNSUPPORTED_CHECKPOINT"
    assert f"format version {version}, known is up to 1" in caught.value.message


HOSTILE: list[Any] = [
    None,
    [],
    "earliest",
    5,
    {"t": None},
    {"t": []},
    {"t": {"0": None}},
    {"t": {"0": "5"}},
    {"t": {"0": 1.0}},
    {"t": {"0": True}},
    {"t": {"0": -1}},
    {"t": {"0": OFFSET_MAX + 1}},
    {"t": {"0": float("nan")}},
    {"t": {"-1": 0}},
    {"t": {"": 0}},
    {"t": {"1.0": 0}},
    {"t": {" 1": 0}},
    {"t": {"²": 0}},
    {"t": {"٣": 0}},
    {"t": {str(2**31): 0}},
    {"t": {"9" * 5_000: 0}},
    {"": {"0": 0}},
    {"a b": {"0": 0}},
    {"t\n": {"0": 0}},
    {"ü": {"0": 0}},
    {"t" * 250: {"0": 0}},
    {"@other": {"0": 0}},
    {"@keyrange": None},
    {"@keyrange": []},
    {"@keyrange": {}},
    {"@keyrange": {"version": "1"}},
    {"@keyrange": {"version": True}},
    {"@keyrange": {"version": 0}},
    {"@keyrange": {"version": -1}},
    {"@keyrange": {"version": 1, "topicIds": []}},
    {"@keyrange": {"version": 1, "topicIds": {"t": 5}}},
    {"@keyrange": {"version": 1, "leaderEpochs": {"t": {"0": -2}}}},
    {"@keyrange": {"version": 1, "leaderEpochs": []}},
    {"@keyrange": {"version": 1, "initial": {"t": {"0": -1}}}},
    {"@keyrange": {"version": 1, "initial": {"t": 5}}},
    {"@keyrange": {"version": 1, "absent": {"t": {"0": 5}}}},
    {"@keyrange": {"version": 1, "absent": [5]}},
    {"@keyrange": {"version": 1, "absent": [{"t": {"0": -1}}]}},
    *(
        {"@keyrange": {"version": 1, "commits": mark}}
        for mark in (
            5,
            [],
            {},
            {"seq": 1},
            {"sourceId": "s"},
            {"sourceId": "", "seq": 1},
            {"sourceId": "../s", "seq": 1},
            {"sourceId": "/s", "seq": 1},
            {"sourceId": "..", "seq": 1},
            {"sourceId": "s\n", "seq": 1},
            {"sourceId": "s" * 65, "seq": 1},
            {"sourceId": 5, "seq": 1},
            {"sourceId": "s", "seq": -1},
            {"sourceId": "s", "seq": True},
            {"sourceId": "s", "seq": "1"},
            {"sourceId": "s", "seq": 1.0},
            {"sourceId": "s", "seq": OFFSET_MAX + 1},
            *(
                {"sourceId": "s", "seq": 1, **more}
                for more in (
                    {"dueMs": None},
                    {"dueMs": -2},
                    {"dueMs": False},
                    {"ranges": []},
                    {"ranges": {"t": {"0": 0}}},
                    {"ranges": {"t": {"x": 4}}},
                    {"pendingMax": 0},
                    {"pendingMax": "7"},
                    {"keepsOrder": 1},
                    {"deliveriesMax": 0},
                    {"logEnds": {"t": {"0": -1}}},
                    {"resumes": []},
                    {"resumes": {"seq": 1}},
                    {"resumes": {"sourceId": "s", "seq": None}},
                    {"cuts": 3},
                    {"cuts": {"t": [1, 2]}},
                    {"cuts": {"t": {"0": 5}}},
                    {"cuts": {"t": {"0": [0]}}},
                    {"cuts": {"t": {"0": [True]}}},
                    {"cuts": {"t": {"0": [7, 7]}}},
                    {"cuts": {"t": {"0": [HASH_MAX + 1]}}},
                )
            ),
        )
    ),
]


@pytest.mark.parametrize("document", HOSTILE, ids=lambda document: str(document)[:40])
def test_a_damaged_offset_is_refused_and_never_read_as_something_else(document: Any) -> None:
    with pytest.raises(InvalidError) as caught:
        read_checkpoint(document)
    assert caught.value.condition.name == "INVALID_OFFSETS"
    assert caught.value.message.startswith("the offsets cannot be read: ")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["@keyrange", "version", "t", "0"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(json_values)
def test_any_json_is_read_or_refused_by_name(document: Any) -> None:
    read, condition = None, ""
    try:
        read = read_checkpoint(document)
    except InvalidError as failure:
        condition = failure.condition.name
    if read is None:
        assert condition in ("INVALID_OFFSETS", "UNSUPPORTED_CHECKPOINT")
    else:
        assert read_checkpoint(read.to_json()) == replace(read, foreign=False)


def test_positions_of_options_may_be_earliest_and_latest_but_nothing_below() -> None:
    assert read_positions({"t": {"0": -2, "1": -1}}) == {
        TopicPartition("t", 0): -2,
        TopicPartition("t", 1): -1,
    }
    with pytest.raises(InvalidError, match="the offset of t-0 is -3"):
        read_positions({"t": {"0": -3}})
