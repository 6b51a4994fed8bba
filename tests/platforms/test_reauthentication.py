"""What the end of a session costs who reads without a pause."""

from __future__ import annotations

import time
from statistics import median

import pytest

from brokers.logins import COUNT, Watched, create_numbers, parsed
from keyrange.kafka.cluster import Cluster
from keyrange.kafka.fetching.fetch import SplitReader
from keyrange.kafka.fetching.read_settings import ReadSettings
from keyrange.model.offset_splits import Split
from keyrange.model.offsets import TopicPartition
from keyrange.options.kafka_properties import ClientSettings
from keyrange.wire.chunk_decoder import DecodeSettings
from platforms.every_login import EveryLogin

SECONDS = 20.0
# The sessions of one end every 600 ms, those of the other outlive the test. Both have TLS.
SHORT, LONG = "SCRAM-SHA-256", "PLAIN"


def test_what_a_reauthentication_costs(
    every: EveryLogin, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each record comes once in each pass. A machine that is slow for a moment lets a session end
    before it is replaced; the broker then closes it, which costs a connection too."""
    topic = create_numbers(every.topics, "load")
    watched = Watched(monkeypatch)
    told = []
    for way in (LONG, SHORT):
        settings = parsed(every.options(way) | {"max.partition.fetch.bytes": "40000"})
        before = watched.lost
        paused, others = read_under_load(settings, topic, watched)
        assert len(paused) >= (20 if way == SHORT else 0)
        told += [f"{way}, chunks with a new connection: {figure(paused)}"]
        told += [f"{way}, other chunks: {figure(others)}"]
        told += [f"{way}, sessions that the broker closed: {watched.lost - before}"]
    with capsys.disabled():
        print("", *told, sep="\n")


def read_under_load(
    settings: ClientSettings, topic: str, watched: Watched
) -> tuple[list[float], list[float]]:
    """Read a topic again and again. How long each chunk was waited for, in ms: those for which a
    connection was made, but for the first ones, and the others."""
    cluster = Cluster(settings)
    paused: list[float] = []
    others: list[float] = []
    try:
        reader = SplitReader(
            cluster, cluster.describe([topic]), ReadSettings(DecodeSettings(), True, 60_000)
        )
        ended = time.monotonic() + SECONDS
        first = True
        while time.monotonic() < ended:
            offsets: list[int] = []
            made, at = watched.made, time.perf_counter()
            for each in reader.read([Split(TopicPartition(topic, 0), 0, COUNT, 0)]):
                waited = 1000 * (time.perf_counter() - at)
                if not first:
                    (paused if watched.made > made else others).append(waited)
                offsets += each.column("offset").to_pylist()
                first, made, at = False, watched.made, time.perf_counter()
            assert offsets == list(range(COUNT))
    finally:
        cluster.close()
    return paused, others


def figure(ms: list[float]) -> str:
    if len(ms) < 2:
        return f"{len(ms)} in {SECONDS:.0f} s"
    high = sorted(ms)[int(0.99 * len(ms))]
    return (
        f"{len(ms)} in {SECONDS:.0f} s, median {median(ms):.1f} ms, 99 % {high:.1f} ms, "
        f"max {max(ms):.1f} ms"
    )
