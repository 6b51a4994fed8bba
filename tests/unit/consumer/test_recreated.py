"""A topic that was deleted and created anew, or a log that was cut back, under a consumer that has
read of the one before."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from brokers.scripted_broker import Fetched, ScriptedCluster, World
from keyrange.consumer import consumer_positions
from keyrange.consumer.api import Consumer
from keyrange.errors import KeyrangeError
from keyrange.individual_commits.model.commit import CommitKind
from keyrange.members.range_listener import KeyRangeListener
from keyrange.model.key_ranges import SPACE, split_evenly
from queries import scripted_consumer
from queries.scripted_consumer import (
    FIRST,
    a_key_each,
    commits_fit,
    commits_of,
    done,
    options_at,
    polled,
)

holding = partial(scripted_consumer.holding, fails=False)
ANEW = "0" * 31 + "2"
LOW, HIGH = split_evenly(SPACE, 2)


class Listener(KeyRangeListener):
    def __init__(self) -> None:
        self.told: list[str] = []

    def on_key_ranges_assigned(self, ranges: Any) -> None:
        self.told.append("assigned")

    def on_key_ranges_lost(self, ranges: Any) -> None:
        self.told.append("lost")


class Topic:
    """A topic of one partition that may be created anew."""

    def __init__(self, count: int) -> None:
        self.world = World(self._fetch, latest=count)

    def recreate(self, count: int) -> None:
        self.world.topic_id, self.world.latest = ANEW, count

    def _fetch(self, node: int, partition: int, offset: int) -> Fetched:
        return a_key_each(offset, self.world.latest)


@pytest.mark.parametrize("count", [3, 10, 25])
def test_a_topic_that_was_created_anew_is_read_from_its_start(
    count: int, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it is shorter, as long or longer than what was read of the one before."""
    topic, listener = Topic(10), Listener()
    made = holding(topic.world, tmp_path)
    made.take(topic.world.view(), {FIRST: [SPACE]})
    before = polled(made)
    assert done(made, *before[:7]) == 7

    topic.recreate(count)
    if count == 10:
        # Of the end alone nobody would see it.
        assert made._reading is not None
        monkeypatch.setattr(made._reading, "_ids_seen_ms", -(2**62))
    assert polled(made, listener) == list(range(count))
    assert listener.told == ["lost", "assigned"]
    assert "TOPIC_RECREATED" in caplog.text
    assert "COULD_NOT_READ" not in caplog.text
    assert done(made, *range(count)) == count

    again = holding(topic.world, tmp_path)
    again.take(topic.world.view(), {FIRST: [SPACE]})
    assert polled(again) == []
    assert again.commit() == {FIRST: count}


@pytest.mark.parametrize("again", [False, True], ids=["the first time", "once more"])
def test_a_topic_that_was_created_anew_while_ranges_are_taken_begins_anew(
    tmp_path: Path, again: bool
) -> None:
    """The view of the cluster is of the moment before."""
    topic = Topic(10)
    made = holding(topic.world, tmp_path)
    made.take(topic.world.view(), {FIRST: [SPACE]})
    before = polled(made)
    done(made, *before[:7])
    if not again:
        made = holding(topic.world, tmp_path)
    view = topic.world.view()
    topic.recreate(3)
    made.take(view, {FIRST: [SPACE]})
    assert polled(made) == [0, 1, 2]
    assert done(made, 0, 1, 2) == 3


@pytest.mark.parametrize("count", [3, 25])
def test_where_losses_fail_it_is_named_and_nothing_is_gone_past(count: int, tmp_path: Path) -> None:
    topic = Topic(10)
    made = holding(topic.world, tmp_path, fails=True)
    made.take(topic.world.view(), {FIRST: [SPACE]})
    done(made, *polled(made))

    topic.recreate(count)
    for _ in range(2):
        with pytest.raises(KeyrangeError, match="TOPIC_RECREATED"):
            polled(made)
    assert made.commit() == {FIRST: 10}
    again = holding(topic.world, tmp_path, fails=True)
    with pytest.raises(KeyrangeError, match="TOPIC_RECREATED"):
        again.take(topic.world.view(), {FIRST: [SPACE]})


