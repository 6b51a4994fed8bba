"""The reader of splits over sockets: frames that are no answer, links that trickle, hang and break.

Whatever comes, the rows are those of the log, each once and in order, or the error is typed and in
time.
"""

from __future__ import annotations

import logging
import random
import struct
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from brokers.loopback_broker import FETCH, LoopbackCluster, loopback_cluster
from brokers.scripted_broker import Fetched
from faults.tcp_proxy import TcpProxy
from keyrange.errors import KeyrangeError
from keyrange.kafka.cluster import Cluster
from keyrange.kafka.fetching.fetch import SplitReader
from keyrange.kafka.fetching.read_settings import ReadSettings
from keyrange.model.offset_splits import Split
from keyrange.model.offsets import TopicPartition
from keyrange.options.kafka_properties import ClientSettings
from keyrange.wire.chunk_decoder import DecodeSettings
from project.forms import everyday
from samples.strategies import Batch, Record, encode_batch

COUNT = 60
# Less than any timeout that has to be passed by, and more than a busy machine takes.
SOON_S = 25.0


def log(node: int, partition: int, offset: int) -> Fetched:
    """Records of some 200 bytes, five at a time."""
    value = random.Random(offset).randbytes(200)
    return Fetched(encode_batch(Batch(offset, tuple(Record(n, 0, None, value) for n in range(5)))))


@pytest.fixture
def broker() -> Iterator[LoopbackCluster]:
    with loopback_cluster(script=log, partitions=4) as made:
        yield made


@pytest.fixture
def proxy(broker: LoopbackCluster) -> Iterator[TcpProxy]:
    """In front of the broker, which advertises it."""
    with TcpProxy(broker.servers[0]) as made:
        broker.advertised[0] = ("127.0.0.1", made.port)
        yield made


def read(
    broker: LoopbackCluster, timeout_ms: int = 20_000, splits: int = 1, **settings: Any
) -> list[list[int]]:
    """The offsets of each partition, as they come."""
    given = {"request_timeout_ms": 400, "retry_backoff_ms": 5, "fetch_max_wait_ms": 10} | settings
    cluster = Cluster(ClientSettings(bootstrap_servers=tuple(broker.advertised.values()), **given))
    found: list[list[int]] = [[] for _ in range(splits)]
    try:
        how = ReadSettings(DecodeSettings(), True, timeout_ms)
        reader = SplitReader(cluster, cluster.describe(["t"]), how)
        wanted = [
            Split(TopicPartition("t", number), 0, COUNT, COUNT * 200) for number in range(splits)
        ]
        for batch in reader.read(wanted):
            partitions = batch.column("partition").to_pylist()
            for partition, offset in zip(
                partitions, batch.column("offset").to_pylist(), strict=True
            ):
                found[partition].append(offset)
    finally:
        cluster.close()
    return found


def all_of(splits: int) -> list[list[int]]:
    return [list(range(COUNT))] * splits


def some(spoiled: Callable[[bytes], bytes | None], every: int = 5) -> Any:
    """Spoil each n-th answer to a fetch."""
    count = [0]

    def spoil(node: int, key: int, frame: bytes) -> bytes | None:
        if key != FETCH:
            return frame
        count[0] += 1
        return spoiled(frame) if count[0] % every == 0 else frame

    return spoil


WRONG: dict[str, Callable[[bytes], bytes | None]] = {
    "another request's id": lambda frame: frame[:4] + struct.pack(">i", 0x7777) + frame[8:],
    "twice": lambda frame: frame + frame,
    "negative length": lambda frame: struct.pack(">i", -5) + frame[4:],
    "2 GB": lambda frame: struct.pack(">i", 2**31 - 1) + frame[4:],
    "no length": lambda frame: bytes(4) + frame[4:],
    "nothing, and the end": lambda frame: None,
    "shorter than its fields": lambda frame: struct.pack(">i", 12) + frame[4:16],
    "of nothing but ones": lambda frame: frame[:8] + b"\xff" * (len(frame) - 8),
    "another partition": lambda frame: frame.replace(
        b"\0" * 15 + b"\1\2" + bytes(4), b"\0" * 15 + b"\1\2" + b"\0\0\0\7", 1
    ),
    "another topic": lambda frame: frame.replace(b"\0" * 15 + b"\1\2", b"\0" * 15 + b"\3\2", 1),
}


@pytest.mark.parametrize("splits", everyday(4, 1))
@pytest.mark.parametrize("wrong", WRONG)
def test_a_frame_that_is_no_answer_is_asked_for_again(
    broker: LoopbackCluster, wrong: str, splits: int
) -> None:
    broker.spoil = some(WRONG[wrong])
    assert read(broker, splits=splits) == all_of(splits)
    assert len(broker.requests(FETCH)) > splits * COUNT // 5
    assert broker.connections > 2 or wrong in ("another partition", "another topic")


def test_spoiled_frames_are_what_they_say(broker: LoopbackCluster) -> None:
    seen: list[bytes] = []

    def spoil(node: int, key: int, frame: bytes) -> bytes | None:
        if key == FETCH:
            seen.append(frame)
        return frame

    broker.spoil = spoil
    read(broker)
    assert all(WRONG[name](frame) != frame for frame in seen for name in WRONG)


