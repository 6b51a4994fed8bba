"""What `keyrange watch` shows of the volume guard: by its own look, else by the last batch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from commands.documents import read_document
from keyrange.cli.watch.document import Seen, describe
from keyrange.cli.watch.observers import Answer, Answers, Ends, ToldBatch
from keyrange.cli.watch.view import line
from keyrange.model.offsets import TopicPartition
from keyrange.observing.model.query_progress import read_query_progress
from keyrange.storage.checkpoint_files import load_progress, open_directory
from samples.checkpoints import commit_batch, make_checkpoint, plan_batch
from samples.progresses import FULL, progress, source

AT_MS = 1_750_000_000_000


def look(home: Path, said: dict[str, Any], volumes: Any = None) -> dict[str, Any]:
    """The document of a query of one batch, whose progress says this of its guard."""
    make_checkpoint(home)
    plan_batch(home, 0, AT_MS, {"0": 60})
    commit_batch(home, 0)
    read = read_query_progress(progress(0, source({"0": 60}, {"0": 60}, volumes=said)))
    assert read is not None
    known = Answer(load_progress(open_directory(str(home))))
    told = Answer([ToldBatch(read, AT_MS + read.duration_ms)])
    given = Answers(known, progress=told, volumes=Answer(volumes))
    document = describe("/cp", given, Seen(), AT_MS + 1_000)
    found: dict[str, Any] = read_document(json.dumps({"schema": "keyrange.watch/1", **document}))
    assert found == document
    return found


def test_what_the_query_s_guard_has_said_last_is_shown(tmp_path: Path) -> None:
    document = look(tmp_path / "cp", FULL["volumes"])
    assert document["throttle"] == {
        "factor": 0.5,
        "why": "/a is full",
        "known_by": "batch",
        "recovered": None,
        "brokers": 3,
        "log_dirs": 6,
        "at_limit": 1,
        "limit_violated": 4,
        "fallback_applied": 2,
    }
    assert (
        "factor 0.5 (last batch), 6 log dirs of 3 brokers, 1 at the limit, at the limit 4 times in "
        "this run, fallback 2 times in this run"
    ) in line(document)


def test_a_query_of_before_says_less(tmp_path: Path) -> None:
    document = look(tmp_path / "cp", {"throttleFactor": 1.0, "why": ""})
    assert set(document["throttle"].values()) == {1.0, "", "batch", None}
    assert line(document).endswith("factor 1 (last batch)")


def test_its_own_look_counts_before_what_the_query_said(tmp_path: Path) -> None:
    rows = [{"broker": number // 2, "violated": number == 3 or None} for number in range(4)]
    volumes = {
        "factor": {"value": 1.0, "why": "none at the limit"},
        "volumes": rows,
        "failure": "",
    }
    document = look(tmp_path / "cp", FULL["volumes"], volumes)
    throttle = document["throttle"]
    assert throttle["known_by"] == "now"
    assert (throttle["brokers"], throttle["log_dirs"], throttle["at_limit"]) == (2, 4, 1)
    assert (throttle["limit_violated"], throttle["fallback_applied"]) == (None, None)
    assert "factor 1, 4 log dirs of 2 brokers, 1 at the limit" in line(document)
    assert (document["why"], document["failures"]) == ([], [])


def test_a_query_that_stands_may_wait_for_a_volume_to_recover(tmp_path: Path) -> None:
    """No batch comes that would say so, and its own look does not know what was before."""
    home = tmp_path / "cp"
    make_checkpoint(home)
    plan_batch(home, 0, AT_MS, {"0": 60})
    commit_batch(home, 0)
    ends = Ends({TopicPartition("t", 0): 90})
    factor = {"value": 1.0, "why": "broker 1 /d has not recovered", "recovered": False}
    volumes = {"factor": factor, "volumes": [], "failure": ""}
    given = Answers(
        Answer(load_progress(open_directory(str(home)))),
        broker=Answer(ends),
        volumes=Answer(volumes),
    )

    def why(after_ms: int) -> list[str]:
        found: list[str] = describe("/cp", given, Seen(), AT_MS + after_ms)["why"]
        return found

    assert why(1_000) == []
    first, second = why(3_600_000)
    assert first == (
        "the volume guard may hold the query back still: broker 1 /d has not recovered"
    )
    assert second.startswith("no batch was planned for 1 h 0 min")


def test_what_a_look_did_not_observe_is_a_failure(tmp_path: Path) -> None:
    volumes = {"factor": None, "volumes": [], "failure": "broker 2: timed out"}
    [failure] = look(tmp_path / "cp", FULL["volumes"], volumes)["failures"]
    assert (failure["source"], failure["text"]) == ("volumes", "broker 2: timed out")
