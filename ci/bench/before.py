"""What some figures were before storage was one room and the driver had its state as columns: once
each, on the machine of the other figures, in the units of the figures that have these names now."""

from __future__ import annotations

from collections.abc import Mapping

BEFORE: Mapping[str, str] = {
    "commits.s3.calls_per_batch.individual": "69.3",
    "commits.s3.calls_per_batch.whole": "28",
    "commits.p50.ms": "15",
    "commits.scale.10000x4.ms": "3,948",
    "commits.scale.10000x4.plan.ms": "377",
    "commits.scale.10000x4.verdict.ms": "580",
    "commits.scale.10000x4.commit.ms": "2,991",
    "commits.scale.open.10000x4.seconds": "6.69",
    "plan.100k.seconds": "1.95",
    "query.start.seconds": "1.2",
    "query.start.individual.seconds": "1.9 to 2.6",
    "query.available_now.vs_jvm": "0.9",
}
