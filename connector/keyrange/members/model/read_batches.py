"""Which batches of a slot's key ranges were read by the slot itself, without a gap.

Other slots read a slot's ranges while it is away, and batches that are not bound are read by
anybody: what a slot keeps beside its ranges has missed those.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class ReadBatches:
    """The batches [start, stop) were read whole; of batch `stop` the `portions` of `plan`, which
    has planned it."""

    start: int
    stop: int
    plan: str = ""
    portions: frozenset[int] = frozenset()

    @property
    def batches(self) -> range:
        return range(self.start, self.stop)

    def reaches(self, batch: int, last: int) -> ReadBatches:
        """What is known when a task of a batch begins; `last` is the last batch before it that had
        something of these ranges, or may have had.

        A batch that is read again was read: Spark plans its last one again after a restart, with
        the same records. One further back is of a checkpoint that was set back, and says other
        things than before.
        """
        if batch <= self.stop <= batch + 1:
            return self
        if last < self.stop < batch:
            return ReadBatches(self.start, batch)
        return ReadBatches(batch, batch)

    def with_portion(self, batch: int, plan: str, portion: int, count: int) -> ReadBatches:
        """One of the `count` portions that a plan has of these ranges was handed over whole."""
        if batch != self.stop:
            return self
        portions = (self.portions if plan == self.plan else frozenset()) | {portion}
        if len(portions) >= count:
            return ReadBatches(self.start, batch + 1)
        return replace(self, plan=plan, portions=portions)
