"""The error catalogue: every way in which keyrange refuses or fails, in one table.

A row is in the module of what it is about. Names that Spark's Kafka connector or Kafka itself
publish are kept as they are (`KAFKA_DATA_LOSS.*`, `UNKNOWN_TOPIC_OR_PARTITION`).
"""

from __future__ import annotations

from keyrange.errors.checkpoint import CHECKPOINT_CONDITIONS
from keyrange.errors.commits import COMMIT_CONDITIONS
from keyrange.errors.condition import Condition
from keyrange.errors.consumer import CONSUMER_CONDITIONS
from keyrange.errors.embedded import EMBEDDED_CONDITIONS
from keyrange.errors.kafka import KAFKA_CONDITIONS
from keyrange.errors.keyed_state import STATE_CONDITIONS
from keyrange.errors.members import MEMBER_CONDITIONS
from keyrange.errors.records import RECORD_CONDITIONS
from keyrange.errors.source import SOURCE_CONDITIONS
from keyrange.errors.volumes import VOLUME_CONDITIONS

CATALOGUE: dict[str, Condition] = {
    condition.name: condition
    for condition in (
        *SOURCE_CONDITIONS,
        *CHECKPOINT_CONDITIONS,
        *EMBEDDED_CONDITIONS,
        *KAFKA_CONDITIONS,
        *RECORD_CONDITIONS,
        *COMMIT_CONDITIONS,
        *STATE_CONDITIONS,
        *CONSUMER_CONDITIONS,
        *MEMBER_CONDITIONS,
        *VOLUME_CONDITIONS,
    )
}
