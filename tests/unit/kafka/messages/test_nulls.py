"""Answers with a null where Kafka's protocol has none."""

from __future__ import annotations

from typing import Any

import pytest
from kafka.protocol.sasl import SaslHandshakeResponse

from brokers import loopback_broker
from brokers.loopback_broker import LIST_OFFSETS, METADATA, loopback_cluster
from keyrange.errors import KeyrangeError
from keyrange.kafka.cluster import Cluster
from keyrange.kafka.messages import nulls
from keyrange.model.offsets import LATEST
from keyrange.options.kafka_properties import ClientSettings


@pytest.mark.parametrize(
    ("key", "path"),
    [
        (METADATA, "topics"),
        (METADATA, "brokers"),
        (METADATA, "topics.partitions"),
        (METADATA, "topics.name"),
        (METADATA, "brokers.host"),
        (METADATA, "topics.partitions.isr_nodes"),
        (LIST_OFFSETS, "topics"),
        (LIST_OFFSETS, "topics.partitions"),
        (LIST_OFFSETS, "topics.name"),
    ],
)
def test_an_answer_with_a_null_is_no_answer(
    monkeypatch: pytest.MonkeyPatch, key: int, path: str
) -> None:
    whole = loopback_broker._MADE[key]

    def spoiled(cluster: Any, request: Any) -> Any:
        answer = struct = whole(cluster, request)
        *lists, name = path.split(".")
        for each in lists:
            struct = getattr(struct, each)[0]
        setattr(struct, name, None)
        return answer

    monkeypatch.setitem(loopback_broker._MADE, key, spoiled)
    with loopback_cluster() as broker:
        settings = ClientSettings(bootstrap_servers=broker.servers, default_api_timeout_ms=300)
        cluster = Cluster(settings)
        with pytest.raises(KeyrangeError, match="has a null where Kafka's protocol has none"):
            ends(cluster)
        cluster.close()


def ends(cluster: Cluster) -> None:
    view = cluster.describe(["t"], 300)
    cluster.list_offsets(view, dict.fromkeys(view.partitions(), LATEST), timeout_ms=300)


@pytest.mark.parametrize("mechanisms", [None, [None], ["PLAIN", None]])
def test_nulls_in_lists_of_texts(mechanisms: Any) -> None:
    with pytest.raises(ValueError, match="SaslHandshakeResponse has a null"):
        nulls.check(SaslHandshakeResponse(error_code=33, mechanisms=mechanisms), 1)
    nulls.check(SaslHandshakeResponse(error_code=33, mechanisms=["PLAIN"]), 1)
