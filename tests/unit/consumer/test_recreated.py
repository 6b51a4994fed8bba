"""A topic that was deleted and created anew, or a log that was cut back, under a consumer that has
read of the one before."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from keyrange.consumer.holding import Holding
from keyrange.consumer.settings import parse_consumer_options
from keyrange.core.commits.auditing import audit
from keyrange.core.commits.handovers import Handovers
from keyrange.core.commits.log import Kind
from keyrange.core.key_ranges import SPACE, split_evenly
from keyrange.core.offsets import TopicPartition
from keyrange.delta.commit_table import LAYOUT, DeltaCommitTable
from keyrange.delta.delta_rs import DeltaRsStore
from keyrange.errors import KeyrangeError
from keyrange.members.listener import KeyRangeListener
from scripted_broker import Fetched, ScriptedCluster, World
from strategies import Batch, Record, encode_batch

FIRST = TopicPartition("t", 0)
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
        keys = (Record(n, key=b"%d" % (offset + n)) for n in range(self.world.latest - offset))
        return Fetched(encode_batch(Batch(offset, tuple(keys))), self.world.latest)


def holding(topic: Topic, path: Path, slot: str = "a", fails: bool = False) -> Holding:
    options = {
        "kafka.bootstrap.servers": "h:1",
        "commitTable": str(path / "commits"),
        "commitGroup": "g",
        "mirrorOffsets": "false",
        "startingOffsets": "earliest",
        "failOnDataLoss": str(fails).lower(),
    }
    cluster: Any = ScriptedCluster(topic.world)
    return Holding(parse_consumer_options(options), cluster, slot)


def polled(made: Holding, listener: KeyRangeListener | None = None) -> list[int]:
    """The offsets of what comes now."""
    found: list[int] = []
    for _ in range(5):
        batch = made.next(listener or KeyRangeListener())
        found += batch[1].column("offset").to_pylist() if batch else []
    return found


def done(made: Holding, offsets: list[int]) -> int:
    found = made.acknowledge(FIRST, np.array(offsets))
    made.commit()
    return found


@pytest.mark.parametrize("count", [3, 10, 25])
def test_a_topic_that_was_created_anew_is_read_from_its_start(
    count: int, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it is shorter, as long or longer than what was read of the one before."""
    topic, listener = Topic(10), Listener()
    made = holding(topic, tmp_path)
    made.take(topic.world.view(), {FIRST: [SPACE]})
    before = polled(made)
    assert done(made, before[:7]) == 7

    topic.recreate(count)
    if count == 10:
        # Of the end alone nobody would see it.
        assert made._reading is not None
        monkeypatch.setattr(made._reading, "_ids_seen_ms", -(2**62))
    assert polled(made, listener) == list(range(count))
    assert listener.told == ["lost", "assigned"]
    assert "TOPIC_RECREATED" in caplog.text
    assert "COULD_NOT_READ" not in caplog.text
    assert done(made, list(range(count))) == count

    again = holding(topic, tmp_path)
    again.take(topic.world.view(), {FIRST: [SPACE]})
    assert polled(again) == []
    assert again.commit() == {FIRST: count}


@pytest.mark.parametrize("count", [3, 25])
def test_where_losses_fail_it_is_named_and_nothing_is_gone_past(count: int, tmp_path: Path) -> None:
    topic = Topic(10)
    made = holding(topic, tmp_path, fails=True)
    made.take(topic.world.view(), {FIRST: [SPACE]})
    done(made, polled(made))

    topic.recreate(count)
    for _ in range(2):
        with pytest.raises(KeyrangeError, match="TOPIC_RECREATED"):
            polled(made)
    assert made.commit() == {FIRST: 10}
    again = holding(topic, tmp_path, fails=True)
    with pytest.raises(KeyrangeError, match="TOPIC_RECREATED"):
        again.take(topic.world.view(), {FIRST: [SPACE]})


def test_what_was_handed_out_of_the_topic_before_counts_for_nothing(tmp_path: Path) -> None:
    topic = Topic(10)
    made = holding(topic, tmp_path)
    made.take(topic.world.view(), {FIRST: [SPACE]})
    before = polled(made)
    topic.recreate(3)
    assert polled(made) == [0, 1, 2]
    assert done(made, before[3:]) == 0
    with pytest.raises(KeyrangeError, match="NOT_DELIVERED"):
        made.acknowledge(FIRST, np.array([10]))
    assert done(made, [0, 1]) == 2


def test_who_comes_later_finds_what_others_have_done_of_the_new_topic(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Two have ranges of the old one. One begins anew, the other has died."""
    topic = Topic(10)
    lives, dies = holding(topic, tmp_path), holding(topic, tmp_path, "b")
    lives.take(topic.world.view(), {FIRST: [LOW]})
    dies.take(topic.world.view(), {FIRST: [HIGH]})
    for each in (lives, dies):
        done(each, polled(each))

    topic.recreate(20)
    low = polled(lives)
    assert done(lives, low) == len(low) > 0
    heir = holding(topic, tmp_path, "c")
    heir.take(topic.world.view(), {FIRST: [SPACE]})
    assert sorted([*low, *polled(heir)]) == list(range(20))
    done(heir, [n for n in range(20) if n not in low])

    # What a source has left that nobody believes any more is of the old topic for good.
    caplog.clear()
    last = holding(topic, tmp_path, "d", fails=True)
    last.take(topic.world.view(), {FIRST: [SPACE]})
    assert polled(last) == []
    assert last.ledger.committed([FIRST], {"t": ANEW}) == {FIRST: 20}
    assert not [each for each in caplog.records if each.levelno >= logging.WARNING]


def test_the_table_says_where_a_log_was_cut_back(tmp_path: Path) -> None:
    """Who verifies the commits could not tell otherwise why the position went back."""
    topic = Topic(10)
    made = holding(topic, tmp_path)
    made.take(topic.world.view(), {FIRST: [SPACE]})
    done(made, polled(made))

    topic.world.latest = 6
    made = holding(topic, tmp_path)
    made.take(topic.world.view(), {FIRST: [SPACE]})
    topic.world.latest = 8
    assert polled(made) == [6, 7]
    done(made, [6, 7])
    topic.world.latest = 9
    done(made, polled(made))

    table = DeltaCommitTable(DeltaRsStore(str(tmp_path / "commits"), LAYOUT, {}), "consumer/g/a")
    commits = list(table.history())
    assert [each.cut_back for each in commits if each.kind is Kind.BATCH] == [{}, {FIRST: 6}, {}]
    assert list(audit(commits, Handovers({"consumer/g/a": commits}))) == []
