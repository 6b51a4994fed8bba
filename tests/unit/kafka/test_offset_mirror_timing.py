"""The mirror's pauses and renewals, by example."""

from __future__ import annotations

from keyrange.kafka.model.offset_mirror_timing import (
    LOOK_MS,
    REFRESH_MS,
    RETRY_MAX_MS,
    RETRY_MS,
    MirrorState,
)
from keyrange.model.offsets import TopicPartition

PLACE = TopicPartition("t", 0)


def test_pauses_double_up_to_the_longest_and_start_anew_after_a_success() -> None:
    state = MirrorState()
    now_ms = 0.0
    for pause_ms in (*(RETRY_MS << times for times in range(6)), RETRY_MAX_MS, RETRY_MAX_MS):
        due = state.due({PLACE: 1}, now_ms)
        assert due == {PLACE: 1}
        state.give_up("failed", due, "why", "why it was", now_ms)
        assert state.due({PLACE: 1}, now_ms + pause_ms - 1) == {}
        now_ms += pause_ms
    state.acknowledge({PLACE: 1}, now_ms)
    state.give_up("failed", {PLACE: 2}, "why", "why it was", now_ms)
    assert state.due({PLACE: 2}, now_ms + RETRY_MS - 1) == {}
    assert state.due({PLACE: 2}, now_ms + RETRY_MS) == {PLACE: 2}


def test_an_offset_that_stands_is_renewed_before_kafka_forgets_it() -> None:
    state = MirrorState()
    state.acknowledge(state.due({PLACE: 1}, 0), 0)
    assert state.due({PLACE: 1}, REFRESH_MS - 1) == {}
    assert state.due({PLACE: 1}, REFRESH_MS) == {PLACE: 1}
    state.acknowledge({PLACE: 1}, REFRESH_MS)
    assert state.due({PLACE: 1}, 2 * REFRESH_MS - 1) == {}


def test_a_recreated_topic_is_committed_though_it_stands_where_the_old_one_stood() -> None:
    state = MirrorState()
    state.acknowledge(state.due({PLACE: 0}, 0), 0)
    assert state.due({}, 1) == {}
    assert state.due({PLACE: 0}, 2) == {PLACE: 0}


def test_a_reason_is_said_once_until_a_success() -> None:
    state = MirrorState()
    tried = {PLACE: 1}
    assert state.give_up("refused", tried, "members", "text 1", 0)
    assert state.give_up("failed", tried, "silent", "text 2", 0)
    assert not state.give_up("refused", tried, "members", "text 3", 0)
    assert state.metrics() == {"committed": 0, "refused": 2, "failed": 1, "lastError": "text 3"}
    state.acknowledge(tried, 0)
    assert state.metrics() == {"committed": 1, "refused": 2, "failed": 1, "lastError": ""}
    assert state.give_up("refused", tried, "members", "text 4", 0)


def test_a_topic_that_is_gone_holds_up_no_other_and_is_said_once() -> None:
    state, gone = MirrorState(), TopicPartition("gone", 0)
    state.acknowledge({PLACE: 1}, 0)
    assert state.leave_out([gone], "gone", 0)
    assert state.metrics() == {"committed": 1, "refused": 0, "failed": 1, "lastError": "gone"}
    assert state.due({PLACE: 2, gone: 5}, RETRY_MAX_MS - 1) == {PLACE: 2}
    assert state.due({PLACE: 2, gone: 5}, RETRY_MAX_MS) == {PLACE: 2, gone: 5}
    state.acknowledge({PLACE: 2}, RETRY_MAX_MS)
    assert not state.leave_out([gone], "gone", RETRY_MAX_MS)
    assert state.due({PLACE: 2, gone: 5}, 2 * RETRY_MAX_MS) == {gone: 5}
    state.acknowledge({gone: 5}, 2 * RETRY_MAX_MS)
    assert state.due({PLACE: 2, gone: 5}, 2 * RETRY_MAX_MS + 1) == {}
    assert state.leave_out([gone], "gone", 2 * RETRY_MAX_MS + 1)


def test_a_topic_that_came_back_is_tried_at_once() -> None:
    state = MirrorState()
    state.leave_out([PLACE], "gone", 0)
    assert state.due({PLACE: 0}, 1) == {}
    assert state.due({}, 2) == {}
    assert state.due({PLACE: 0}, 3) == {PLACE: 0}


MINE, ANOTHERS = "keyrange: run 1", "keyrange: run 2"


def test_marks_are_looked_at_behind_the_first_commit_and_then_now_and_then() -> None:
    state = MirrorState(MINE)
    assert state.to_look_at(0) == []
    state.acknowledge({PLACE: 1}, 0)
    assert state.to_look_at(5) == [PLACE]
    assert state.to_look_at(LOOK_MS + 4) == []
    assert state.to_look_at(LOOK_MS + 5) == [PLACE]


def test_only_what_this_run_has_committed_tells_of_another() -> None:
    """What stands there before may be of the run before this one."""
    state, refused = MirrorState(MINE), TopicPartition("t", 1)
    state.acknowledge({PLACE: 1, refused: 1}, 0)
    state.give_up("refused", {refused: 2}, "why", "text", 1)
    assert state.to_look_at(2) == [PLACE]


def test_another_is_told_once_and_a_tool_is_none() -> None:
    state = MirrorState(MINE)
    state.acknowledge({PLACE: 1}, 0)
    # As after kafka-consumer-groups --reset-offsets.
    for mark in (MINE, "", "somebody's own"):
        assert state.other({PLACE: mark}) is None
    assert state.other({PLACE: ANOTHERS}) == (PLACE, "run 2")
    assert state.to_look_at(LOOK_MS) == []


def test_without_a_mark_nothing_is_looked_at() -> None:
    state = MirrorState()
    state.acknowledge({PLACE: 1}, 0)
    assert state.to_look_at(1) == []
