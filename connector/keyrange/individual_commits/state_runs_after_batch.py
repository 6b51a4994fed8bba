"""Where the state of keys is after a batch."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from keyrange.individual_commits.model.commit import Snapshot
from keyrange.individual_commits.model.offset_reset import not_set_back
from keyrange.keyed_state.model.state_runs import MadeRun, StateRun, after_batch, last_seq
from keyrange.model.key_ranges import KeyRange, common, merge
from keyrange.model.offsets import TopicPartition

if TYPE_CHECKING:
    from keyrange.individual_commits.batch_run import BatchRun

Runs = dict[TopicPartition, tuple[StateRun, ...]]


def runs_after(
    running: BatchRun, known: Snapshot, seq: int, back: Container[TopicPartition] = ()
) -> Runs:
    """Where the state of the keys of a batch's partitions is after commit `seq`, `known` being the
    last one before it. `back`: partitions that somebody has set back since the batch was planned.
    An empty batch of a job that keeps none hands on what others kept. Raises STATE_LEFT_OUT where
    it is not empty."""
    plan, manifest = running.plan, running.manifest
    running.check_state()
    made = made_in(manifest.rows.get("state_run", []) if manifest is not None else [])
    topic_ids = plan.planned.end.topic_ids
    found: Runs = {}
    if not (running.keeps_state or plan.runs or known.runs):
        return found
    for partition in plan.states:
        before = plan.runs.get(partition, ())
        now = known.runs_of(partition, topic_ids.get(partition.topic, ""))
        own = made.get(partition, ())
        # Its runs are the same where none of the records that come again had changed a state.
        is_set = now != before or partition in back
        if is_set and plan.planned.mark.resumes is None:
            # Somebody has set it back since the batch was planned, or set timers again. Records
            # come again of the key ranges that were set back, and what the batch did with others
            # stands: its changes, behind what was set. What it merged lacks that.
            kept = not_set_back(plan.states[partition], known.states.get(partition))
            first, since = max((run.from_seq for run in own), default=0), last_seq(now, 0) + 1
            changes = (replace(r, from_seq=max(first, since)) for r in own if r.from_seq == first)
            before, own = now, [part for run in changes for part in _within(run, kept)]
        found[partition] = tuple(after_batch(before, own, seq))
    return found if running.keeps_state else {p: runs for p, runs in found.items() if runs}


def _within(run: MadeRun, spans: Iterable[KeyRange]) -> list[MadeRun]:
    parts = (common(run.span, span) for span in merge(spans))
    return [replace(run, span=part) for part in parts if part is not None]


def made_in(rows: Iterable[Sequence[Any]]) -> dict[TopicPartition, list[MadeRun]]:
    """The runs that tasks have written, as manifests name them."""
    found: dict[TopicPartition, list[MadeRun]] = {}
    for topic, number, *run in rows:
        found.setdefault(TopicPartition(topic, number), []).append(MadeRun.of_flat(run))
    return found
