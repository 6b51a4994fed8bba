"""Where other hosts reach this one."""

from __future__ import annotations

import socket

from keyrange.options.kafka_properties import ClientSettings


def route_to(client: ClientSettings) -> str:
    """This host's address on the way to the brokers. No packet is sent."""
    for host, port in client.bootstrap_servers:
        try:
            [(family, *_, address), *_] = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect(address)
                return str(probe.getsockname()[0])
        except OSError:
            continue
    return socket.gethostname()
