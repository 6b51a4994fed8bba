"""Records that keep coming while a test does something to those who read them."""

from __future__ import annotations

import threading

from brokers.real_broker import Record, Topics, send

# As many in each of three partitions.
KEYS = 42


class Feeder:
    """Numbered records that keep coming while it is entered: each key in its order."""

    def __init__(self, topics: Topics, topic: str, partitions: int, per_second: int = 400) -> None:
        self._topics, self._topic = topics, topic
        self._partitions, self._per_second = partitions, per_second
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._feed)
        self.failure: BaseException | None = None
        self.sent = 0

    def _feed(self) -> None:
        try:
            # A broker that is cut off from the controller names itself the leader for ever.
            with self._topics.producer(metadata_max_age_ms=5_000) as producer:
                while not self._stopped.wait(0.1):
                    numbers = range(self.sent, self.sent + self._per_second // 10)
                    send(producer, self._topic, (self.record(n) for n in numbers))
                    self.sent = numbers.stop
        except BaseException as failure:
            self.failure = failure

    def record(self, n: int) -> Record:
        return Record(b"%d" % n, b"key-%d" % (n % KEYS), n % KEYS % self._partitions)

    def __enter__(self) -> Feeder:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self.check()

    def check(self) -> None:
        """Fails where records have ceased to come."""
        assert self.failure is None, repr(self.failure)

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()
