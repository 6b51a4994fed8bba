"""The planning session of a job with time: when its batches are, and what is idle."""

from __future__ import annotations

import pytest

from queries.scripted import ScriptedCluster
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
