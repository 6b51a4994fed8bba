"""Brokers on loopback that know only what the volume guard asks, and answer as a test says."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from kafka.protocol.admin.cluster import DescribeLogDirsRequest, DescribeLogDirsResponse
from kafka.protocol.consumer.fetch import FetchRequest
from kafka.protocol.metadata import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    MetadataRequest,
    MetadataResponse,
)

HOST = "127.0.0.1"
GB = 1 << 30
_KNOWN = (ApiVersionsRequest, MetadataRequest, DescribeLogDirsRequest)

# A directory: (path, total bytes, usable bytes, error code).
Directory = tuple[str, int, int, int]
Reply = Callable[[], "Told"]


@dataclass
class Told:
    """What a broker says of its directories. `after_s` lets it wait, `cut` closes the connection
    in place of an answer, `half` stops in the middle of one."""

    directories: tuple[Directory, ...] = (("/data", 100 * GB, 50 * GB, 0),)
    error_code: int = 0
    after_s: float = 0.0
    cut: bool = False
    half: bool = False


@dataclass
class ScriptedBrokers:
    """Brokers by node id. `listed` are those that metadata tell of, `told` is what each says;
    `versions` are those of DescribeLogDirs. `asked` notes each question as (node, api key)."""

    told: dict[int, Told] = field(default_factory=dict)
    listed: list[int] = field(default_factory=list)
    versions: tuple[int, int] = (1, 5)
    ports: dict[int, int] = field(default_factory=dict)
    asked: list[tuple[int, int]] = field(default_factory=list)
    # Called before each answer to a question for metadata.
    on_metadata: Callable[[], None] = lambda: None
    connections: int = 0

    @property
    def servers(self) -> tuple[tuple[str, int], ...]:
        return tuple((HOST, self.ports[node]) for node in self.listed)

    def times(self, node: int) -> int:
        """How often a broker was asked for its directories."""
        return self.asked.count((node, DescribeLogDirsRequest.API_KEY))


@contextmanager
def scripted_brokers(count: int) -> Iterator[ScriptedBrokers]:
    """Brokers 1 to `count`."""
    brokers = ScriptedBrokers()
    closed = threading.Event()
    listeners = []
    for node in range(1, count + 1):
        listener = socket.create_server((HOST, 0))
        brokers.ports[node] = listener.getsockname()[1]
        brokers.told[node] = Told()
        brokers.listed.append(node)
        listeners.append(listener)
        threading.Thread(
            target=_accept, args=(listener, node, brokers, closed), daemon=True
        ).start()
    try:
        yield brokers
    finally:
        closed.set()
        for listener in listeners:
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()


def _accept(
    listener: socket.socket, node: int, brokers: ScriptedBrokers, closed: threading.Event
) -> None:
    while not closed.is_set():
        try:
            sock, _ = listener.accept()
        except OSError:
            return
        brokers.connections += 1
        threading.Thread(target=_serve, args=(sock, node, brokers), daemon=True).start()


def _serve(sock: socket.socket, node: int, brokers: ScriptedBrokers) -> None:
    with sock, suppress(OSError):
        while True:
            head = _exactly(sock, 4)
            if head is None:
                return
            frame = _exactly(sock, struct.unpack(">i", head)[0])
            if frame is None:
                return
            answer = _answer(frame, node, brokers)
            if answer is None:
                return
            sock.sendall(answer)


def _exactly(sock: socket.socket, count: int) -> bytes | None:
    data = b""
    while len(data) < count:
        piece = sock.recv(count - len(data))
        if not piece:
            return None
        data += piece
    return data


def _answer(frame: bytes, node: int, brokers: ScriptedBrokers) -> bytes | None:
    key, version, correlation_id = struct.unpack_from(">hhi", frame)
    brokers.asked.append((node, key))
    response: Any
    if key == ApiVersionsRequest.API_KEY:
        response = _versions(brokers)
    elif key == MetadataRequest.API_KEY:
        brokers.on_metadata()
        response = _metadata(brokers)
    else:
        told = brokers.told[node]
        time.sleep(told.after_s)
        if told.cut:
            return None
        response = _log_dirs(told)
    response.API_VERSION = version
    response.with_header(correlation_id=correlation_id)
    encoded = bytes(response.encode(header=True, framed=True))
    is_half = key == DescribeLogDirsRequest.API_KEY and brokers.told[node].half
    return encoded[: len(encoded) // 2] if is_half else encoded


def _versions(brokers: ScriptedBrokers) -> Any:
    one = ApiVersionsResponse.ApiVersion
    spoken = {each.API_KEY: (0, each.max_version) for each in _KNOWN}
    spoken |= {DescribeLogDirsRequest.API_KEY: brokers.versions, FetchRequest.API_KEY: (4, 13)}
    return ApiVersionsResponse(
        error_code=0,
        api_keys=[
            one(api_key=key, min_version=low, max_version=high)
            for key, (low, high) in spoken.items()
        ],
    )


def _metadata(brokers: ScriptedBrokers) -> Any:
    one = MetadataResponse.MetadataResponseBroker
    return MetadataResponse(
        brokers=[
            one(node_id=node, host=HOST, port=brokers.ports[node], rack=None)
            for node in brokers.listed
        ],
        cluster_id="scripted",
        controller_id=1,
        topics=[],
    )


def _log_dirs(told: Told) -> Any:
    one = DescribeLogDirsResponse.DescribeLogDirsResult
    return DescribeLogDirsResponse(
        throttle_time_ms=0,
        error_code=told.error_code,
        results=[
            one(
                error_code=code,
                log_dir=path,
                topics=[],
                total_bytes=total,
                usable_bytes=usable,
                is_cordoned=False,
            )
            for path, total, usable, code in told.directories
        ],
    )
