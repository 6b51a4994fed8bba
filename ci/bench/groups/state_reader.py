"""Group `state_reader`: how long the state of a key takes to be read while a query writes, and how
many requests a server of it answers.

A million keys in four partitions; another process changes 5,000 of them and commits, twice in a
second.
"""

from __future__ import annotations

import random
import select
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Queue

import psutil

import keyrange
from bench.companions import companion
from bench.figures import Figure, at_least, at_most, from_runs, percentile
from bench.registry import Bench, Group
from bench.state_writer import key_of

_CONNECTIONS = 8
_PATIENCE_S = 300.0


def run(bench: Bench) -> Iterator[Figure]:
    keys = bench.pick(full=1_000_000, quick=1_000_000, tiny=2_000)
    table = bench.directory / "commits"
    with _writing(table, keys, bench.pick(full=5_000, quick=5_000, tiny=50)):
        bench.progress(f"{keys:,} keys are there")
        p50, p99 = [], []
        for number in range(bench.runs):
            found = _latencies_ms(bench, table, keys, number)
            p50.append(percentile(found, 0.5))
            p99.append(percentile(found, 0.99))
        yield from_runs("state.reader.get.p50.ms", p50, "ms")
        yield from_runs("state.reader.get.p99.ms", p99, "ms")
        with _served(table, bench.directory / "served") as (port, server):
            rates = [_requests(bench, port, keys, server) for _ in range(bench.runs)]
        wall, cpu = zip(*rates, strict=True)
        yield from_runs("state.serve.requests_per_second", wall, "requests/s")
        yield from_runs("state.serve.requests_per_core_second", cpu, "requests/s of CPU")


@contextmanager
def _writing(table: Path, keys: int, changed: int) -> Iterator[None]:
    commits: Queue[str] = Queue()
    with companion("bench.state_writer", table, keys, changed, 0.5, heard=commits.put):
        commits.get(timeout=_PATIENCE_S)
        yield


def _latencies_ms(bench: Bench, table: Path, keys: int, number: int) -> list[float]:
    """Of keys that are asked for one after the other, by a reader that has all of them."""
    chosen, found = random.Random(number), []
    copies = bench.directory / "copies"
    with keyrange.state_reader(table, copies=copies, follow_ms=100) as reader:
        reader.refresh()
        first, end = reader.seq, time.monotonic() + bench.pick(full=10.0, quick=5.0, tiny=1.5)
        while time.monotonic() < end:
            key = key_of(chosen.randrange(keys))
            began = time.perf_counter()
            state = reader.get(key)
            found.append((time.perf_counter() - began) * 1e3)
            if state is None:
                raise RuntimeError(f"{key!r} has no state")
        if reader.seq == first:
            raise RuntimeError("the reader saw no commit")
        bench.progress(f"{len(found):,} keys were read, over {reader.seq - first} commits")
    return found


@contextmanager
def _served(table: Path, copies: Path) -> Iterator[tuple[int, psutil.Process]]:
    command = [sys.executable, "-m", "keyrange.cli.main", "state", "serve", str(table)]
    with subprocess.Popen(
        [*command, "--port", "0", "--copies", str(copies)], stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        lines = iter(process.stderr.readline, "")
        said = next((line for line in lines if line.startswith("http://")), "")
        if not said:
            raise RuntimeError("nothing is served")
        try:
            port = int(said.partition("/ until")[0].rpartition(":")[2])
            yield port, psutil.Process(process.pid)
        finally:
            process.terminate()


def _requests(bench: Bench, port: int, keys: int, server: psutil.Process) -> tuple[float, float]:
    """How many requests are answered in a second, and in a second of the server's CPU, over
    connections that ask again as soon as they are answered."""
    sockets = [socket.create_connection(("127.0.0.1", port)) for _ in range(_CONNECTIONS)]
    chosen, left = random.Random(port), dict.fromkeys(sockets, b"")

    def ask(each: socket.socket) -> None:
        key = key_of(chosen.randrange(keys)).decode()
        each.sendall(f"GET /keys/{key} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())

    for each in sockets:
        each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        ask(each)
    answered, began, cpu_began = 0, time.perf_counter(), sum(server.cpu_times()[:2])
    end = began + bench.pick(full=5.0, quick=3.0, tiny=0.5)
    while time.perf_counter() < end:
        for each in select.select(sockets, [], [], 5)[0]:
            left[each] += each.recv(65_536)
            # The state is the last thing of an answer.
            if left[each].endswith(b"}]}"):
                if not left[each].startswith(b"HTTP/1.1 200"):
                    raise RuntimeError(f"answered with {left[each][:200]!r}")
                answered += 1
                left[each] = b""
                ask(each)
    taken, cpu_taken = time.perf_counter() - began, sum(server.cpu_times()[:2]) - cpu_began
    for each in sockets:
        each.close()
    return answered / taken, answered / cpu_taken


GROUP = Group(
    order=10,
    run=run,
    targets={
        "state.reader.get.p99.ms": at_most(5),
        "state.serve.requests_per_second": at_least(2_000),
    },
    own_broker=True,
)
