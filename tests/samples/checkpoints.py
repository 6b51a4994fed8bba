"""Checkpoint directories as Spark writes them, made up: batches of topic `t`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from samples.progresses import QUERY_ID


def make_checkpoint(home: Path) -> Path:
    for name in ("offsets", "commits"):
        (home / name).mkdir(parents=True)
    (home / "metadata").write_text(json.dumps({"id": QUERY_ID}))
    return home


def plan_batch(
    home: Path,
    batch_id: int,
    at_ms: int,
    end: dict[str, int],
    log_ends: dict[str, int] | None = None,
) -> None:
    """Plan a batch up to `end`; the first one begins at 0. With `log_ends` the query commits
    individually, and these say where the logs end that the batch does not reach."""
    reserved: dict[str, Any] = {"version": 1}
    if log_ends is not None:
        mark = {"seq": batch_id, "sourceId": "source-1", "logEnds": {"t": log_ends}}
        reserved["commits"] = mark
    if batch_id == 0:
        reserved["initial"] = {"t": dict.fromkeys(end, 0)}
    offset = {"@keyrange": reserved, "t": end}
    lines = ["v1", json.dumps({"batchTimestampMs": at_ms}), json.dumps(offset)]
    (home / "offsets" / str(batch_id)).write_text("\n".join(lines) + "\n")


def commit_batch(home: Path, batch_id: int) -> None:
    (home / "commits" / str(batch_id)).write_text("v1\n{}\n")
