"""The proxy that faults are tried with does what it says."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from faults import tcp_proxy
from faults.tcp_proxy import TcpProxy


@pytest.fixture
def echo() -> Iterator[tuple[str, int]]:
    """A server that sends back what it gets."""
    listener = socket.create_server(("127.0.0.1", 0))

    def answer(sock: socket.socket) -> None:
        with sock:
            try:
                while piece := sock.recv(65536):
                    sock.sendall(piece)
            except OSError:
                return

    def serve() -> None:
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=answer, args=(sock,), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    yield listener.getsockname()
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()


@pytest.fixture
def proxy(echo: tuple[str, int]) -> Iterator[TcpProxy]:
    with TcpProxy(echo) as made:
        yield made


def connect(proxy: TcpProxy) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy.port), 60)


def echoed(sock: socket.socket, sent: bytes) -> bytes:
    sock.sendall(sent)
    return received(sock, len(sent))


def received(sock: socket.socket, count: int) -> bytes:
    got = b""
    while len(got) < count and (piece := sock.recv(count - len(got))):
        got += piece
    return got


def wait_until_closed(proxy: TcpProxy) -> None:
    until = time.monotonic() + 60
    while proxy.open and time.monotonic() < until:
        time.sleep(0.005)
    assert proxy.open == 0


def test_bytes_and_ends_pass(proxy: TcpProxy) -> None:
    sent = os.urandom(1 << 20)
    with connect(proxy) as sock:
        sender = threading.Thread(target=sock.sendall, args=(sent,))
        sender.start()
        assert received(sock, len(sent)) == sent
        sender.join()
        assert proxy.open == 1
        sock.shutdown(socket.SHUT_WR)
        assert sock.recv(1) == b""
    wait_until_closed(proxy)


def test_hanging_holds_bytes_back_and_then_passes_them(proxy: TcpProxy) -> None:
    with connect(proxy) as sock:
        proxy.to_client.mode = "hang"
        sock.sendall(b"x")
        sock.settimeout(0.1)
        with pytest.raises(TimeoutError):
            sock.recv(1)
        proxy.mode = "pass"
        sock.settimeout(60)
        assert sock.recv(1) == b"x"


def test_the_end_of_a_connection_hangs_too(proxy: TcpProxy, echo: tuple[str, int]) -> None:
    with connect(proxy) as sock:
        assert echoed(sock, b"x") == b"x"
        proxy.to_client.mode = "hang"
        sock.shutdown(socket.SHUT_WR)
        sock.settimeout(0.1)
        with pytest.raises(TimeoutError):
            sock.recv(1)


def test_trickling(proxy: TcpProxy) -> None:
    with connect(proxy) as sock:
        proxy.to_client.set("trickle", step_bytes=2, every_ms=20)
        began = time.monotonic()
        assert echoed(sock, b"0123456789") == b"0123456789"
        assert time.monotonic() - began >= 0.1


def test_delaying(proxy: TcpProxy) -> None:
    with connect(proxy) as sock:
        proxy.to_server.set("delay", every_ms=60)
        began = time.monotonic()
        assert echoed(sock, b"x" * 1000) == b"x" * 1000
        assert time.monotonic() - began >= 0.06


def test_cutting_in_the_middle(proxy: TcpProxy) -> None:
    with connect(proxy) as sock:
        assert echoed(sock, b"before") == b"before"
        proxy.to_client.set("cut", after_bytes=4, times=1)
        sock.sendall(b"0123456789")
        wait_until_closed(proxy)
        # The reset overtakes the bytes that went on and were not read.
        with pytest.raises(ConnectionResetError):
            received(sock, 10)
    assert proxy.to_client.happened == 1
    with connect(proxy) as sock:
        assert echoed(sock, b"0123456789") == b"0123456789"


def test_corrupting_one_byte(proxy: TcpProxy) -> None:
    with connect(proxy) as sock:
        proxy.to_client.set("corrupt", after_bytes=3)
        assert echoed(sock, b"0123456789") == b"012" + bytes([ord("3") ^ 0xFF]) + b"456789"


def test_resetting_all(proxy: TcpProxy) -> None:
    with connect(proxy) as one, connect(proxy) as other:
        assert echoed(one, b"x") == echoed(other, b"x") == b"x"
        # One that holds bytes back, too.
        proxy.mode = "hang"
        one.sendall(b"y")
        proxy.cut()
        for sock in (one, other):
            with pytest.raises(ConnectionResetError):
                sock.recv(1)
    wait_until_closed(proxy)


def test_resetting_one_that_nobody_reads(proxy: TcpProxy) -> None:
    with connect(proxy) as sock:
        sock.settimeout(0.2)
        with pytest.raises(TimeoutError):
            sock.sendall(bytes(64 << 20))
        proxy.cut()
        wait_until_closed(proxy)


def test_refusing(proxy: TcpProxy) -> None:
    proxy.refuse = True
    # As fast as the kernel is, the reset comes while connecting or after it.
    with pytest.raises(ConnectionResetError), connect(proxy) as sock:
        sock.recv(1)
    proxy.refuse = False
    with connect(proxy) as sock:
        assert echoed(sock, b"x") == b"x"
    assert proxy.accepted == 2


def test_a_program_that_can_be_stopped(echo: tuple[str, int]) -> None:
    command = [sys.executable, str(Path(tcp_proxy.__file__)), *map(str, echo)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        port = int(process.stdout.readline())
        with socket.create_connection(("127.0.0.1", port), 60) as sock:
            assert echoed(sock, b"x") == b"x"
            process.send_signal(signal.SIGSTOP)
            # A signal is under way for a while; until it arrives, the program goes on.
            os.waitid(os.P_PID, process.pid, os.WSTOPPED)
            sock.sendall(b"y")
            sock.settimeout(0.1)
            with pytest.raises(TimeoutError):
                sock.recv(1)
            process.send_signal(signal.SIGCONT)
            sock.settimeout(60)
            assert sock.recv(1) == b"y"
        process.stdin.close()
        assert process.wait(60) == 0
