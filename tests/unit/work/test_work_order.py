"""What tasks are told, over the wire and back."""

from __future__ import annotations

import json
from random import Random

from keyrange.model.key_ranges import SPACE
from keyrange.model.offsets import TopicPartition
from keyrange.ranges.model.range_plan import even_ranges
from keyrange.work.model.work_order import (
    TaskPartition,
    WorkOrder,
    WorkSettings,
    read_work_order,
    write_work_order,
)


def test_orders_read_as_they_were_written() -> None:
    random = Random(7)
    for _ in range(50):
        partitions = {
            TopicPartition(f"t{random.randrange(3)}", random.randrange(4)): TaskPartition(
                tuple(even_ranges(random.randrange(1, 9))),
                frozenset(random.randrange(SPACE.until_hash) for _ in range(random.randrange(5))),
                {random.randrange(100): random.randrange(1, 5) for _ in range(random.randrange(5))},
                {random.randrange(100): random.randrange(1 << 63) for _ in range(3)},
                frozenset(random.randrange(100) for _ in range(random.randrange(3))),
                tuple(random.randrange(100) for _ in range(random.randrange(3))),
            )
            for _ in range(random.randrange(4))
        }
        settings = WorkSettings(random.random() < 0.5, random.randrange(9), 17, 4)
        newer = random.choice([None, {"columns": "{}", "schemas": {"value": [["a", "", []], 7]}}])
        order = WorkOrder("plan", "source", settings, partitions, newer=newer)
        assert read_work_order(json.loads(json.dumps(write_work_order(order)))) == order
