"""Group `parts`: the two halves of reading alone, each on one core: fetch, and decode; and what a
whole task spends on compressed records (`bench.task_profile`).

All are counted per second of the CPU time of this process, so that the broker, which shares the
machine, does not count as the client's work; fetching is shown per second of the clock too.
"""

from __future__ import annotations

import shutil
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from bench import spark as sparks
from bench import topics
from bench.figures import Figure, at_least, from_runs
from bench.registry import Bench, Group
from bench.task_profile import READING, WRITING, seconds_of_parts
from keyrange.kafka.cluster import Cluster
from keyrange.kafka.cluster_view import ClusterView
from keyrange.kafka.messages import protocol
from keyrange.kafka.response_frames import ReceiveBuffer
from keyrange.options import parse_options
from keyrange.options.kafka_properties import ClientSettings
from keyrange.wire import fetch_response
from keyrange.wire.chunk_decoder import Decoder, DecodeSettings, scan_chunk
from keyrange.wire.compression import Bytes

_LENGTH = struct.Struct(">qi")
_LAST_DELTA = struct.Struct(">i")
_LAST_DELTA_AT = 23
_ANSWER_BYTES_MAX = 256 * 1024 * 1024


@dataclass(slots=True)
class _Spent:
    """Seconds of a run, by the clock and of this process's CPU time."""

    wall_s: float
    cpu_s: float


class _Stopwatch:
    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def spent(self) -> _Spent:
        return _Spent(time.perf_counter() - self._wall, time.process_time() - self._cpu)


def run(bench: Bench) -> Iterator[Figure]:
    rows = bench.pick(full=4_000_000, quick=1_000_000, tiny=20_000)
    few = rows // 4
    servers = bench.bootstrap_servers
    topic = topics.create_topic(servers, "parts", 1)
    compressed = topics.create_topic(servers, "task", 1)
    with sparks.session(bench.directory) as spark:
        topics.fill(topics.records(spark, rows, 200, 1), servers, topic, "none")
        topics.fill(topics.records(spark, few, 1024, 1), servers, compressed, "lz4")
    bench.progress(f"{rows:,} records written, and {few:,} of 1 KB")
    options = parse_options({"kafka.bootstrap.servers": servers, "subscribe": topic})
    cluster = Cluster(options.client)
    try:
        view = cluster.describe([topic, compressed])
        yield from _fetch(bench, cluster, view, topic, rows)
        kept = [(at, data.copy()) for at, data in _chunks(cluster, view, topic, min(rows, 500_000))]
        yield from _task(bench, cluster, view, compressed, few)
    finally:
        cluster.close()
    yield from _decode(bench, kept, topic)
    for each in (topic, compressed):
        topics.delete_topic(servers, each)


def _fetch(
    bench: Bench, cluster: Cluster, view: ClusterView, topic: str, rows: int
) -> Iterator[Figure]:
    per_core, per_second = [], []
    for number in range(-1, bench.runs):
        watch = _Stopwatch()
        megabytes = sum(len(data) for _, data in _chunks(cluster, view, topic, rows)) / 1e6
        spent = watch.spent()
        if number >= 0:  # the first one connects and brings the log into the page cache
            per_core.append(megabytes / spent.cpu_s)
            per_second.append(megabytes / spent.wall_s)
    yield from_runs("fetch.mb_per_second", per_core, "MB/core-s")
    yield from_runs("fetch.wall.mb_per_second", per_second, "MB/s")


def _chunks(
    cluster: Cluster, view: ClusterView, topic: str, rows: int
) -> Iterator[tuple[int, Bytes]]:
    """What a task receives of partition 0, with the offset it asked for; nothing is decoded.

    As in the source, the next request is under way while a chunk is used.
    """
    client = cluster.settings
    [broker] = view.brokers.values()
    connection = cluster.connection(broker.host, broker.port)
    version = connection.fetch_version()
    buffer = ReceiveBuffer(partial(np.empty, dtype=np.uint8))
    offset = 0
    connection.send(_request(client, view, topic, offset), version)
    while offset < rows:
        frame = np.frombuffer(connection.receive(buffer, _ANSWER_BYTES_MAX), np.uint8)
        header = 5 if version >= 12 else 4
        answer = fetch_response.parse_fetch_response(frame.data[header:], version)
        [fetched] = answer.partitions
        data = frame[header + fetched.records_at : header + fetched.records_end]
        asked, offset = offset, _next_offset(data, offset)
        if offset < rows:
            connection.send(_request(client, view, topic, offset), version)
        yield asked, data


def _request(client: ClientSettings, view: ClusterView, topic: str, offset: int) -> object:
    return protocol.fetch(
        {(topic, view.topic_id(topic)): [(0, offset, -1)]},
        client.max_partition_fetch_bytes,
        client.fetch_max_bytes,
        client,
        client.fetch_max_wait_ms,
    )


def _next_offset(data: Bytes, offset: int) -> int:
    """Where the next fetch begins, from the heads of the record batches alone."""
    at, view = 0, data.data
    while at + _LAST_DELTA_AT + 4 <= len(view):
        base, length = _LENGTH.unpack_from(view, at)
        if at + 12 + length > len(view):
            break
        offset = base + _LAST_DELTA.unpack_from(view, at + _LAST_DELTA_AT)[0] + 1
        at += 12 + length
    return offset


def _task(
    bench: Bench, cluster: Cluster, view: ClusterView, topic: str, rows: int
) -> Iterator[Figure]:
    runs = []
    for number in range(-1, bench.runs):
        home = bench.directory / "task"
        home.mkdir()
        spent = seconds_of_parts(topic, _chunks(cluster, view, topic, rows), home)
        shutil.rmtree(home)
        if number >= 0:
            runs.append({part: seconds / rows * 1e6 for part, seconds in spent.items()})
    for part in (*READING, *WRITING):
        yield from_runs(f"task.1KB.lz4.{part}.us", [each[part] for each in runs], "µs")
    whole = [sum(each[part] for part in READING) for each in runs]
    yield from_runs("task.1KB.lz4.us", whole, "µs")


def _decode(bench: Bench, kept: list[tuple[int, Bytes]], topic: str) -> Iterator[Figure]:
    per_core = []
    decoder = Decoder(topic, 0, DecodeSettings())
    for number in range(-1, bench.runs):
        watch = _Stopwatch()
        rows = 0
        for offset, data in kept:
            chunk = scan_chunk(data, topic, 0, offset)
            rows += sum(batch.num_rows for batch in decoder.decode(chunk, offset, 1 << 62))
        if number >= 0:
            per_core.append(rows / watch.spent().cpu_s / 1e6)
    yield from_runs("decode.mrec_per_second", per_core, "M/core-s")


GROUP = Group(
    order=2,
    run=run,
    targets={
        "fetch.mb_per_second": at_least(400),
        "decode.mrec_per_second": at_least(4.0),
    },
)
