"""The planning session where it stands behind the last stable offset."""

from __future__ import annotations

from typing import Any

import pytest

from keyrange.errors import DataLossError
from keyrange.model.offsets import READ_COMMITTED, TopicPartition
from queries.scripted import EARLIEST_START, ScriptedCluster, forget_metadata, planned, session


class StandingBehind(ScriptedCluster):
    """A reader of committed records is told of the last stable offset."""

    def list_offsets(
        self, view: Any, wanted: Any, isolation_level: int = READ_COMMITTED
    ) -> dict[TopicPartition, tuple[int, int]]:
        return super().list_offsets(view, wanted, isolation_level)


@pytest.mark.parametrize("fails", ["true", "false"])
def test_nothing_is_lost_behind_an_open_transaction(
    caplog: pytest.LogCaptureFixture, fails: str
) -> None:
    """A query that read uncommitted records went back to where the transaction begins."""
    end = planned(session(ScriptedCluster(100), **EARLIEST_START))
    cluster = StandingBehind(120)
    cluster.unstable = 60
    committed = {"kafka.isolation.level": "read_committed", "failOnDataLoss": fails}
    run = session(cluster, **committed)
    run.fix_target()
    assert run.latest(end, limited=True) is end
    cluster.unstable = 0
    assert session(cluster, **committed).latest(end, limited=True)["t"] == {"0": 120}
    assert "lost" not in caplog.text


def test_a_log_that_ends_before_a_position_is_a_loss_to_readers_of_committed_records() -> None:
    end = planned(session(ScriptedCluster(100), **EARLIEST_START))
    cluster = StandingBehind(90)
    run = session(cluster, **{"kafka.isolation.level": "read_committed"})
    with pytest.raises(DataLossError, match="PARTITION_OFFSET_CHANGED"):
        run.latest(end, limited=True)
    cluster.latest, cluster.unstable, cluster.topics = 120, 60, {"t": "b" * 32}
    forget_metadata(run)
    with pytest.raises(DataLossError, match="TOPIC_RECREATED"):
        run.latest(end, limited=True)
