"""What the plan of a batch with many pending records costs."""

from __future__ import annotations

from typing import Any, ClassVar

from keyrange.individual_commits.model.delivery_splits import PartitionDelivery, plan_deliveries
from keyrange.individual_commits.model.partition_progress import PendingRecord
from keyrange.model.key_ranges import SPACE
from keyrange.model.offsets import TopicPartition
from keyrange.ranges.model.plan_check import Area
from keyrange.ranges.model.range_plan import RangeEstimate


class Counted(int):
    """An offset that counts how often it is compared."""

    compared: ClassVar[int] = 0

    def _count(name: str) -> Any:
        def compare(self: Counted, other: Any) -> Any:
            Counted.compared += 1
            return getattr(int, name)(self, other)

        return compare

    __lt__, __le__, __gt__, __ge__ = map(_count, ("__lt__", "__le__", "__gt__", "__ge__"))


def test_holes_far_apart_are_not_held_against_one_another() -> None:
    partition, count = TopicPartition("t", 0), 2_000
    pending = tuple(PendingRecord(Counted(at * 1_000), at) for at in range(count))
    end = count * 1_000
    delivery = PartitionDelivery(end, end, (Area(SPACE, end, end),), pending)
    cell = RangeEstimate(partition, SPACE, 1.0, False)
    Counted.compared = 0
    [task] = plan_deliveries([[cell]], {partition: delivery}, {partition: 1_000.0}, lambda _: "")
    assert [split.from_offset for split in task] == [record.offset for record in pending]
    assert all(len(split.delivery.offsets) == 1 for split in task if split.delivery)
    # Some sorting and bisecting: a hundred comparisons each. All with all would be 2,000 each.
    assert Counted.compared < count * 200
