"""A process that stands for many brokers with many log directories; it ends with its input.

    python -m bench.log_dir_brokers BROKERS DIRECTORIES

It prints the port of the first broker, and answers what the volume guard asks. The answers are
encoded once, so that it takes little from the machine that is measured.
"""

from __future__ import annotations

import socket
import struct
import sys
import threading
from typing import Any

from kafka.protocol.admin.cluster import DescribeLogDirsRequest, DescribeLogDirsResponse
from kafka.protocol.metadata import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    MetadataRequest,
    MetadataResponse,
)

HOST = "127.0.0.1"
_BYTES = 1 << 40
# The highest versions that keyrange speaks, which it then does.
_SPOKEN = {ApiVersionsRequest: 3, MetadataRequest: 12, DescribeLogDirsRequest: 5}


def _versions() -> Any:
    one = ApiVersionsResponse.ApiVersion
    return ApiVersionsResponse(
        error_code=0,
        api_keys=[
            one(api_key=each.API_KEY, min_version=0, max_version=most)
            for each, most in _SPOKEN.items()
        ],
    )


def _metadata(ports: list[int]) -> Any:
    one = MetadataResponse.MetadataResponseBroker
    brokers = [one(node_id=at, host=HOST, port=port, rack=None) for at, port in enumerate(ports)]
    return MetadataResponse(brokers=brokers, cluster_id="many", controller_id=0, topics=[])


def _log_dirs(directories: int) -> Any:
    one = DescribeLogDirsResponse.DescribeLogDirsResult
    return DescribeLogDirsResponse(
        error_code=0,
        results=[
            one(
                error_code=0,
                log_dir=f"/data/{number}",
                topics=[],
                total_bytes=_BYTES,
                usable_bytes=_BYTES // 2,
                is_cordoned=False,
            )
            for number in range(directories)
        ],
    )


def _encoded(response: Any, version: int) -> bytes:
    """An answer without its length and correlation id."""
    response.API_VERSION = version
    response.with_header(correlation_id=0)
    return bytes(response.encode(header=True))[4:]


def _serve(sock: socket.socket, answers: dict[int, bytes]) -> None:
    with sock, sock.makefile("rb") as stream:
        while head := stream.read(4):
            frame = stream.read(struct.unpack(">i", head)[0])
            key, _, correlation_id = struct.unpack_from(">hhi", frame)
            body = answers[key]
            sock.sendall(struct.pack(">ii", len(body) + 4, correlation_id) + body)


def _accept(listener: socket.socket, answers: dict[int, bytes]) -> None:
    while True:
        sock, _ = listener.accept()
        threading.Thread(target=_serve, args=(sock, answers), daemon=True).start()


def main(brokers: int, directories: int) -> None:
    listeners = [socket.create_server((HOST, 0)) for _ in range(brokers)]
    ports = [listener.getsockname()[1] for listener in listeners]
    answers = {
        ApiVersionsRequest.API_KEY: _encoded(_versions(), 3),
        MetadataRequest.API_KEY: _encoded(_metadata(ports), 12),
        DescribeLogDirsRequest.API_KEY: _encoded(_log_dirs(directories), 5),
    }
    for listener in listeners:
        threading.Thread(target=_accept, args=(listener, answers), daemon=True).start()
    print(ports[0], flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
