"""Members of a Kafka group over a network that loses things, with processes that crash, pause and
come twice, and a coordinator that moves: what has to hold at any time, and where it has to end."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from random import Random

import pytest

from brokers.group_coordinator import STABLE, CoordinatorModel
from keyrange.members.model.group_member import GroupMember, MemberSettings
from keyrange.members.model.group_member_states import ENDS, GroupState
from keyrange.members.model.group_messages import (
    Answer,
    Coordinator,
    FindCoordinator,
    Heartbeat,
    Join,
    Leave,
    Peer,
    Request,
    Sync,
)
from project.forms import by_form

SESSION_MS = 10_000
BEAT_MS = 1_000
POLL_MS = 30_000
STEP_MS = 100


def numbered(members: list[Peer] | tuple[Peer, ...]) -> dict[str, bytes]:
    """An assignor whose answer says who there is, and who this one is."""
    names = sorted(str(peer.instance_id or peer.member_id) for peer in members)
    return {
        peer.member_id: f"{peer.instance_id or peer.member_id} of {','.join(names)}".encode()
        for peer in members
    }


@dataclass(eq=False)
class Process:
    """One life of a member."""

    name: str | None
    member: GroupMember
    is_alive: bool = True
    is_paused: bool = False
    inbox: list[tuple[Request, Answer]] = field(default_factory=list)
    under_way: Request | None = None
    gives_up_at_ms: int = 0
    has_asked_to_join: bool = False
    started_ms: int = 0
    ended_ms: int | None = None


class World:
    """Brokers, a network and processes."""

    def __init__(self, seed: int, loss: float = 0.0) -> None:
        self.random = Random(seed)
        self.loss = loss
        self.now_ms = 1_000
        self.model = CoordinatorModel()
        self.coordinator = Coordinator(1, "one", 9092)
        self.load_until_ms = 0
        self.processes: list[Process] = []
        self.sent: list[tuple[Process, Request]] = []
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._order = count()

    def start(self, name: str | None) -> Process:
        its = MemberSettings("g.members", name, SESSION_MS, BEAT_MS, POLL_MS, b"metadata")
        process = Process(name, GroupMember(its, numbered), started_ms=self.now_ms)
        self.processes.append(process)
        return process

    def end(self, process: Process) -> None:
        process.is_alive = False
        process.ended_ms = self.now_ms

    def alive(self) -> list[Process]:
        return [each for each in self.processes if each.is_alive]

    def run(self, ms: int) -> None:
        until_ms = self.now_ms + ms
        while self.now_ms < until_ms:
            self.now_ms += STEP_MS
            while self._events and self._events[0][0] <= self.now_ms:
                heapq.heappop(self._events)[2]()
            self.model.passes(self.now_ms)
            for process in self.alive():
                if not process.is_paused:
                    self.drive(process)
            self.check()

    def later(self, do: Callable[[], None]) -> None:
        delay_ms = self.random.choice([0, 50, 200])
        heapq.heappush(self._events, (self.now_ms + delay_ms, next(self._order), do))

    def drive(self, process: Process) -> None:
        """What the loop around a member does."""
        member = process.member
        for request, answer in process.inbox:
            member.answered(request, answer, self.now_ms)
            if request is process.under_way:
                process.under_way = None
        process.inbox.clear()
        if process.under_way is not None and self.now_ms >= process.gives_up_at_ms:
            member.failed(process.under_way, self.now_ms)
            process.under_way = None
        wake_at_ms = member.wake_at_ms
        request = member.next_request(self.now_ms)
        if request is not None:
            assert wake_at_ms is not None
            assert wake_at_ms <= self.now_ms
            process.under_way = request
            process.gives_up_at_ms = self.now_ms + member.answer_within_ms(request)
            self.send(process, request)

    def send(self, process: Process, request: Request) -> None:
        self.sent.append((process, request))
        process.has_asked_to_join |= isinstance(request, Join)
        assert not isinstance(request, Leave) or process.name is None
        place = process.member.coordinator
        if self.random.random() >= self.loss:
            self.later(lambda: self.arrives(process, request, place))

    def arrives(self, process: Process, request: Request, place: Coordinator | None) -> None:
        def reply(answer: Answer) -> None:
            if self.random.random() >= self.loss:
                self.later(lambda: process.inbox.append((request, answer)))

        loading = self.now_ms < self.load_until_ms
        if isinstance(request, FindCoordinator):
            reply(
                Answer("COORDINATOR_NOT_AVAILABLE")
                if loading and self.random.random() < 0.5
                else Answer("NONE", coordinator=self.coordinator)
            )
        elif place != self.coordinator:
            reply(Answer("NOT_COORDINATOR"))
        elif loading:
            reply(Answer("COORDINATOR_LOAD_IN_PROGRESS"))
        elif isinstance(request, Join):
            self.model.join(request, reply)
        elif isinstance(request, Sync):
            self.model.sync(request, reply)
        elif isinstance(request, Heartbeat):
            self.model.heartbeat(request, reply)
        else:
            self.model.leave(request, reply)

    def move_coordinator(self) -> None:
        self.model.moves()
        other = self.coordinator.node_id % 3 + 1
        self.coordinator = Coordinator(other, f"host-{other}", 9092)
        self.load_until_ms = self.now_ms + self.random.choice([0, 500, 3_000])

    def check(self) -> None:
        for process in self.alive():
            member = process.member
            held = member.held_until_ms is not None and member.held_until_ms > self.now_ms
            lost_ms, why = self.model.removed.get(member.member_id, (self.now_ms, ""))
            if held and why == "session":
                # The coordinator's session begins no earlier than the member's own count.
                assert member.held_until_ms is not None
                assert member.held_until_ms <= lost_ms
            elif held and why:
                assert self.now_ms <= lost_ms + SESSION_MS
            if member.state is GroupState.FENCED:
                assert "DUPLICATE_STATIC_MEMBER" in (member.failure or "")
                assert "FENCED_INSTANCE_ID" in (member.failure or "")
                assert any(self.could_fence(other, process) for other in self.processes)

    def could_fence(self, other: Process, process: Process) -> bool:
        """Whether both lived at a time, or nearly: nobody is fenced by what is long gone."""
        lives = other.ended_ms is None or other.ended_ms >= process.started_ms - 500
        same = other.name == process.name and other is not process
        return same and other.has_asked_to_join and lives

    def settled(self) -> bool:
        group = self.model.group
        return group.state == STABLE and all(
            process.member.state is GroupState.STABLE
            and process.member.member_id in group.members
            and process.member.generation == group.generation
            and process.member.assignment == group.members[process.member.member_id].assignment
            for process in self.alive()
            if process.member.state not in ENDS
        )


def group_of(*names: str | None, seed: int = 1) -> World:
    """A group that is stable."""
    world = World(seed)
    for name in names:
        world.start(name)
    world.run(10_000)
    assert world.settled()
    assert {process.member.state for process in world.processes} == {GroupState.STABLE}
    return world


def of_name(world: World, name: str) -> Process:
    return next(process for process in world.alive() if process.name == name)


@pytest.mark.parametrize("which", ["leader", "follower"])
def test_a_static_member_that_is_back_within_its_session_changes_no_generation(which: str) -> None:
    world = group_of("a", "b", "c")
    generation = world.model.group.generation
    is_leader = which == "leader"
    process = next(each for each in world.alive() if each.member.is_leader is is_leader)
    assignment = process.member.assignment
    world.end(process)
    world.run(SESSION_MS - 2_000)
    again = world.start(process.name)
    world.run(3 * SESSION_MS)

    assert world.settled()
    assert world.model.group.generation == generation
    assert again.member.assignment == assignment == f"{process.name} of a,b,c".encode()
    assert not again.member.is_leader


def test_a_static_member_that_is_away_for_longer_than_its_session_costs_one_generation() -> None:
    world = group_of("a", "b", "c")
    generation = world.model.group.generation
    world.end(of_name(world, "b"))
    world.run(3 * SESSION_MS)

    assert world.settled()
    assert world.model.group.generation == generation + 1
    assert of_name(world, "a").member.assignment == b"a of a,c"


def test_a_dynamic_member_that_leaves_costs_one_generation_at_once() -> None:
    world = group_of("a", None, None)
    generation = world.model.group.generation
    process = next(each for each in world.alive() if each.name is None)
    process.member.close(world.now_ms)
    world.run(5_000)

    assert process.member.state is GroupState.CLOSED
    assert [type(request) for each, request in world.sent if each is process][-1] is Leave
    assert world.model.group.generation == generation + 1
    assert len(world.model.group.members) == 2
    world.end(process)
    assert world.settled()


def test_a_static_member_that_is_closed_says_nothing() -> None:
    world = group_of("a", "b")
    sent = len(world.sent)
    process = of_name(world, "a")
    process.member.close(world.now_ms)
    world.run(5_000)
    assert process.member.state is GroupState.CLOSED
    assert all(each is not process for each, _ in world.sent[sent:])
    assert len(world.model.group.members) == 2


def test_who_takes_a_name_has_it_and_who_had_it_stops() -> None:
    world = group_of("a", "b")
    first = of_name(world, "a")
    second = world.start("a")
    world.run(4 * BEAT_MS)

    assert first.member.state is GroupState.FENCED
    assert first.member.held_until_ms is None
    assert second.member.state is GroupState.STABLE
    sent = len(world.sent)
    world.run(60_000)
    assert all(each is not first for each, _ in world.sent[sent:])


def test_a_process_that_was_paused_while_its_name_was_taken_is_fenced() -> None:
    world = group_of("a", "b")
    first = of_name(world, "a")
    first.is_paused = True
    world.run(2 * SESSION_MS)
    second = world.start("a")
    world.run(SESSION_MS)
    first.is_paused = False
    world.run(4 * BEAT_MS)

    assert (first.member.state, second.member.state) == (GroupState.FENCED, GroupState.STABLE)


def test_a_process_that_was_paused_for_long_joins_again() -> None:
    world = group_of("a", "b")
    first = of_name(world, "a")
    first.is_paused = True
    world.run(2 * SESSION_MS)
    assert first.member.held_until_ms is not None
    assert first.member.held_until_ms < world.now_ms
    first.is_paused = False
    world.run(2 * SESSION_MS)
    assert world.settled()


def test_a_coordinator_that_moves_costs_no_generation() -> None:
    world = group_of("a", "b", None)
    generation = world.model.group.generation
    for _ in range(5):
        world.move_coordinator()
        world.run(20_000)
        assert world.settled()
    assert world.model.group.generation == generation


def test_a_leader_that_is_lost_is_replaced() -> None:
    world = group_of("a", "b", "c")
    leader = next(each for each in world.alive() if each.member.is_leader)
    world.end(leader)
    world.run(3 * SESSION_MS)
    assert world.settled()
    assert sum(each.member.is_leader for each in world.alive()) == 1


@pytest.mark.parametrize("seed", range(by_form(3, 25, 100)))
def test_everybody_ends_stable_when_the_faults_stop(seed: int) -> None:
    world = World(seed, loss=0.02)
    random = world.random
    names: list[str | None] = ["a", "b", "c", None, None]
    for name in names:
        world.start(name)
    for _ in range(25):
        fault = random.choice(["crash", "pause", "resume", "start", "twice", "move", "", "stall"])
        alive = world.alive()
        process = random.choice(alive) if alive else None
        missing = {"a", "b", "c"} - {each.name for each in alive}
        if fault == "crash" and process:
            world.end(process)
        elif fault in ("pause", "resume") and process:
            process.is_paused = fault == "pause"
        elif fault == "start" and (missing or len(alive) < 6):
            world.start(random.choice(sorted(missing)) if missing else None)
        elif fault == "twice" and len(alive) < 8:
            world.start(random.choice(["a", "b", "c"]))
        elif fault == "move":
            world.move_coordinator()
        elif fault == "stall" and process:
            process.member.working(random.random() < 0.5, world.now_ms)
        world.run(random.choice([200, 1_000, 4_000, 15_000]))
    world.loss = 0.0
    for process in world.alive():
        process.is_paused = False
        process.member.working(False, world.now_ms)
    # Who is fenced by a process that has crashed since is started again, as a supervisor would.
    for _ in range(2):
        for process in world.alive():
            if process.member.state is GroupState.FENCED:
                world.end(process)
        for name in sorted({"a", "b", "c"} - {each.name for each in world.alive()}):
            world.start(name)
        world.run(2 * SESSION_MS)
    world.run(8 * SESSION_MS)

    assert world.settled()
    living = [each for each in world.alive() if each.member.state is not GroupState.FENCED]
    assert {each.member.state for each in living} == {GroupState.STABLE}
    static = sorted(each.name for each in living if each.name is not None)
    assert static == ["a", "b", "c"]
    assert len(world.model.group.members) == len(living)
    generation = world.model.group.generation
    world.run(10 * SESSION_MS)
    assert world.model.group.generation == generation
