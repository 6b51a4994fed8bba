"""A short run of the nemesis, so that it keeps working; ci/soak.sh nemesis has the long ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nemesis.modes import MODES
from project.forms import by_form
from project.nemesis_runs import CLEANING_S, LIMIT_S, nemesis


@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.timeout(LIMIT_S + CLEANING_S + 30)
@pytest.mark.parametrize(
    ("mode", "kills"),
    [
        pytest.param("consumer", ["kill-consumer"], id="consumer", marks=pytest.mark.slow),
        pytest.param("consumer-to-topic", ["kill-consumer"], id="to a topic"),
        pytest.param(
            "pinned",
            ["kill-executor", "kill-member", "kill-worker"],
            id="pinned",
            marks=pytest.mark.slow,
        ),
        pytest.param("windows-job", ["kill-worker"], id="windows", marks=pytest.mark.slow),
        pytest.param("timers-job", ["kill-worker"], id="timers", marks=pytest.mark.slow),
        pytest.param(
            "only-topic-job",
            ["kill-worker", "move-coordinator"],
            id="a topic alone",
            marks=pytest.mark.slow,
        ),
        pytest.param("everything", ["kill-executor"], id="everything", marks=pytest.mark.slow),
    ],
)
def test_nothing_is_lost_where_processes_are_killed(
    tmp_path: Path, mode: str, kills: list[str]
) -> None:
    code, out, said = nemesis(
        *("--mode", mode, "--seed", "3", "--seconds", by_form("6", "6", "12"), "--every", "4"),
        *(part for kill in kills for part in ("--only", kill)),
        *("--output", "json", "--keep", str(tmp_path / "kept")),
    )
    assert code == 0, out + said
    document = json.loads(out)
    assert document["findings"] == []
    done = document["rows"] + document["dead_letters"] + document["open_records"]
    assert document["records"] == done > 0
    assert (document["windows"] > 0) == (MODES[mode].time != "none")
    assert sum(document["faults"].values()) > 0
