"""Brokers behind real sockets on loopback, whose answers to a reader a test writes, or spoils.

They know what a reader of records asks (ApiVersions, Metadata, ListOffsets, Fetch), and let in
everybody who logs in by PLAIN. What a fetch is answered is a script as in `scripted_broker`. For
what a network does put a `tcp_proxy` in front.
"""

from __future__ import annotations

import socket
import struct
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from kafka.protocol.consumer.fetch import FetchRequest
from kafka.protocol.consumer.offsets import ListOffsetsRequest, ListOffsetsResponse
from kafka.protocol.metadata import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    MetadataRequest,
    MetadataResponse,
)
from kafka.protocol.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

from brokers.scripted_broker import ID, VERSION, Fetched, encode

HOST = "127.0.0.1"
API_VERSIONS = int(ApiVersionsRequest.API_KEY)
METADATA = int(MetadataRequest.API_KEY)
LIST_OFFSETS = int(ListOffsetsRequest.API_KEY)
FETCH = int(FetchRequest.API_KEY)
SASL_HANDSHAKE = int(SaslHandshakeRequest.API_KEY)
SASL_AUTHENTICATE = int(SaslAuthenticateRequest.API_KEY)
_REQUESTS = {
    each.API_KEY: each
    for each in (
        ApiVersionsRequest,
        MetadataRequest,
        ListOffsetsRequest,
        FetchRequest,
        SaslHandshakeRequest,
        SaslAuthenticateRequest,
    )
}


def _as_it_is(node: int, key: int, frame: bytes) -> bytes | None:
    return frame


@dataclass
class LoopbackCluster:
    """Brokers by node id, and topic t, whose partition p is led by node p modulo their number.

    `script` is (node, partition, offset) of a fetch to its answer; `change` changes any other
    answer, by its api key; `spoil` is (node, api key, framed answer) to the bytes that are sent,
    None closes the connection. `advertised` is where metadata say that a node is. `asked` notes
    each request as (node, api key, request).
    """

    partitions: int = 1
    latest: int = 1_000
    script: Callable[[int, int, int], Fetched] = lambda node, partition, offset: Fetched()
    spoil: Callable[[int, int, bytes], bytes | None] = _as_it_is
    change: Callable[[int, Any], None] = lambda key, answer: None
    versions: dict[int, tuple[int, int]] = field(
        default_factory=lambda: {
            API_VERSIONS: (0, 3),
            METADATA: (0, 12),
            LIST_OFFSETS: (0, 7),
            FETCH: (4, VERSION),
            SASL_HANDSHAKE: (0, 1),
            SASL_AUTHENTICATE: (0, 2),
        }
    )
    ports: dict[int, int] = field(default_factory=dict)
    advertised: dict[int, tuple[str, int]] = field(default_factory=dict)
    asked: list[tuple[int, int, Any]] = field(default_factory=list)
    connections: int = 0

    @property
    def servers(self) -> tuple[tuple[str, int], ...]:
        return tuple((HOST, port) for port in self.ports.values())

    def requests(self, key: int) -> list[Any]:
        return [request for _, asked, request in self.asked if asked == key]


@contextmanager
def loopback_cluster(nodes: int = 1, **given: Any) -> Iterator[LoopbackCluster]:
    cluster = LoopbackCluster(**given)
    listeners = []
    for node in range(nodes):
        listener = socket.create_server((HOST, 0), backlog=64)
        cluster.ports[node] = listener.getsockname()[1]
        cluster.advertised[node] = (HOST, cluster.ports[node])
        listeners.append(listener)
    open_sockets: list[socket.socket] = []
    for node, listener in enumerate(listeners):
        threading.Thread(
            target=_accept, args=(listener, node, cluster, open_sockets), daemon=True
        ).start()
    try:
        yield cluster
    finally:
        for each in [*listeners, *open_sockets]:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for listener in listeners:
            listener.close()


def _accept(
    listener: socket.socket, node: int, cluster: LoopbackCluster, open_sockets: list[socket.socket]
) -> None:
    while True:
        try:
            sock, _ = listener.accept()
        except OSError:
            return
        cluster.connections += 1
        open_sockets.append(sock)
        threading.Thread(target=_serve, args=(sock, node, cluster), daemon=True).start()