def test_what_was_handed_out_of_the_topic_before_counts_for_nothing(tmp_path: Path) -> None:
    topic = Topic(10)
    made = holding(topic.world, tmp_path)
    made.take(topic.world.view(), {FIRST: [SPACE]})
    before = polled(made)
    topic.recreate(3)
    assert polled(made) == [0, 1, 2]
    assert done(made, *before[3:]) == 0
    with pytest.raises(KeyrangeError, match="NOT_DELIVERED"):
        made.acknowledge(FIRST, np.array([10]))
    assert done(made, 0, 1) == 2


def test_who_comes_later_finds_what_others_have_done_of_the_new_topic(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Two have ranges of the old one. One begins anew, the other has died."""
    topic = Topic(10)
    lives, dies = holding(topic.world, tmp_path), holding(topic.world, tmp_path, "b")
    lives.take(topic.world.view(), {FIRST: [LOW]})
    dies.take(topic.world.view(), {FIRST: [HIGH]})
    for each in (lives, dies):
        done(each, *polled(each))

    topic.recreate(20)
    low = polled(lives)
    assert done(lives, *low) == len(low) > 0
    heir = holding(topic.world, tmp_path, "c")
    heir.take(topic.world.view(), {FIRST: [SPACE]})
    assert sorted([*low, *polled(heir)]) == list(range(20))
    done(heir, *[n for n in range(20) if n not in low])

    # What a source has left that nobody believes any more is of the old topic for good.
    caplog.clear()
    last = holding(topic.world, tmp_path, "d", fails=True)
    last.take(topic.world.view(), {FIRST: [SPACE]})
    assert polled(last) == []
    assert last.commit_log.committed([FIRST], {"t": ANEW}) == {FIRST: 20}
    assert not [each for each in caplog.records if each.levelno >= logging.WARNING]


def test_what_was_done_of_ranges_that_were_let_go_of_is_of_the_topic_before(
    tmp_path: Path,
) -> None:
    """Who verifies the commits does not hold it against a claim on the new one."""
    topic = Topic(10)
    made, other = holding(topic.world, tmp_path), holding(topic.world, tmp_path, "b")
    made.take(topic.world.view(), {FIRST: [SPACE]})
    done(made, *polled(made))
    other.take(topic.world.view(), {FIRST: [HIGH]})
    made.take(topic.world.view(), {FIRST: [LOW]})
    topic.recreate(20)
    assert done(made, *polled(made)) > 0

    assert commits_fit(tmp_path, "a", "b")


def test_the_table_says_where_a_log_was_cut_back(tmp_path: Path) -> None:
    """Who verifies the commits could not tell otherwise why the position went back."""
    topic = Topic(10)
    made = holding(topic.world, tmp_path)
    made.take(topic.world.view(), {FIRST: [SPACE]})
    done(made, *polled(made))

    topic.world.latest = 6
    made = holding(topic.world, tmp_path)
    made.take(topic.world.view(), {FIRST: [SPACE]})
    topic.world.latest = 8
    assert polled(made) == [6, 7]
    done(made, 6, 7)
    topic.world.latest = 9
    done(made, *polled(made))

    commits = commits_of(tmp_path, "a").history()
    assert [each.cut_back for each in commits if each.kind is CommitKind.BATCH] == [
        {},
        {FIRST: 6},
        {},
    ]
    assert commits_fit(tmp_path, "a")


@pytest.mark.parametrize("count", [3, 10, 25])
def test_who_only_polls_in_transactions_begins_anew_too(
    count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the beginning of a block: one that has handed out something fails."""
    topic = Topic(10)
    monkeypatch.setattr(consumer_positions, "Cluster", lambda _: ScriptedCluster(topic.world))
    given = {"failOnDataLoss": "false", "member.name": "a", "kafka.metadata.max.age.ms": "1"}
    with Consumer(options_at(tmp_path, **given)) as consumer:
        consumer.assign({FIRST: []})
        assert done_in_a_block(consumer) == list(range(10))
        topic.recreate(count)
        with pytest.raises(KeyrangeError, match="TOPIC_RECREATED"):
            done_in_a_block(consumer, [9])
        assert done_in_a_block(consumer) == list(range(count))
        assert consumer.committed(FIRST) == count


def done_in_a_block(consumer: Consumer, before: Sequence[int] = ()) -> list[int]:
    """The offsets of what comes in one, and is acknowledged there, `before` at its beginning."""
    found: list[int] = []
    with consumer.transaction():
        if before:
            consumer.acknowledge(FIRST, before)
        time.sleep(0.01)
        for _ in range(3):
            found += [record.offset for record in consumer.poll_records(0)]
        consumer.acknowledge(FIRST, found)
    return found
