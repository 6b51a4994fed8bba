"""A process that says of each committed record of a topic when it was read, and the time that its
value is, both in seconds since 1970, until its standard input ends."""

from __future__ import annotations

import select
import sys
import time

from kafka import KafkaConsumer


def main(servers: str, topic: str) -> None:
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=servers,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        fetch_max_wait_ms=20,
    )
    while not select.select([sys.stdin], [], [], 0)[0]:
        polled = consumer.poll(timeout_ms=20)
        now = time.time()
        lines = [
            f"{now} {int(each.value) / 1e3}" for records in polled.values() for each in records
        ]
        if lines:
            print("\n".join(lines), flush=True)
    consumer.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
