"""Who is between a task and its planning process, or only fills the service's places."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from keyrange.errors import KeyrangeError
from keyrange.members.binding import caller as caller_module
from keyrange.members.binding import service as service_module
from keyrange.members.binding.caller import Caller, greet
from keyrange.members.binding.channel import BadLine, Channel
from keyrange.members.binding.service import BindingService, Connections
from keyrange.members.model.late_binding import PinRule, WorkUnitCounts
from keyrange.members.model.task_greeting import Address

QUICK = PinRule(wait_ms=40, pause_ms=5)


@pytest.fixture
def service() -> Iterator[BindingService]:
    service = BindingService("127.0.0.1", 0)
    yield service
    service.close()


def planned(service: BindingService, what: str) -> str:
    return service.add(["a"], [{"portion": what}], ["a"], 1, QUICK)


def read_by(address: Address, plan: str) -> list[str]:
    return [each["portion"] for each in Caller(address, plan, 0).portions(lambda: "a")]


@dataclass(slots=True)
class Lines:
    """What both sides of a connection said, line by line."""

    by_service: list[bytes] = field(default_factory=list)
    by_task: list[bytes] = field(default_factory=list)


class Between:
    """Somebody on the way from a task to the service, who does not know the secret: hears every
    line, and may put another in the place of the `at`-th of one side."""

    def __init__(self, service: BindingService) -> None:
        self._service = service
        self.heard: list[Lines] = []
        # By side and number within a connection, what is said instead.
        self.instead: dict[tuple[str, int], bytes] = {}
        self._listener = socket.create_server(("127.0.0.1", 0))
        port = self._listener.getsockname()[1]
        self.address = Address("127.0.0.1", port, service.address.secret)
        threading.Thread(target=self._run, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _run(self) -> None:
        with suppress(OSError):
            while True:
                task, _ = self._listener.accept()
                lines = Lines()
                self.heard.append(lines)
                onward = socket.create_connection(
                    (self._service.address.host, self._service.address.port)
                )
                for sock in (task, onward):
                    sock.settimeout(10)
                for side, source, target, kept in (
                    ("service", onward, task, lines.by_service),
                    ("task", task, onward, lines.by_task),
                ):
                    threading.Thread(
                        target=self._carry, args=(side, source, target, kept), daemon=True
                    ).start()

    def _carry(
        self, side: str, source: socket.socket, target: socket.socket, kept: list[bytes]
    ) -> None:
        with suppress(OSError, ValueError):
            for line in source.makefile("rb"):
                # Kept first: who has read it may look at what was heard.
                kept.append(line)
                target.sendall(self.instead.get((side, len(kept) - 1), line))
        for sock in (source, target):
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def between(service: BindingService, monkeypatch: pytest.MonkeyPatch) -> Iterator[Between]:
    monkeypatch.setattr(caller_module, "_TRIES", 1)
    between = Between(service)
    yield between
    between.close()


def test_no_line_that_was_heard_fits_any_place_of_another_connection(
    service: BindingService, between: Between
) -> None:
    """Each recorded line, in the place of each that a task or the service says."""
    plan = planned(service, "first batch")
    greet(between.address, "a")
    assert read_by(between.address, plan) == ["first batch"]
    recorded = [
        line
        for lines in between.heard
        for side in (lines.by_service, lines.by_task)
        for line in side
    ]
    assert len(recorded) == 12
    assert any(b'{"end":true' in line for line in recorded)

    for place in (("service", 0), ("service", 1), ("task", 0), ("task", 1)):
        for line in recorded:
            plan = planned(service, "second batch")
            between.instead = {place: line}
            with pytest.raises(KeyrangeError, match="BINDING_UNREACHABLE"):
                list(Caller(between.address, plan, 0).portions(lambda: "a"))
            if place == ("task", 1):
                # What a task did not ask is not bound either.
                assert service.counts(plan) == WorkUnitCounts(own=0, foreign=0, unowned=0)


def test_a_whole_connection_that_was_heard_is_not_believed(
    service: BindingService, between: Between
) -> None:
    plan = planned(service, "first batch")
    list(Caller(between.address, plan, 0).portions(lambda: "a"))

    for lines in list(between.heard):
        plan = planned(service, "second batch")
        between.instead = {("service", at): line for at, line in enumerate(lines.by_service)}
        with pytest.raises(KeyrangeError, match="BINDING_UNREACHABLE"):
            list(Caller(between.address, plan, 0).portions(lambda: "a"))
        between.instead = {("task", at): line for at, line in enumerate(lines.by_task)}
        with pytest.raises(KeyrangeError, match="BINDING_UNREACHABLE"):
            list(Caller(between.address, plan, 0).portions(lambda: "a"))
    assert service.counts(plan) == WorkUnitCounts(own=0, foreign=0, unowned=0)


def two_sides() -> tuple[Channel, Channel, socket.socket, socket.socket]:
    """A task's channel and a service's, and the ends of the wires that somebody holds between."""
    task, task_wire = socket.socketpair()
    service, service_wire = socket.socketpair()
    channels = []
    for sock, is_service in ((task, False), (service, True)):
        channel = Channel(sock, b"s" * 32, is_service)
        channel.within(60)
        channels.append(channel)
    begun = threading.Thread(target=channels[1].begin)
    begun.start()
    task_wire.sendall(service_wire.recv(1000))
    channels[0].begin()
    service_wire.sendall(task_wire.recv(1000))
    begun.join()
    return channels[0], channels[1], task_wire, service_wire


def test_an_answer_to_an_earlier_question_of_the_same_connection_is_refused() -> None:
    task, service, task_wire, service_wire = two_sides()
    task.send({"ask": 0})
    service_wire.sendall(task_wire.recv(1000))
    assert service.receive(1000) == {"ask": 0}
    service.send({"end": True})
    first = service_wire.recv(1000)
    task_wire.sendall(first)
    assert task.receive(1000) == {"end": True}

    task.send({"ask": 1})
    task_wire.sendall(first)
    with pytest.raises(BadLine, match="not proven"):
        task.receive(1000)


def test_an_answer_belongs_to_the_question_that_the_service_has_heard() -> None:
    """Where a question was kept back, and the next one was asked instead: the line's number and
    the nonces are those of the answer that is awaited."""
    task, service, task_wire, service_wire = two_sides()
    copy(task).send({"ask": 7})
    service_wire.sendall(task_wire.recv(1000))
    assert service.receive(1000) == {"ask": 7}
    service.send({"end": True})

    task.send({"ask": 0})
    task_wire.sendall(service_wire.recv(1000))
    with pytest.raises(BadLine, match="not proven"):
        task.receive(1000)


@pytest.mark.parametrize("nonce", [b"", b"0" * 31, b"0" * 33, b"g" * 32, b"0" * 100_000])
def test_who_does_not_begin_with_a_nonce_is_not_heard(nonce: bytes) -> None:
    ours, theirs = socket.socketpair()
    channel = Channel(ours, b"s" * 32, is_service=True)
    channel.within(60)
    threading.Thread(target=theirs.sendall, args=(nonce + b"\n",), daemon=True).start()

    with pytest.raises(BadLine):
        channel.begin()


class Crowd:
    """Connections that do what they are told, each in a thread of its own, until they are shut."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._socks: list[socket.socket] = []

    def come(self, count: int, do: Callable[[socket.socket], Any]) -> None:
        for _ in range(count):
            sock = socket.create_connection((self._address.host, self._address.port))
            self._socks.append(sock)
            threading.Thread(target=self._go, args=(sock, do), daemon=True).start()

    def _go(self, sock: socket.socket, do: Callable[[socket.socket], Any]) -> None:
        with suppress(OSError):
            do(sock)

    def shut(self) -> None:
        for sock in self._socks:
            sock.close()


