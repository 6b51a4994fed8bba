"""A plain consumer that sends in transactions, and is killed at a step of them."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from itertools import count
from typing import Any

from keyrange import Consumer
from keyrange.individual_commits.table.commit_table import DeltaCommitTable
from keyrange.individual_commits.table.prepared_commits import PreparedCommits
from keyrange.kafka.transactional_producer import TransactionalProducer
from queries.consuming import consumer_options


def stepped(step: Callable[[], None]) -> None:
    """Before and behind each write to the table and beside it, and each request to Kafka."""
    for place, name in (
        (PreparedCommits, "write"),
        (PreparedCommits, "remove"),
        (DeltaCommitTable, "append"),
        (TransactionalProducer, "_answer"),
        (TransactionalProducer, "_send_ahead"),
    ):
        setattr(place, name, _around(getattr(place, name), step))


def _around(call: Callable[..., Any], step: Callable[[], None]) -> Callable[..., Any]:
    def around(*given: Any, **named: Any) -> Any:
        step()
        found = call(*given, **named)
        step()
        return found

    return around


def send_on(consumer: Consumer, output: str, until_rows: int | None = None) -> int:
    """Until nothing comes, or so many rows were sent."""
    sent = 0
    while until_rows is None or sent < until_rows:
        found = send_some(consumer, output)
        if not found:
            break
        sent += found
    return sent


def send_some(consumer: Consumer, output: str) -> int:
    """One block."""
    with consumer.transaction() as transaction:
        batches = consumer.poll(500)
        for batch in batches:
            transaction.send(batch.select(["key", "value"]), topic=output)
            consumer.acknowledge(batch)
    return sum(map(len, batches))


def transact(
    servers: str, table: str, topic: str, output: str, records: str, name: str, step: str
) -> None:
    """Send each record of partition 0 on, which has so many, and be killed at the step of this
    number, counted from the start; 0 for never."""
    numbers = count(1)

    def killed() -> None:
        if next(numbers) == int(step):
            os.kill(os.getpid(), signal.SIGKILL)

    stepped(killed)
    options = consumer_options(servers, table, member__name=name, maxBatchRows="20")
    with Consumer(options) as consumer:
        consumer.assign({(topic, 0): []})
        # A run that is killed late has come as far as its third block.
        left = 10**9 if step == "0" else 60
        while left > 0 and consumer.committed((topic, 0)) != int(records):
            left -= send_some(consumer, output)
