"""Whether a query may go on from a checkpoint with the options that it has.

`individual_commits/model/state_before_batch` says how checkpoint and commit table have to agree.
The number of key ranges may change with any batch (`individual_commits/batch_deliveries`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from keyrange.errors import error
from keyrange.model.checkpoint import Checkpoint
from keyrange.model.key_ranges import SPACE, KeyRange
from keyrange.model.offsets import TopicPartition
from keyrange.model.position_options import Offsets, PositionSpec
from keyrange.model.query_ranges import Ownership, first_change, owned


def check_ownership(known: Checkpoint, now: Ownership) -> None:
    """The positions of a query that reads only some key ranges are those of no other ranges."""
    if not known.fresh:
        check_same("the checkpoint is", known.ownership, now, known.known)


def check_same(
    what: str, before: Ownership, now: Ownership, partitions: Collection[TopicPartition]
) -> None:
    """Nor are the states in commits that a query with a checkpoint of its own goes on from."""
    changed = first_change(before, now, partitions)
    if changed is not None:
        was, is_now = (owned(each, changed) or (SPACE,) for each in (before, now))
        raise error(
            "KEY_RANGES_CHANGED",
            f"{what} of a query that reads {_listed(was)} of partition {changed}, "
            f"and the options say {_listed(is_now)}",
        )


def check_foreign(end: Checkpoint, start: PositionSpec) -> None:
    """The start of the JVM connector's first batch is in a file that Spark does not show to
    Python: only the user can say it."""
    positions = start.positions
    said = positions.each if isinstance(positions, Offsets) else {}
    if any(said.get(partition, -1) < 0 for partition in end.positions):
        raise error(
            "UNCOMMITTED_FOREIGN_BATCH",
            "batch 0 of this checkpoint was planned by Spark's own Kafka source and is not "
            "committed; where it starts is kept in a file of the checkpoint, sources/0/0, that "
            "Spark does not hand to a Python source",
        )


def _listed(spans: Iterable[KeyRange]) -> str:
    return ", ".join(map(str, spans))


def check_works(end: Checkpoint, names_source: bool) -> None:
    """A batch that was planned for tasks that write is finished by such, and any other by a sink of
    Spark's: each knows by itself alone what it has. Raises BATCH_UNFINISHED."""
    if bool(end.source_id) != names_source:
        jobs, others = "keyrange.job", "a sink of Spark's"
        was, is_now = (jobs, others) if end.source_id else (others, jobs)
        raise error(
            "BATCH_UNFINISHED",
            f"a batch is not finished that {was} began to write, and {is_now} would write it once "
            "more",
        )