def _serve(sock: socket.socket, node: int, cluster: LoopbackCluster) -> None:
    with sock, suppress(OSError), sock.makefile("rb") as incoming:
        while head := incoming.read(4):
            frame = incoming.read(struct.unpack(">i", head)[0])
            key, version, correlation_id = struct.unpack_from(">hhi", frame)
            request = _REQUESTS[key].decode(frame, version=version, header=True)
            cluster.asked.append((node, key, request))
            answer = _answer(cluster, node, key, version, request)
            # The response header of ApiVersions has no tags, of whatever version.
            tags = b"\0" if key != API_VERSIONS and _flexible(key, version) else b""
            body = struct.pack(">i", correlation_id) + tags + answer
            sent = cluster.spoil(node, key, struct.pack(">i", len(body)) + body)
            if sent is None:
                return
            sock.sendall(sent)


def _flexible(key: int, version: int) -> bool:
    return bool(_REQUESTS[key].flexible_version_q(version))


def _answer(cluster: LoopbackCluster, node: int, key: int, version: int, request: Any) -> bytes:
    if key == FETCH:
        [topic] = request.topics
        [partition] = topic.partitions
        number = partition.partition
        return encode(number, cluster.script(node, number, partition.fetch_offset))
    made: Any = _MADE[key](cluster, request)
    cluster.change(key, made)
    return bytes(made.encode(version=version))


def _versions(cluster: LoopbackCluster, request: Any) -> Any:
    one = ApiVersionsResponse.ApiVersion
    return ApiVersionsResponse(
        error_code=0,
        api_keys=[
            one(api_key=key, min_version=low, max_version=high)
            for key, (low, high) in cluster.versions.items()
        ],
    )


def _metadata(cluster: LoopbackCluster, request: Any) -> Any:
    broker = MetadataResponse.MetadataResponseBroker
    topic = MetadataResponse.MetadataResponseTopic
    partition = topic.MetadataResponsePartition
    partitions = [
        partition(
            error_code=0,
            partition_index=number,
            leader_id=number % len(cluster.ports),
            leader_epoch=0,
            replica_nodes=[],
            isr_nodes=[],
            offline_replicas=[],
        )
        for number in range(cluster.partitions)
    ]
    there = topic(
        error_code=0,
        name="t",
        topic_id=uuid.UUID(hex=ID),
        is_internal=False,
        partitions=partitions,
    )
    return MetadataResponse(
        brokers=[
            broker(node_id=node, host=host, port=port, rack=None)
            for node, (host, port) in cluster.advertised.items()
        ],
        cluster_id="loopback",
        controller_id=0,
        topics=[there],
    )


def _offsets(cluster: LoopbackCluster, request: Any) -> Any:
    topic = ListOffsetsResponse.ListOffsetsTopicResponse
    one = topic.ListOffsetsPartitionResponse
    return ListOffsetsResponse(
        throttle_time_ms=0,
        topics=[
            topic(
                name=each.name,
                partitions=[
                    one(
                        partition_index=asked.partition_index,
                        error_code=0,
                        timestamp=-1,
                        offset=0 if asked.timestamp == -2 else cluster.latest,
                        leader_epoch=0,
                    )
                    for asked in each.partitions
                ],
            )
            for each in request.topics
        ],
    )


def _handshake(cluster: LoopbackCluster, request: Any) -> Any:
    return SaslHandshakeResponse(error_code=0, mechanisms=["PLAIN"])


def _authenticate(cluster: LoopbackCluster, request: Any) -> Any:
    return SaslAuthenticateResponse(
        error_code=0, error_message=None, auth_bytes=b"", session_lifetime_ms=0
    )


_MADE = {
    API_VERSIONS: _versions,
    METADATA: _metadata,
    LIST_OFFSETS: _offsets,
    SASL_HANDSHAKE: _handshake,
    SASL_AUTHENTICATE: _authenticate,
}