@pytest.fixture
def crowd(service: BindingService) -> Iterator[Crowd]:
    crowd = Crowd(service.address)
    yield crowd
    crowd.shut()


def silent(_: socket.socket) -> None:
    pass


def trickling(sock: socket.socket) -> None:
    """A byte now and then, so that no single wait is long."""
    while True:
        sock.sendall(b"x")
        time.sleep(0.02)


@pytest.mark.parametrize("do", [silent, trickling])
def test_tasks_are_served_beside_a_crowd_that_says_nothing(
    service: BindingService, crowd: Crowd, do: Callable[[socket.socket], None]
) -> None:
    service._server.connections = Connections(8, 4)
    crowd.come(12, do)
    time.sleep(0.1)

    assert read_by(service.address, planned(service, "x")) == ["x"]


@pytest.mark.parametrize("do", [silent, trickling])
def test_who_proves_nothing_in_time_is_cut_off_whatever_it_sends(
    service: BindingService, monkeypatch: pytest.MonkeyPatch, do: Callable[[socket.socket], None]
) -> None:
    monkeypatch.setattr(service_module, "_UNPROVEN_S", 0.3)
    with socket.create_connection((service.address.host, service.address.port)) as sock:
        threading.Thread(target=lambda: quietly(do, sock), daemon=True).start()
        began = time.monotonic()
        sock.settimeout(60)
        assert ended(sock)
        assert time.monotonic() - began < 30


