"""Tasks and the planning process, over a real socket: what is asked, and who may ask."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from dataclasses import replace

import pytest

from keyrange.errors import KeyrangeError
from keyrange.members.binding import service as service_module
from keyrange.members.binding.caller import Caller, greet
from keyrange.members.binding.channel import ASK_BYTES_MAX, BadLine, Channel
from keyrange.members.binding.service import BindingService
from keyrange.members.model.late_binding import PinRule, WorkUnitCounts
from keyrange.model.key_ranges import HASH_MAX
from keyrange.model.offset_splits import Delivery, Split, read_split, write_split
from keyrange.model.offsets import TopicPartition
from keyrange.model.reader_ranges import Placement

QUICK = PinRule(wait_ms=40, pause_ms=5)


@pytest.fixture
def service() -> Iterator[BindingService]:
    service = BindingService("127.0.0.1", 0)
    yield service
    service.close()


def planned(service: BindingService, owners: list[str], rule: PinRule = QUICK) -> str:
    documents = [{"slot": slot, "number": number} for number, slot in enumerate(owners)]
    return service.add(owners, documents, {"a", "b"}, len(owners), rule)


def numbers(service: BindingService, plan: str, task: int, slot: str) -> list[int]:
    return [each["number"] for each in Caller(service.address, plan, task).portions(lambda: slot)]


def test_a_task_reads_its_slots_portions_and_the_same_ones_again(service: BindingService) -> None:
    plan = planned(service, ["a", "b", "a"])

    assert numbers(service, plan, 0, "a")[:2] == [0, 2]
    assert numbers(service, plan, 1, "b") == []
    first = numbers(service, plan, 0, "b")

    # After a while it has read the other slot's as well.
    assert first == [0, 2, 1]
    assert service.counts(plan) == WorkUnitCounts(own=2, foreign=1, unowned=0)


def test_strict_refuses_with_the_slots_that_are_left(service: BindingService) -> None:
    plan = planned(service, ["b"], replace(QUICK, strict=True))

    with pytest.raises(KeyrangeError, match=r"PIN_REFUSED.*pinned to b.*runs in a"):
        numbers(service, plan, 0, "a")


def test_plans_are_forgotten_when_many_came_after(
    service: BindingService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_module, "_PLANS_MAX", 2)
    plans = [planned(service, ["a"]) for _ in range(3)]

    assert numbers(service, plans[1], 0, "a") == [0]
    assert service.counts(plans[0]) is None
    with pytest.raises(KeyrangeError, match="PLAN_FORGOTTEN"):
        numbers(service, plans[0], 0, "a")


def test_plans_that_are_kept_are_small(service: BindingService) -> None:
    """64 of them stay, each with the brokers and splits of all partitions."""
    told = {"splits": [{"topic": "t", "partition": n, "offsets": [0, n]} for n in range(2_000)]}
    plan = service.add(["a"], [told], {"a"}, 1, QUICK)

    [kept] = service._plans[plan].documents
    [read] = Caller(service.address, plan, 0).portions(lambda: "a")

    assert read == {**told, "last": -2}
    assert isinstance(kept, bytes)
    assert len(kept) < len(json.dumps(told)) / 5


def test_the_ranges_of_a_slot(service: BindingService) -> None:
    ranges = {"t": {"0": [[0, HASH_MAX]]}}
    service.tell_ranges(4, {"a": {"ranges": ranges, "since": ["run", 2]}})
    caller = Caller(service.address, planned(service, ["a"]), 0)

    assert caller.holding("a", "r").ranges == {"t": {"0": [[0, HASH_MAX]]}}
    assert caller.holding("b", "r").ranges == {}


def test_a_task_is_told_which_batch_before_had_something_of_its_slot(
    service: BindingService,
) -> None:
    """As far as this run knows: what it did not bind, and what was before it, may have had."""

    def last(plan: str, batch: int, slot: str = "a") -> int:
        portions = Caller(service.address, plan, 0, batch).portions(lambda: slot)
        return int(next(portions)["last"])

    assert last(planned(service, ["a"]), 7) == 6
    assert last(planned(service, ["b"]), 8, "b") == 7
    assert last(planned(service, ["a"]), 9) == 7
    # The batch is planned again, and each plan is one of its own.
    assert last(planned(service, ["a"]), 9) == 7
    service.add([], [], (), 0, QUICK)
    assert last(planned(service, ["a"]), 12) == 11
    assert last(planned(service, ["b"]), 13, "b") == 12
    assert last(planned(service, ["a"]), 14) == 12


def test_it_knows_from_which_slots_it_was_reached(service: BindingService) -> None:
    """By greetings, and by what tasks ask: an executor that comes later never greets."""
    greet(service.address, "a")
    greet(service.address, "a")
    greet(service.address, "")
    assert service.slots() == {"a"}

    numbers(service, planned(service, ["a"]), 0, "b")
    numbers(service, planned(service, ["a"]), 0, "")

    assert service.slots() == {"a", "b"}


def test_a_task_whose_executor_gets_its_slot_meanwhile_reads_what_is_its_own(
    service: BindingService,
) -> None:
    plan = planned(service, ["a", "b"], replace(QUICK, strict=True, wait_ms=20_000))
    known = iter(["", "", "a"])

    portions = Caller(service.address, plan, 0).portions(lambda: next(known, "a"))

    assert [each["number"] for each in portions] == [0]


def test_who_does_not_know_the_secret_is_told_nothing(service: BindingService) -> None:
    plan = planned(service, ["a"])
    wrong = replace(service.address, secret=b"x" * 32)

    with pytest.raises(BadLine):
        greet(wrong, "a")
    with pytest.raises(KeyrangeError, match="BINDING_UNREACHABLE"):
        list(Caller(wrong, plan, 0).portions(lambda: "a"))

    assert service.slots() == frozenset()
    assert service.counts(plan) == WorkUnitCounts(0, 0, 0)


def test_a_line_that_was_heard_cannot_be_said_again(service: BindingService) -> None:
    """Neither in another connection, nor twice in its own."""
    address = (service.address.host, service.address.port)
    with socket.create_connection(address) as sock:
        heard = Recorder(sock)
        channel = Channel(heard, service.address.secret, is_service=False)  # type: ignore[arg-type]
        channel.begin()
        channel.send({"hello": {"slot": "a"}})
        channel.receive(ASK_BYTES_MAX)
        sock.sendall(heard.sent)
        assert sock.recv(1) == b""
    with socket.create_connection(address) as sock:
        sock.recv(ASK_BYTES_MAX)
        sock.sendall(heard.sent)
        assert sock.recv(1) == b""


@pytest.mark.parametrize(
    "line",
    [
        b"\n",
        b"no proof at all\n",
        b"x" * (ASK_BYTES_MAX + 200_000),
        b"0" * 64 + b' {"hello": {}}\n',
        b"\xff\xfe\n",
    ],
)
def test_hostile_lines_end_the_connection_and_nothing_else(
    service: BindingService, line: bytes
) -> None:
    with socket.create_connection((service.address.host, service.address.port)) as sock:
        sock.recv(ASK_BYTES_MAX)
        sock.sendall(line)
        sock.settimeout(10)
        try:
            assert sock.recv(1) == b""
        except ConnectionResetError:
            pass

    assert numbers(service, planned(service, ["a"]), 0, "a") == [0]


@pytest.mark.parametrize(
    "question",
    [
        {},
        {"ask": {}},
        {"ask": {"plan": "x", "task": 0, "position": 0, "slot": "a"}},
        {"ask": {"plan": [], "task": 0, "position": 0, "slot": "a"}},
        {"hello": "who"},
        {"hello": {"slot": []}},
        {"ask": {"plan": "x", "task": 0, "position": 0, "slot": {}}},
    ],
)
def test_questions_that_say_nothing(service: BindingService, question: dict[str, object]) -> None:
    with socket.create_connection((service.address.host, service.address.port)) as sock:
        channel = Channel(sock, service.address.secret, is_service=False)
        channel.begin()
        channel.send(question)
        try:
            assert channel.receive(ASK_BYTES_MAX) == {"forgotten": True}
        except BadLine:
            pass

    assert numbers(service, planned(service, ["a"]), 0, "a") == [0]


def test_over_ipv6() -> None:
    service = BindingService("::1", 0)
    try:
        assert numbers(service, planned(service, ["a"]), 0, "a") == [0]
    finally:
        service.close()


def test_nobody_listens() -> None:
    service = BindingService("127.0.0.1", 0)
    service.close()

    with pytest.raises(KeyrangeError, match=r"BINDING_UNREACHABLE.*pin\.driver\.host"):
        list(Caller(service.address, "plan", 0).portions(lambda: "a"))


def test_the_secret_does_not_show(service: BindingService) -> None:
    assert service.address.secret.hex() not in repr(service.address)
    assert str(service.address.secret) not in repr(service.address)


def test_splits_there_and_back() -> None:
    whole = Split(TopicPartition("t", 1), 5, 9, 100)
    placed = replace(whole, placement=Placement((3, HASH_MAX), (1, 0), 1), shared="name")
    handed = replace(placed, delivery=Delivery((3, HASH_MAX), (0, 5), (7, 9), (6,)))

    for split in (whole, placed, handed):
        assert read_split(json.loads(json.dumps(write_split(split)))) == split


class Recorder:
    """A socket that keeps what was sent."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self.sent = b""

    def sendall(self, data: bytes) -> None:
        self.sent += data
        self._sock.sendall(data)

    def recv(self, size: int) -> bytes:
        return self._sock.recv(size)

    def settimeout(self, seconds: float | None) -> None:
        self._sock.settimeout(seconds)


def test_what_it_listens_on_and_what_tasks_are_told_may_differ() -> None:
    service = BindingService("localhost", 0, bind_address="127.0.0.1")
    try:
        assert service.address.host == "localhost"
        assert service._server.server_address[0] == "127.0.0.1"
        greet(service.address, "a")
        assert service.slots() == {"a"}
    finally:
        service.close()
    with pytest.raises(OSError, match="assign requested address"):
        BindingService("127.0.0.1", 0, bind_address="192.0.2.1")
