"""The options about individual commits: rows of the table, their parsers, and what they come to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from keyrange.core.commits.intake import IntakeLimits
from keyrange.core.commits.log import Terms
from keyrange.core.commits.verdict import RedeliveryPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitOptions:
    """How progress is committed; `individual` False stands for whole batches, and the rest for
    nothing then.

    `table` and `dead_letter_table` are paths or URIs of Delta tables, `verdict_directory` of a
    directory that driver and executors share. `storage` are settings of the object store, among
    them secrets. Durations are in ms, None or 0 for none.
    """

    individual: bool = False
    table: str = ""
    group: str = ""
    dead_letter_table: str = ""
    dead_letter_topic: str = ""
    verdict_directory: str = ""
    writer: str = "delta-rs"
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)
    # fail, resume or ignore
    on_fresh_start: str = "fail"
    transactional: bool = False
    keeps_order: bool = True
    unmentioned_is_done: bool = True
    record_timeout_ms: int = 0
    batch_time_budget_ms: int = 0
    # leave or drain
    available_now: str = "leave"
    available_now_timeout_ms: int = 600_000
    policy: RedeliveryPolicy = field(default_factory=RedeliveryPolicy)
    limits: IntakeLimits = field(default_factory=IntakeLimits)
    range_bytes_max: int = 1024 * 1024

    def terms(self, nulls_first: bool) -> Terms:
        """What the stored numbers rest on."""
        return Terms(
            null_keys="first" if nulls_first else "spread",
            isolation="transactional" if self.transactional else "immediate",
        )
