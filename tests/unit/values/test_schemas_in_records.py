"""Columns that the records of a topic bring with them: those of the youngest one that does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from brokers.loopback_broker import LoopbackCluster, loopback_cluster
from brokers.scripted_broker import Fetched
from keyrange.errors import InvalidError
from keyrange.model.value_forms import ValueForms
from keyrange.options import parse_options
from keyrange.values.forms import value_forms
from samples.strategies import Batch, Record, encode_batch

END = 1_000
KINDS = {"long": "int64", "string": "string"}


def change(kind: str) -> bytes:
    row = {"type": "struct", "fields": [{"field": "id", "type": KINDS[kind]}]}
    sides = [row | {"field": side} for side in ("before", "after")]
    return json.dumps({"schema": {"type": "struct", "fields": sides}, "payload": None}).encode()


class Log:
    """Values by partition and offset; others are tombstones. `times` are those of partitions."""

    def __init__(self) -> None:
        self.values: dict[tuple[int, int], bytes] = {}
        self.times: dict[int, int] = {}
        self.fetched: list[int] = []

    def __call__(self, node: int, partition: int, offset: int) -> Fetched:
        self.fetched.append(offset)
        time = self.times.get(partition, 0)
        records = tuple(
            Record(n, 0, b"k", self.values.get((partition, offset + n)))
            for n in range(min(8, END - offset))
        )
        return Fetched(encode_batch(Batch(offset, records, base_timestamp=time)), END)


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
def broker(log: Log) -> Iterator[LoopbackCluster]:
    with loopback_cluster(script=log, partitions=2) as made:
        yield made


def forms(broker: LoopbackCluster, **given: str) -> ValueForms:
    servers = ",".join(f"{host}:{port}" for host, port in broker.servers)
    options = {"kafka.bootstrap.servers": servers, "subscribe": "t", "valueFormat": "debezium"}
    return value_forms(parse_options(options | given, "stream"))


def type_in(found: ValueForms) -> Any:
    [form] = found.columns
    [column] = json.loads(form.schema.text)["fields"]
    return column["type"]


def test_the_youngest_record_says_the_columns(broker: LoopbackCluster, log: Log) -> None:
    log.times = {0: 5, 1: 7}
    log.values = {(0, END - 1): change("string"), (1, END - 3): change("long")}
    assert type_in(forms(broker)) == "long"
    log.times[0] = 9
    assert type_in(forms(broker)) == "string"
    # Of one partition the last one.
    log.values = {(0, END - 9): change("long"), (0, END - 2): change("string")}
    assert type_in(forms(broker)) == "string"
    # One that Kafka Connect has not written is none.
    log.values[0, END - 1] = change("string").replace(b'"string"', b'["string"]')
    assert type_in(forms(broker)) == "string"
    # What a query selects says nothing of it.
    assert type_in(forms(broker, keys='["no such key"]', columns="offset")) == "string"


def test_it_is_looked_for_further_back(broker: LoopbackCluster, log: Log) -> None:
    log.values = {(1, 10): change("long"), (1, END - 1): b"{}", (0, END - 1): b"no JSON"}
    assert type_in(forms(broker)) == "long"


def test_a_topic_that_brings_none(broker: LoopbackCluster, log: Log) -> None:
    with pytest.raises(
        InvalidError, match=r"'valueFormat' is debezium without valueSchema, and no"
    ):
        forms(broker)
    log.values = {(0, END - 1): change("string").replace(b"string", b"int128")}
    with pytest.raises(InvalidError, match=r"'valueSchema' has to say it: a type of Kafka Connect"):
        forms(broker)
