"""The nemesis on S3: a pinned job with state, whose store fails while its processes are killed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from project.nemesis_runs import CLEANING_S, LIMIT_S, nemesis

FAULTS = ("fail-store", "throttle-store", "lose-answers", "kill-executor", "kill-driver")


@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.timeout(LIMIT_S + CLEANING_S + 30)
def test_a_pinned_job_with_state_whose_store_fails_loses_nothing(tmp_path: Path) -> None:
    code, out, said = nemesis(
        *("--store", "s3", "--mode", "pinned-state-job", "--seed", "4"),
        *("--seconds", "30", "--every", "6"),
        *(part for fault in FAULTS for part in ("--only", fault)),
        *("--output", "json", "--keep", str(tmp_path / "kept")),
    )
    assert code == 0, out + said
    document = json.loads(out)
    assert document["findings"] == []
    assert document["records"] > 0
    assert document["faults"].keys() & set(FAULTS[:3])
