"""What tasks have done with the state of keys, in figures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

# How the names of these figures begin where Spark observes them beside others of a job.
OBSERVED_PREFIX: Final = "state_"


@dataclass
class StateFigures:
    """Of one task, or of all of a batch.

    `restored_bytes`: of files that were copied to a host, in `restored_ms` of all tasks together.
    `looked_up`: keys that records asked for, of which `found` had state. `changed`: keys, and
    `changed_bytes` their keys and values as they are in memory. `written_bytes`: the changes in
    their files; `merged_bytes`: what was written once more. Of a job with time `timers_fired`, and
    `timers_failed` for which the function raised; `late`: records before the watermark, `ahead`:
    records whose event time is too far beyond the clock to move it.
    """

    restored_bytes: int = 0
    restored_ms: float = 0.0
    looked_up: int = 0
    found: int = 0
    changed: int = 0
    changed_bytes: int = 0
    written_bytes: int = 0
    merged_bytes: int = 0
    timers_fired: int = 0
    timers_failed: int = 0
    late: int = 0
    ahead: int = 0
