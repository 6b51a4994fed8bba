"""How rows become records of a topic, and what the topic takes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

# The column of rows for several topics.
TOPIC: Final = "topic"
NO_LIMIT_MS: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class BatchSettings:
    """How records are put into batches.

    `batch_bytes` (`batch.size`): the most bytes of a batch of several records, before compression.
    `request_bytes` (`max.request.size`): the most of a batch of one record, before compression.
    `compression` is a name of `compression.type`, `compression_level` None its default.
    """

    batch_bytes: int = 16_384
    request_bytes: int = 1_048_576
    compression: str = "none"
    compression_level: int | None = None


@dataclass(frozen=True, slots=True)
class TopicLimits:
    """What a topic takes. `batches`: how its records are put into batches. `message_bytes` is the
    topic's `max.message.bytes`, `partitions` how many it has; 0 for what is not known. It takes
    only records with keys where it `needs_keys`, and timestamps from `before_ms` before now until
    `after_ms` after it."""

    batches: BatchSettings = field(default_factory=BatchSettings)
    message_bytes: int = 0
    partitions: int = 0
    needs_keys: bool = False
    before_ms: int = NO_LIMIT_MS
    after_ms: int = NO_LIMIT_MS
