"""What Kafka keeps of a sender: which batch of its query was the last one whose rows are out.

A mark is a group's offset that is committed with the rows, in one transaction: the number of the
next batch, and beside it, as text, what else is to be known.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Final

# Of the sender of dead letters, in the place of an output's name.
LETTERS: Final = "deadLetterTopic"


@dataclass(frozen=True, slots=True)
class Mark:
    """`batch_id`: the last batch whose rows are out, as far as they are this sender's; -1 for none.
    `driver`: the number of the driver that had them sent, or that has stopped the one that had.
    `senders`: the most that the query has had, which sender 0 knows for all. `plan`: what tells the
    output of that batch from that of another one of its number."""

    batch_id: int
    driver: int = 0
    senders: int = 1
    plan: str = ""

    @property
    def offset(self) -> int:
        return self.batch_id + 1

    @property
    def text(self) -> str:
        return json.dumps({"driver": self.driver, "senders": self.senders, "plan": self.plan})

    def is_out(self, batch_id: int) -> bool:
        return batch_id <= self.batch_id

    def of_driver(self, driver: int, senders: int) -> Mark:
        """The same batch, as a driver says it that may have more senders."""
        return replace(self, driver=driver, senders=max(self.senders, senders))


def read_mark(offset: int, text: str) -> Mark | None:
    """None for an offset that somebody else has committed."""
    try:
        document = json.loads(text)
        driver, senders, plan = document["driver"], document["senders"], document["plan"]
    except (ValueError, KeyError, TypeError):
        return None
    is_one = isinstance(driver, int) and isinstance(senders, int) and offset >= 0
    return Mark(offset - 1, driver, senders, str(plan)) if is_one else None