def test_who_trickles_after_its_proof_is_cut_off_too(
    service: BindingService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_module, "_SILENCE_S", 0.3)
    with socket.create_connection((service.address.host, service.address.port)) as sock:
        channel = Channel(sock, service.address.secret, is_service=False)
        channel.within(60)
        channel.begin()
        channel.send({"hello": {"slot": "a"}})
        assert channel.receive(1000)["welcome"] is True
        began = time.monotonic()
        threading.Thread(target=lambda: quietly(trickling, sock), daemon=True).start()
        assert ended(sock)
        assert time.monotonic() - began < 30


def test_a_task_does_not_wait_for_an_answer_that_trickles(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(caller_module, "_ANSWER_S", 0.3)
    monkeypatch.setattr(caller_module, "_TRIES", 1)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            with suppress(OSError):
                trickling(listener.accept()[0])

        threading.Thread(target=answer, daemon=True).start()
        address = Address("127.0.0.1", listener.getsockname()[1], b"s" * 32)
        began = time.monotonic()
        with pytest.raises(
            KeyrangeError, match=r"BINDING_UNREACHABLE.*(no whole line in time|timed out)"
        ):
            Caller(address, "plan", 0).holding("a", "")
        assert time.monotonic() - began < 30


@contextmanager
def greeted(service: BindingService, slot: str) -> Iterator[Channel]:
    """A task of a slot that the service knows, and that stays."""
    with socket.create_connection((service.address.host, service.address.port)) as sock:
        channel = Channel(sock, service.address.secret, is_service=False)
        channel.within(60)
        channel.begin()
        channel.send({"hello": {"slot": slot}})
        channel.receive(1000)
        yield channel


def test_who_knows_the_secret_keeps_its_place(service: BindingService, crowd: Crowd) -> None:
    service._server.connections = Connections(4, 2)
    with greeted(service, "a") as channel:
        crowd.come(12, silent)
        time.sleep(0.1)
        channel.send({"hello": {"slot": "b"}})
        assert channel.receive(1000)["welcome"] is True


def test_only_a_service_full_of_tasks_turns_one_away(service: BindingService, crowd: Crowd) -> None:
    service._server.connections = Connections(1, 1)
    with greeted(service, "a"), pytest.raises((BadLine, OSError)):
        greet(service.address, "b")
    deadline = time.monotonic() + 60
    while "b" not in service.slots() and time.monotonic() < deadline:
        with suppress(BadLine, OSError):
            greet(service.address, "b")
    assert service.slots() == {"a", "b"}


def test_one_address_does_not_displace_those_of_another() -> None:
    places = Connections(100, 2)
    pairs = [socket.socketpair() for _ in range(5)]
    mine, *others = [each[0] for each in pairs]
    assert places.take(mine, "10.0.0.1")
    for each in others:
        assert places.take(each, "10.0.0.2")

    assert [ended(theirs, 0.01) for _, theirs in pairs] == [False, True, True, False, False]
    for ours, theirs in pairs:
        ours.close()
        theirs.close()


def quietly(do: Callable[[socket.socket], None], sock: socket.socket) -> None:
    with suppress(OSError):
        do(sock)


def ended(sock: socket.socket, within_s: float = 60) -> bool:
    """Whether the other side ends the connection in time; what it says before is passed by."""
    sock.settimeout(within_s)
    try:
        while sock.recv(1000):
            pass
    except TimeoutError:
        return False
    except OSError:
        pass
    return True


def test_a_wrong_secret_is_not_believed_by_a_task(service: BindingService) -> None:
    with pytest.raises(BadLine):
        greet(replace(service.address, secret=b"x" * 32), "a")
