"""`keyrange commits show`: where logs end, by the batches that said so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from commands.commanding import document
from samples.commit_samples import Query, put_in_place


@pytest.fixture
def of(monkeypatch: pytest.MonkeyPatch) -> Callable[[Query], None]:
    """Lets the commands find a query's table at any path."""
    return lambda query: put_in_place(monkeypatch, query)


def test_each_partition_ends_where_the_last_batch_that_read_of_it_saw_it_end(
    of: Callable[[Query], None],
) -> None:
    """A batch says nothing of partitions that it had nothing of."""
    query = Query(3, 1, fails=0.0)
    query.batch(10, tail=5)
    query.batch(10, tail=40, of=[0, 1])
    query.batch(10, tail=90, of=[0])
    of(query)
    found = document("commits", "show", "/t")["partitions"]
    assert [(row["log_end"], row["read_lag"]) for row in found] == [
        (120, 90),
        (60, 40),
        (15, 5),
    ]


def test_the_end_of_a_topic_that_was_made_anew_is_not_its_predecessor_s(
    of: Callable[[Query], None],
) -> None:
    query = Query(1, 1, fails=0.0)
    query.batch(10, tail=5)
    [(partition, state)] = query.states.items()
    query.became({partition: replace(state, topic_id="another")})
    of(query)
    [row] = document("commits", "show", "/t")["partitions"]
    assert (row["topic_id"], row["log_end"], row["read_lag"]) == ("another", None, None)
