"""A process that writes to a topic at a steady rate until its standard input ends.

Records carry the time at which they were handed to the producer, which sends them at once.
"""

from __future__ import annotations

import select
import sys
import time

from kafka import KafkaProducer

_TICK_S = 0.01
_VALUE_BYTES = 200
# A prime: keys come from everywhere.
_STEP = 7_919


def main(bootstrap_servers: str, topic: str, partitions: int, rate: int, keys: int = 1000) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap_servers, acks=1, linger_ms=0)
    padding = "late aircraft, " * _VALUE_BYTES
    started, sent = time.monotonic(), 0
    while not select.select([sys.stdin], [], [], _TICK_S)[0]:
        due = int((time.monotonic() - started) * rate)
        for number in range(sent, due):
            head = f'{{"number":{number},"note":"{padding}'
            producer.send(
                topic,
                key=f"key-{number * _STEP % keys:08}".encode(),
                value=f'{head[: _VALUE_BYTES - 2]}"}}'.encode(),
                partition=number % partitions,
                timestamp_ms=int(time.time() * 1000),
            )
        sent = due
    producer.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:]))
