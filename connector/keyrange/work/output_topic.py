"""A topic that a job writes, as its tasks know it."""

from __future__ import annotations

from dataclasses import dataclass

from keyrange.sending.topic_address import TopicAddress
from keyrange.work.topic_rows import TopicRows


@dataclass(frozen=True, slots=True)
class OutputTopic:
    """`schema` is Spark's JSON of what a job makes for a topic, `rows` what becomes of it. `name`:
    what the job's function calls it, "" where all is for it."""

    schema: str
    rows: TopicRows
    address: TopicAddress
    name: str = ""
