"""What people see of a group of consumers in its commit table, and set there by hand."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from deltalake import write_deltalake

from brokers.scripted_broker import World
from commands import commanding
from commands.documents import read_document
from keyrange.consumer.owned_ranges import OwnedRanges
from keyrange.members.range_listener import KeyRangeListener
from keyrange.model.key_ranges import SPACE, split_evenly
from queries.scripted_consumer import FIRST, a_key_each, commits_fit, done, holding, polled

LOW, HIGH = split_evenly(SPACE, 2)
TEN = World(lambda _node, _partition, offset: a_key_each(offset, 10), latest=10)


def two(path: Path) -> tuple[OwnedRanges, OwnedRanges]:
    """Consumers that have half of the keys each."""
    both = holding(TEN, path, "a"), holding(TEN, path, "b")
    for one, span in zip(both, (LOW, HIGH), strict=True):
        one.move(TEN.view(), {FIRST: [span]}, KeyRangeListener())
    return both


def test_what_is_done_is_shown_of_all_consumers(tmp_path: Path) -> None:
    first, second = two(tmp_path)
    done(first, *polled(first)[1:])
    done(second, *polled(second))
    line = ("commits", "show", tmp_path / "commits")
    [row] = commanding.document(*line)["partitions"]
    # Of the first one's keys the first record is left.
    assert (row["committed"], row["pending"], row["position"]) == (0, 1, 10)
    assert {each["scanned"] for each in row["ranges"]} == {10}
    [row] = commanding.document(*line, "--source", "consumer/g/b")["partitions"]
    assert {each["scanned"] for each in row["ranges"]} == {0, 10}


def test_a_sink_is_held_against_what_all_consumers_have_done(tmp_path: Path) -> None:
    for each in two(tmp_path):
        done(each, *polled(each))
    sink, line = tmp_path / "sink", ("commits", "verify", tmp_path / "commits", "--sink")
    rows = {"topic": ["t"] * 9, "partition": pa.array([0] * 9, pa.int32()), "offset": [*range(9)]}
    write_deltalake(str(sink), pa.table(rows))
    found = commanding.run(*line, sink, "--output", "json")
    assert found.exit_code == 1
    [row] = read_document(found.stdout)["partitions"]
    assert (row["until_offset"], row["missing"]["offsets"]) == (10, [9])


def test_a_reset_is_of_all_consumers(tmp_path: Path) -> None:
    first, second = two(tmp_path)
    handed = sorted([*polled(first), *polled(second)])
    assert handed == list(range(10))
    done(first, *handed)
    done(second, *handed)
    line = ("commits", "reset", tmp_path / "commits", "--topic", "t", "--why", "bad prices")
    found = commanding.document(*line, "--to", 2, "--confirm")
    assert [(r["committed_before"], r["committed"]) for r in found["partitions"]] == [(10, 2)]
    first, second = two(tmp_path)
    low, high = polled(first), polled(second)
    assert sorted([*low, *high]) == list(range(2, 10))
    # Forward: what neither has done below it is given up, and what is done stays.
    done(first, low[0], low[-1])
    done(second, *high)
    for each in (first, second):
        each.commit_log.close()
    to = low[-1]
    [row] = commanding.document(*line, "--to", to, "--confirm")["partitions"]
    assert row["given_up"] == low[1:-1]
    first, second = two(tmp_path)
    assert (polled(first), polled(second)) == ([], [])
    assert commits_fit(tmp_path, "a", "b")
    refused = commanding.refusal(*line, "--to", "commit:1")
    assert "each consumer of the group has commits of its own" in refused
