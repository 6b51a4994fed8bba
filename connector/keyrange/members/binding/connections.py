"""Who is connected to the binding service, and who has to give way."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress


class Connections:
    """The connections of a service. Who has not proven that it knows the secret keeps nobody out:
    where there is no room, the oldest of those is cut off.

    `connections_max` are all connections, `unproven_max` those of one address that have not proven
    themselves. A task proves itself in its first message; who comes only to fill the places
    displaces others of its kind.
    """

    def __init__(self, connections_max: int, unproven_max: int) -> None:
        self._connections_max, self._unproven_max = connections_max, unproven_max
        self._lock = threading.Lock()
        # In the order in which they came.
        self._unproven: dict[socket.socket, str] = {}
        self._proven: set[socket.socket] = set()

    def take(self, sock: socket.socket, address: str) -> bool:
        """Whether there is a place for one more; `address` is where it comes from."""
        with self._lock:
            same = [each for each, where in self._unproven.items() if where == address]
            if len(same) >= self._unproven_max:
                self._cut_off(same[0])
            elif len(self._unproven) + len(self._proven) >= self._connections_max:
                if not self._unproven:
                    return False
                self._cut_off(next(iter(self._unproven)))
            self._unproven[sock] = address
            return True

    def prove(self, sock: socket.socket) -> None:
        with self._lock:
            if self._unproven.pop(sock, None) is not None:
                self._proven.add(sock)

    def leave(self, sock: socket.socket) -> None:
        """To be called before the socket is closed."""
        with self._lock:
            self._unproven.pop(sock, None)
            self._proven.discard(sock)

    def _cut_off(self, sock: socket.socket) -> None:
        """Its thread sees the end, and closes it."""
        del self._unproven[sock]
        with suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)
