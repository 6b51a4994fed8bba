"""How rows become records of a topic, and what the topic takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from keyrange.errors import error

if TYPE_CHECKING:
    import pyarrow as pa

# The column of rows for several topics.
TOPIC: Final = "topic"


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
    transactional: bool = True


@dataclass(frozen=True, slots=True)
class TopicLimits:
    """What a topic takes. `batches`: how its records are put into batches. `message_bytes` is the
    topic's `max.message.bytes`, `partitions` how many it has; 0 for what is not known. It takes
    only records with keys where it `needs_keys`, and timestamps from `before_ms` before now until
    `after_ms` after it."""

    batches: BatchSettings
    message_bytes: int = 0
    partitions: int = 0
    needs_keys: bool = False
    before_ms: int = 2**63 - 1
    after_ms: int = 2**63 - 1

    def fault(self, rows: pa.RecordBatch, now_ms: int = 0) -> str | None:
        """Why a row cannot become a record; None where all can. The text has no value of a row's.
        Raises INVALID_TOPIC_COLUMNS."""
        found = self._fault(rows, now_ms)
        return None if found is None else found[1]

    def check(self, rows: pa.RecordBatch, now_ms: int, topic: str) -> None:
        """Raises INVALID_RECORD or MESSAGE_TOO_LARGE where a row cannot become a record of a topic,
        and INVALID_TOPIC_COLUMNS."""
        found = self._fault(rows, now_ms)
        if found is not None:
            raise error(found[0], found[1], topic=topic)

    def _fault(self, rows: pa.RecordBatch, now_ms: int) -> tuple[str, str] | None:
        # Its kernels take a second to load: a process that plans has no rows.
        from keyrange.wire.record_limits import fault_of

        return fault_of(self, rows, now_ms)
