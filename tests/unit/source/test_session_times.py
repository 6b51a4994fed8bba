"""The planning session of a job with time: when its batches are, and what is idle."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from keyrange.individual_commits.model.commit import Snapshot
from keyrange.individual_commits.model.partition_progress import PendingRecord, fresh
from keyrange.individual_commits.model.state_columns import columns_of
from keyrange.model.key_ranges import SPACE
from keyrange.model.offsets import TopicPartition
from keyrange.model.timers import NEVER, NextTimer, Retries
from keyrange.model.watermarks import PartitionTime, Watermark
from keyrange.source.commit_strategy import JobState
from keyrange.source.job_timers import retries_ms, state_metrics, timers_due_in_s
from keyrange.work.job_time import EventTime, ProcessingTime, job_time
from queries.scripted import T0, ScriptedCluster
from queries.scripted_query import Clock, Query


@pytest.mark.parametrize(("back_s", "is_told"), [(1, 0), (3_600, 0), (3_601, -3_601)])
def test_the_time_of_batches_does_not_go_back_with_a_clock(
    monkeypatch: pytest.MonkeyPatch, back_s: int, is_told: int
) -> None:
    """A window by the time of batches would have another row. A clock that was far ahead does not
    stand still until it is right."""
    clock = Clock(monkeypatch)
    query = Query(ScriptedCluster(10), keeps_state=True, splitBy="keyRange")
    query.batch()
    time_ms = query.mark()["timeMs"]
    clock.now_s -= back_s
    query.restarted()
    query.cluster.latest = 15
    query.batch()
    assert query.mark()["timeMs"] == time_ms + is_told * 1000


@pytest.mark.parametrize(("back_s", "is_told"), [(1, 0), (3_600, 0), (3_601, -3_601)])
def test_nor_behind_a_new_checkpoint(
    monkeypatch: pytest.MonkeyPatch, back_s: int, is_told: int
) -> None:
    clock = Clock(monkeypatch)
    given = {"splitBy": "keyRange", "commitTable.onFreshStart": "resume"}
    before = Query(ScriptedCluster(10), keeps_state=True, **given)
    before.batch()
    clock.now_s -= back_s
    after = Query(ScriptedCluster(15), keeps_state=True, **given)
    after.committed = before.committed
    after.offset = after.restarted().initial().to_json()
    after.batch()
    assert after.mark()["resumes"]["sourceId"] == before.mark()["sourceId"]
    assert after.mark()["timeMs"] == before.mark()["timeMs"] + is_told * 1000


@pytest.mark.parametrize("idle_after", ["5m", None])
def test_behind_an_open_transaction_are_records_that_are_not_read(idle_after: str | None) -> None:
    """A partition that has them is not idle. Only for that are they asked for."""

    class Committed(ScriptedCluster):
        def list_offsets(self, *given: Any, isolation_level: int = 1) -> Any:
            return super().list_offsets(*given[:2], *given[2:] or (isolation_level,))

    given = {"kafka.isolation.level": "read_committed", "splitBy": "keyRange"}
    query = Query(Committed(10), keeps_state=True, **given)
    query.state = JobState(job_time(EventTime(idle_after=idle_after)))
    query.run = query.restarted()
    query.cluster.unstable = 4
    query.batch()
    assert query.offset[T0.topic] == {str(T0.partition): 6}
    ends = {T0.topic: {str(T0.partition): 10}} if idle_after else None
    assert query.mark().get("logEnds") == ends


def test_timers_of_a_partition_that_is_absent_are_not_waited_for() -> None:
    """They would be due all the time, and the cluster asked without a pause."""
    time, retries = job_time(ProcessingTime()), Retries(9, 9)
    known = Snapshot(times={T0: PartitionTime(None, (NextTimer(SPACE, 5, 7),))})
    assert timers_due_in_s(known, {T0: 1}, time, retries) == 0.0
    assert timers_due_in_s(known, {}, time, retries) is None
    assert retries_ms(known, {T0: 1}) == [7]
    assert retries_ms(known, {}) == []


def test_it_is_said_what_holds_timers_back() -> None:
    """The watermark, a pending record of the key, or a timer of the key that failed."""
    t1 = TopicPartition(T0.topic, 1)
    own, other = fresh("id", 9), fresh("id", 9)
    waits = replace(other.pieces[0], pending=(PendingRecord(4, 5), PendingRecord(5, 6)))
    states = columns_of({T0: own, t1: replace(other, pieces=(waits,))})
    failed = PartitionTime(Watermark(7_000_000, 1), (NextTimer(SPACE, NEVER, 9_000),))
    times = {T0: failed, t1: PartitionTime(Watermark(3_000_000, 1), (NextTimer(SPACE, 5, NEVER),))}
    held = {"watermarkLagSeconds": 7.0, "timersAwaitRecords": 1, "timersAwaitRetry": 1}
    assert state_metrics(Snapshot(states=states, times=times), 10_000).items() >= held.items()
    without_time = state_metrics(Snapshot(states=states), 10_000)
    assert without_time == {"rows": 0, "bytes": 0, "runs": 0}


@pytest.mark.parametrize("how", ["leave", "drain"])
def test_a_run_until_now_waits_for_timers_that_failed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    clock = Clock(monkeypatch)
    given = {"splitBy": "keyRange", "availableNow.redelivery": how}
    query = Query(ScriptedCluster(10), keeps_state=True, **given)
    query.state = JobState(job_time(EventTime()))
    query.restarted()
    query.batch()
    failed = PartitionTime(None, (NextTimer(SPACE, NEVER, int(clock.now_s * 1000) + 5_000),))
    query.committed.store[-1] = replace(query.committed.store[-1], times={T0: failed})
    query.restarted().fix_target()
    assert query.is_idle() == (how == "leave")
    assert ("0 records and timers wait for their next delivery" in caplog.text) == query.is_idle()
    assert sum(clock.slept) == pytest.approx(5.0 if how == "drain" else 0.0, abs=0.1)
