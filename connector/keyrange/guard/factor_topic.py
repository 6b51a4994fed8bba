"""The topic in which somebody says the throttle factor."""

from __future__ import annotations

from typing import Final, NamedTuple

from keyrange.kafka.cluster import Cluster
from keyrange.kafka.fetching.fetch import SplitReader
from keyrange.kafka.fetching.read_settings import ReadSettings
from keyrange.kafka.security.exposure import warn_of_exposure
from keyrange.model.offset_splits import Split
from keyrange.model.offsets import EARLIEST, LATEST, TopicPartition
from keyrange.options.kafka_properties import ClientSettings
from keyrange.options.volume_checks import ADMIN_PREFIX
from keyrange.wire.chunk_decoder import DecodeSettings

# How many offsets back a value is looked for: where a transaction ended, and what compaction has
# removed, there is none.
_BACK: Final = 100


class LastRecord(NamedTuple):
    """When it was written is ms since 1970, below 0 where it does not say."""

    offset: int
    value: bytes
    written_ms: int


class FactorTopic:
    """The first partition of the topic `name`. Not for use by several threads."""

    def __init__(self, client: ClientSettings, name: str, timeout_ms: int) -> None:
        warn_of_exposure(client, ADMIN_PREFIX)
        self.name = name
        self._timeout_ms = timeout_ms
        self._cluster = Cluster(client)

    def last(self) -> LastRecord:
        """The last record that has a value.

        Raises ValueError where there is none, UNKNOWN_TOPIC_OR_PARTITION, and as brokers do.
        """
        view = self._cluster.describe([self.name], self._timeout_ms)
        partition = TopicPartition(self.name, 0)
        begin, end = (
            self._cluster.list_offsets(view, {partition: at}, timeout_ms=self._timeout_ms)[
                partition
            ][0]
            for at in (EARLIEST, LATEST)
        )
        settings = ReadSettings(
            DecodeSettings(("offset", "timestamp", "value")), False, self._timeout_ms
        )
        split = Split(partition, max(begin, end - _BACK), end, 1)
        found: LastRecord | None = None
        for batch in SplitReader(self._cluster, view, settings).read([split]):
            for row in batch.to_pylist():
                if row["value"] is not None:
                    written_ms = round(row["timestamp"].timestamp() * 1000)
                    found = LastRecord(row["offset"], row["value"], written_ms)
        if found is None:
            raise ValueError(f"{partition} has no value at its end, which is at {end}")
        return found

    def close(self) -> None:
        self._cluster.close()
