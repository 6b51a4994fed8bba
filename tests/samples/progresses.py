"""Progresses as Spark reports them, made up: of a keyrange source, and of others."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

QUERY_ID, RUN_ID = "11111111-1111-1111-1111-111111111111", "22222222-2222-2222-2222-222222222222"
OTHER_RUN = "33333333-3333-3333-3333-333333333333"


def source(
    end: dict[str, int], latest: dict[str, int], records: int = 3, **parts: dict[str, Any]
) -> dict[str, Any]:
    """A source of topic `t`: where the batch ended, where the log ends, and what is told beside."""
    return {
        "description": "org.apache.spark.sql.execution.python.streaming.PythonMicroBatchStream@1",
        "startOffset": None,
        "endOffset": {"@keyrange": {"version": 1}, "t": end},
        "latestOffset": {"@keyrange": {"metrics": parts}, "t": latest},
        "numInputRows": records,
        "inputRowsPerSecond": 1.0,
        "processedRowsPerSecond": 1.0,
        "metrics": {},
    }


def progress(
    batch_id: int,
    *sources: dict[str, Any],
    name: str | None = "orders",
    run_id: str = RUN_ID,
    query_id: str = QUERY_ID,
    timestamp: str = "2026-05-01T12:00:00.000Z",
    duration_ms: int = 1_500,
    observed: dict[str, Any] | None = None,
) -> dict[str, Any]:
    return {
        "id": query_id,
        "runId": run_id,
        "name": name,
        "timestamp": timestamp,
        "batchId": batch_id,
        "batchDuration": duration_ms,
        "durationMs": {},
        "stateOperators": [],
        "sources": list(sources),
        "sink": {"description": "s", "numOutputRows": -1, "metrics": {}},
        "observedMetrics": observed or {},
        "numInputRows": sum(each["numInputRows"] for each in sources),
    }


def event(document: dict[str, Any]) -> Any:
    """As a classic session hands it over."""
    return SimpleNamespace(progress=SimpleNamespace(json=json.dumps(document)))


def ended(
    run_id: str = RUN_ID, exception: str | None = None, error_class: str | None = None
) -> Any:
    return SimpleNamespace(
        id=QUERY_ID, runId=run_id, exception=exception, errorClassOnException=error_class
    )


WORK: dict[str, Any] = {
    "keyrange": {"records": 100_000, "rows": 99_000, "files": 2, "bytes": 4_200_000}
}
# Of a job that keeps state.
KEPT: dict[str, Any] = {
    "keyrange": WORK["keyrange"]
    | {
        "state_restored_bytes": 2_000_000,
        "state_restored_ms": 250,
        "state_looked_up": 400,
        "state_found": 100,
        "state_changed": 300,
        "state_changed_bytes": 12_000,
        "state_written_bytes": 9_000,
        "state_merged_bytes": 0,
        "state_timers_fired": 30,
        "state_timers_failed": 1,
        "state_late": 5,
        "state_ahead": 2,
    }
}
FULL: dict[str, dict[str, Any]] = {
    "losses": {
        "offsets": 4,
        "found": [{"topic": "t", "partition": 0, "fromOffset": 3, "untilOffset": 7}],
    },
    "plan": {
        "number": 4,
        "tasks": 2,
        "keyRanges": 8,
        "bytes": 4_000_000,
        "fetchedBytes": 4_400_000,
    },
    "commits": {
        "pending": 37,
        "partitionsHeld": 1,
        "maxRangeLag": 9,
        "nextDueMs": -1,
        "committed": {"t": {"0": 0}},
    },
    "state": {
        "rows": 400,
        "bytes": 9_000,
        "runs": 3,
        "watermarkLagSeconds": 61.5,
        "timersAwaitRecords": 2,
        "timersAwaitRetry": 1,
    },
    "members": {
        "epoch": 3,
        "members": 4,
        "reached": 4,
        "ownPortions": 9,
        "foreignPortions": 1,
        "unownedPortions": 0,
        "standbyPortions": 0,
    },
    "volumes": {
        "throttleFactor": 0.5,
        "why": "/a is full",
        "forMs": 10,
        "fallback": True,
        "violated": 1,
        "activeBrokers": 3,
        "activeLogDirs": 6,
        "limitViolated": 4,
        "fallbackApplied": 2,
        "timeToFullMs": 90_000,
        "partitionsHeld": 2,
    },
    "mirror": {"committed": 5, "refused": 1, "failed": 0, "lastError": "no"},
}
