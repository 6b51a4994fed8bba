"""Option keyRangeListener over a real broker: what executors are told of their key ranges."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import keylistening
from brokers.real_broker import Topics
from keyrange.members.slot_directories import slots_directory
from keyrange.model.key_ranges import SPACE
from queries.pinning import PinnedQuery, members_metrics, produce_until


@pytest.fixture
def query(spark: SparkSession, topics: Topics, tmp_path: Path) -> PinnedQuery:
    spark.sparkContext.addPyFile(keylistening.__file__)
    return PinnedQuery(spark, topics, tmp_path, keyRangeListener="keylistening:Writing")


def told(query: PinnedQuery) -> list[dict[str, Any]]:
    file = slots_directory(query.given["slot.directory"]) / "told"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def test_an_executor_is_told_its_ranges_once(query: PinnedQuery) -> None:
    """In several batches of two runs, each of several tasks in Python processes of their own."""
    for _ in range(2):
        with query.running(lambda frame, _: frame.count()) as running:
            produce_until(query, lambda q=running: members_metrics(q).get("ownPortions", 0) > 0)

    [slot] = {line["slot"] for line in told(query)}
    whole = {f"{query.topic}-{number}": SPACE.size for number in range(2)}
    assert told(query) == [{"what": "assigned", "slot": slot, "epoch": 1, "ranges": whole}]


def test_a_listener_that_fails_fails_the_batch(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    query = PinnedQuery(spark, topics, tmp_path, keyRangeListener="no_such_module:Writing")

    with (
        pytest.raises(AssertionError, match="KEY_RANGE_LISTENER_NOT_FOUND"),
        query.running(lambda frame, _: frame.count()) as running,
    ):
        produce_until(query, lambda: running.exception() is not None)
    assert told(query) == []