@pytest.mark.parametrize(
    ("wrong", "condition"),
    [
        ("another request's id", "CORRUPT_FRAME"),
        ("negative length", "CORRUPT_FRAME"),
        ("2 GB", "BATCH_TOO_LARGE"),
        ("of nothing but ones", "CORRUPT_FRAME"),
    ],
)
def test_what_stays_wrong_is_named_soon(
    broker: LoopbackCluster, wrong: str, condition: str
) -> None:
    broker.spoil = some(WRONG[wrong], every=1)
    began = time.monotonic()
    with pytest.raises(KeyrangeError) as failure:
        read(broker, timeout_ms=60_000)
    assert failure.value.condition.name == condition
    assert time.monotonic() - began < SOON_S


def test_a_length_field_takes_no_memory(broker: LoopbackCluster) -> None:
    """As large as an answer may be, and nothing comes behind it."""
    broker.spoil = some(lambda frame: struct.pack(">i", 60 << 20), every=1)
    tracemalloc.start()
    try:
        with pytest.raises(KeyrangeError, match="REQUEST_TIMED_OUT"):
            read(broker, timeout_ms=300, max_partition_fetch_bytes=64 << 20)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


def test_resets_in_the_middle_of_answers(broker: LoopbackCluster, proxy: TcpProxy) -> None:
    proxy.to_client.set("cut", after_bytes=6_000, times=12)
    assert read(broker, splits=4) == all_of(4)
    assert proxy.to_client.happened >= 3


def test_a_link_that_dies_and_comes_back(broker: LoopbackCluster, proxy: TcpProxy) -> None:
    """Nothing comes any more, and no end either; a new connection does as well as ever."""
    hung = threading.Event()

    def script(node: int, partition: int, offset: int) -> Fetched:
        if offset == 30 and not hung.is_set():
            hung.set()
            proxy.mode = "hang"
            threading.Timer(0.6, lambda: setattr(proxy, "mode", "pass")).start()
        return log(node, partition, offset)

    broker.script = script
    assert read(broker) == all_of(1)
    assert hung.is_set()


@pytest.mark.parametrize("mode", ["hang", "trickle"])
def test_a_link_that_stays_dead_ends_in_time(
    broker: LoopbackCluster, proxy: TcpProxy, mode: Any
) -> None:
    """Less than the timeout of one request: the reader has its own. Broker and place are named."""

    def script(node: int, partition: int, offset: int) -> Fetched:
        if offset == 30:
            proxy.to_client.set(mode, every_ms=30)
        return log(node, partition, offset)

    broker.script = script
    began = time.monotonic()
    named = rf"REQUEST_TIMED_OUT.*broker=127\.0\.0\.1:{proxy.port}\).*partition=0, offset=30"
    with pytest.raises(KeyrangeError, match=named):
        read(broker, timeout_ms=500, request_timeout_ms=30_000)
    assert time.monotonic() - began < SOON_S


def test_a_slow_link_that_moves_is_enough(broker: LoopbackCluster, proxy: TcpProxy) -> None:
    """An answer of 40 KB at 50 KB/s takes longer than request.timeout.ms, and pollTimeoutMs."""
    value = random.Random(1).randbytes(8_000)

    def script(node: int, partition: int, offset: int) -> Fetched:
        proxy.to_client.set("trickle", step_bytes=1_000, every_ms=20)
        records = tuple(Record(n, 0, None, value) for n in range(5))
        return Fetched(encode_batch(Batch(offset, records)))

    broker.script = script
    broker.latest = 10
    cluster = Cluster(
        ClientSettings(
            bootstrap_servers=tuple(broker.advertised.values()),
            request_timeout_ms=300,
            fetch_max_wait_ms=10,
        )
    )
    reader = SplitReader(
        cluster, cluster.describe(["t"]), ReadSettings(DecodeSettings(), True, 300)
    )
    rows = sum(
        batch.num_rows for batch in reader.read([Split(TopicPartition("t", 0), 0, 10, 80_000)])
    )
    assert rows == 10
    assert len(broker.requests(FETCH)) == 2
    cluster.close()


def test_a_throttled_client_is_told_so_and_waits_no_longer_than_it_may(
    broker: LoopbackCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """A client quota that leaves nothing: the broker would have it wait for an hour."""
    broker.script = lambda node, partition, offset: Fetched(throttle_time_ms=3_600_000, empty=True)
    began = time.monotonic()
    with (
        caplog.at_level(logging.WARNING),
        pytest.raises(KeyrangeError, match=r"REQUEST_TIMED_OUT.*client quota.*3600000 ms"),
    ):
        read(broker, timeout_ms=300)
    assert time.monotonic() - began < SOON_S
    assert "a client quota of the broker throttles the reading of t-0 by 3600000 ms" in caplog.text


def test_a_throttled_answer_is_not_taken_for_the_end_of_the_log(broker: LoopbackCluster) -> None:
    """Empty answers that say nothing but to wait, between those with records."""
    turn = [0]

    def script(node: int, partition: int, offset: int) -> Fetched:
        turn[0] += 1
        if turn[0] % 2:
            return Fetched(throttle_time_ms=5, empty=True)
        return log(node, partition, offset)

    broker.script = script
    assert read(broker) == all_of(1)
