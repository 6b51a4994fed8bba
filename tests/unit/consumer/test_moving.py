"""Key ranges that come and go: what the listener is told, and what counts afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from brokers.scripted_broker import World
from keyrange.consumer.commit_log import CommitLog
from keyrange.errors import KeyrangeError, error
from keyrange.members.range_listener import KeyRangeListener
from keyrange.model.key_ranges import SPACE, split_evenly
from queries.scripted_consumer import FIRST, a_key_each, acknowledged, holding, polled

LOW, HIGH = split_evenly(SPACE, 2)


class Listener(KeyRangeListener):
    """Notes what it is told of FIRST. Where ranges are revoked it does what a test says."""

    def __init__(self, revoked: Callable[[], object] = lambda: None) -> None:
        self.told: list[tuple[str, Any]] = []
        self._revoked = revoked

    def on_key_ranges_revoked(self, ranges: Any) -> None:
        self.told.append(("revoked", ranges[FIRST]))
        self._revoked()

    def on_key_ranges_lost(self, ranges: Any) -> None:
        self.told.append(("lost", ranges[FIRST]))


def ten() -> World:
    """A log of ten records."""
    return World(lambda _node, _partition, offset: a_key_each(offset, 10), latest=10)


@contextmanager
def failing(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing can be committed meanwhile."""

    def fails(*_: object) -> None:
        raise error("COMMITS_UNWRITABLE", "the store is away")

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(CommitLog, "commit", fails)
        yield


def test_what_another_did_of_ranges_that_are_taken_back_is_not_handed_out_again(
    tmp_path: Path,
) -> None:
    """Who had them may not have heard that they were lost."""
    world, listener = ten(), Listener()
    view = world.view()
    first, second = holding(world, tmp_path, "a"), holding(world, tmp_path, "b")
    first.move(view, {FIRST: [SPACE]}, listener)
    assert polled(first) == list(range(10))
    acknowledged(first, 0, 9)
    first.commit()
    second.move(view, {FIRST: [SPACE]}, listener)
    assert polled(second) == list(range(1, 9))
    acknowledged(second, *range(1, 8))
    second.commit()
    assert listener.told == []

    assert first.move(view, {FIRST: [SPACE]}, listener) == {FIRST: [SPACE]}
    assert listener.told == [("lost", [SPACE])]
    assert acknowledged(first, *range(1, 8)) == 0
    assert polled(first) == [8]
    acknowledged(first, 8)
    assert first.commit() == {FIRST: 10}


def test_what_another_has_by_now_is_not_revoked(tmp_path: Path) -> None:
    """Also where there is nothing to commit: a listener may write what it has where others read."""
    world, listener = ten(), Listener()
    view = world.view()
    first, second = holding(world, tmp_path, "a"), holding(world, tmp_path, "b")
    first.move(view, {FIRST: [SPACE]}, listener)
    second.take(view, {FIRST: [SPACE]})
    with pytest.raises(KeyrangeError, match="COMMITS_FENCED"):
        first.move(view, {FIRST: [LOW]}, listener)
    assert listener.told == []


def test_what_is_kept_stays_under_way_where_nobody_else_had_it(tmp_path: Path) -> None:
    world, listener = ten(), Listener()
    view = world.view()
    made = holding(world, tmp_path, "a")
    made.move(view, {FIRST: [SPACE]}, listener)
    handed = polled(made)
    assert made.move(view, {FIRST: [SPACE]}, listener) == {}
    assert polled(made) == []
    assert acknowledged(made, *handed) == 10
    assert listener.told == []


def test_while_nothing_can_be_committed_nothing_is_revoked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, listener = ten(), Listener()
    view = world.view()
    made = holding(world, tmp_path, "a")
    made.move(view, {FIRST: [SPACE]}, listener)
    acknowledged(made, *polled(made))
    with failing(monkeypatch), pytest.raises(KeyrangeError, match="COMMITS_UNWRITABLE"):
        made.move(view, {FIRST: [LOW]}, listener)
    assert (made.spans, listener.told) == ({FIRST: [SPACE]}, [])

    made.move(view, {FIRST: [LOW]}, listener)
    assert (made.spans, listener.told) == ({FIRST: [LOW]}, [("revoked", [HIGH])])
    heir = holding(world, tmp_path, "b")
    heir.take(view, {FIRST: [HIGH]})
    assert polled(heir) == []


def test_what_was_revoked_is_not_held_any_more_whatever_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the listener acknowledges where it is told may be what cannot be committed."""
    world = ten()
    view = world.view()
    made = holding(world, tmp_path, "a")
    listener = Listener(lambda: acknowledged(made, *range(10)))
    made.move(view, {FIRST: [SPACE]}, listener)
    assert polled(made) == list(range(10))
    with failing(monkeypatch), pytest.raises(KeyrangeError, match="COMMITS_UNWRITABLE"):
        made.move(view, {FIRST: [LOW]}, listener)
    assert (made.spans, listener.told) == ({}, [("revoked", [HIGH]), ("lost", [LOW])])

    assert made.move(view, {FIRST: [LOW]}, listener) == {FIRST: [LOW]}
    heir = holding(world, tmp_path, "b")
    heir.take(view, {FIRST: [HIGH]})
    assert sorted(polled(made) + polled(heir)) == list(range(10))


def test_what_the_listener_acknowledges_of_what_goes_counts(tmp_path: Path) -> None:
    world = ten()
    view = world.view()
    made = holding(world, tmp_path, "a")
    listener = Listener(lambda: acknowledged(made, *range(10)))
    made.move(view, {FIRST: [SPACE]}, listener)
    assert polled(made) == list(range(10))
    made.move(view, {FIRST: [LOW]}, listener)
    heir = holding(world, tmp_path, "b")
    heir.take(view, {FIRST: [HIGH]})
    assert polled(heir) == []
    assert made.commit() == {FIRST: 10}


def test_what_was_handed_out_before_a_loss_counts_for_nothing(tmp_path: Path) -> None:
    """Also where the range is back, and goes on from a lower position."""
    world = ten()
    view = world.view()
    made = holding(world, tmp_path, "a")
    made.take(view, {FIRST: [SPACE]})
    assert polled(made) == list(range(10))
    made.drop()
    assert acknowledged(made, *range(10)) == 0
    made.take(view, {FIRST: [SPACE]})
    assert acknowledged(made, *range(10)) == 0
    for never in (10, -1):
        with pytest.raises(KeyrangeError, match="NOT_DELIVERED"):
            acknowledged(made, never)
    assert polled(made) == list(range(10))
    assert acknowledged(made, *range(10)) == 10
