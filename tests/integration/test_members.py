"""Members at a real coordinator: names that survive, are taken, lost, and come back."""

from __future__ import annotations

import os
import signal
import socket
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from brokers.real_broker import wait_until
from keyrange.embedded.broker import EmbeddedBroker
from keyrange.errors import UnavailableError
from keyrange.members.coordinator_client import GroupView, remove_member
from keyrange.members.executor_names import NameSettings
from keyrange.members.launch import member_directory
from keyrange.members.model.join_metadata import MemberMetadata, read_metadata
from keyrange.members.status import MemberSetup, TaskProgress, now_ms
from keyrange.ranges.sharing.shared_directory import is_alive
from project.forms import by_form, usually
from queries.executors import SESSION_MS, Start, client_of, described, end_member, named, setup_at


def test_a_member_is_shown_by_its_group(broker: EmbeddedBroker, executor: Start) -> None:
    one, setup = executor(), setup_at(broker, "orders-0", cores=2.0, executor="7")
    first = one.start(setup)
    assert first is not None
    status = one.until(setup, "STABLE")
    assert (status.name, status.is_static, status.source) == ("orders-0", True, "option")
    assert (status.pid, status.joined, status.failure) == (first.pid, 1, "")
    assert status.holds_name(now_ms())
    [member] = described(broker, setup).members
    assert (member.member_id, member.instance_id) == (status.member_id, "orders-0")
    assert member.client_host == "127.0.0.1"
    told = read_metadata(member.metadata)
    assert told is not None
    pid = one.process.pid
    assert replace(told, host="") == MemberMetadata("orders-0", "", "7", 2.0, "option", pid)


def test_it_is_started_once(broker: EmbeddedBroker, executor: Start) -> None:
    one, setup = executor(), setup_at(broker, "orders-0")
    pids = {status.pid for status in (one.start(setup) for _ in range(5)) if status is not None}
    assert len(pids) == 1
    one.until(setup, "STABLE")
    again = one.start(setup)
    assert again is not None
    assert again.pid in pids


def test_it_is_started_again_when_it_was_killed(broker: EmbeddedBroker, executor: Start) -> None:
    one, setup = executor(), setup_at(broker, "orders-0")
    one.start(setup)
    before = one.until(setup, "STABLE")
    os.kill(before.pid, signal.SIGKILL)
    wait_until(lambda: not is_alive(before.pid, before.started))
    one.start(setup)
    wait_until(lambda: one.status(setup).pid != before.pid)
    after = one.until(setup, "STABLE")
    assert after.generation == before.generation


def test_a_static_member_back_within_its_session_finds_its_generation(
    broker: EmbeddedBroker, executor: Start
) -> None:
    one, two = executor(), executor()
    setup = setup_at(broker, "orders-0", session_timeout_ms=30_000)
    other = named(setup, "orders-1")
    one.start(setup)
    one.until(setup, "STABLE")
    two.start(other)
    two.until(other, "STABLE")
    wait_until(lambda: one.status(setup).generation == two.status(other).generation)
    steady = two.status(other)
    for _ in range(3):
        before = one.status(setup)
        one.kill()
        wait_until(lambda status=before: not is_alive(status.pid, status.started))
        # Spark's number of the executor is another one, and what the member says of itself with it.
        setup = replace(setup, executor=f"{setup.executor}1")
        one = executor()
        one.start(setup)
        after = one.until(setup, "STABLE")
        assert after.member_id != before.member_id
        assert after.generation == steady.generation
    now = two.status(other)
    assert (now.generation, now.joined, now.since_ms) == (
        steady.generation,
        steady.joined,
        steady.since_ms,
    )
    view = described(broker, setup)
    assert {each.instance_id for each in view.members} == {"orders-0", "orders-1"}


def test_a_dynamic_member_leaves_with_its_executor(broker: EmbeddedBroker, executor: Start) -> None:
    one, two = executor(), executor()
    setup = setup_at(broker, session_timeout_ms=60_000)
    one.start(setup)
    two.start(setup)
    one.until(setup, "STABLE")
    before = two.until(setup, "STABLE")
    assert one.status(setup).name != before.name
    assert not before.is_static
    wait_until(lambda: len(described(broker, setup).members) == 2)
    two.kill()
    # By LeaveGroup: the session is longer than this waits.
    wait_until(lambda: len(described(broker, setup).members) == 1)


@pytest.mark.parametrize("name", ["orders-0", ""])
def test_it_ends_with_its_executor_and_leaves_nothing(
    broker: EmbeddedBroker, executor: Start, name: str
) -> None:
    one, setup = executor(), setup_at(broker, name, session_timeout_ms=60_000)
    one.start(setup)
    status = one.until(setup, "STABLE")
    one.kill()
    wait_until(lambda: not is_alive(status.pid, status.started))
    assert not member_directory(setup, one.directory).exists()
    left = [each.instance_id for each in described(broker, setup).members]
    assert left == ([name] if name else [])


@pytest.mark.parametrize("name", ["orders-0", ""])
def test_only_a_dynamic_member_leaves_when_it_is_ended(
    broker: EmbeddedBroker, executor: Start, name: str
) -> None:
    one, setup = executor(), setup_at(broker, name, session_timeout_ms=60_000)
    one.start(setup)
    status = one.until(setup, "STABLE")
    end_member(setup, one.directory)
    assert not is_alive(status.pid, status.started)
    assert one.status(setup).state == "CLOSED"
    assert len(described(broker, setup).members) == (1 if name else 0)


def test_who_takes_a_name_has_it(broker: EmbeddedBroker, executor: Start) -> None:
    old, new = executor(), executor()
    setup = setup_at(broker, "orders-0")
    old.start(setup)
    before = old.until(setup, "STABLE")
    new.start(setup)
    after = new.until(setup, "STABLE")
    fenced = old.until(setup, "FENCED")
    assert "DUPLICATE_STATIC_MEMBER" in fenced.failure
    assert "FENCED_INSTANCE_ID" in fenced.failure
    assert not fenced.holds_name(now_ms())
    assert after.generation == before.generation
    wait_until(lambda: not is_alive(fenced.pid, fenced.started))
    # It does not take the name back until somebody has had the chance to do something about it.
    assert old.start(setup) == fenced
    assert new.status(setup).state == "STABLE"
    old.start(replace(setup, run="another"))
    old.until(setup, "STABLE")
    new.until(setup, "FENCED")


def test_a_removed_member_joins_anew(broker: EmbeddedBroker, executor: Start) -> None:
    one, setup = executor(), setup_at(broker, "orders-0")
    one.start(setup)
    before = one.until(setup, "STABLE")
    with client_of(broker) as client:
        assert remove_member(client, setup.member_group, "orders-0")
        assert not remove_member(client, setup.member_group, "nobody")
    wait_until(lambda: one.status(setup).joined == 2)
    after = one.status(setup)
    assert after.member_id != before.member_id
    assert "UNKNOWN_MEMBER_ID" in after.trouble


def test_nobody_is_in_a_group_that_is_not_there(broker: EmbeddedBroker) -> None:
    assert described(broker, setup_at(broker, "orders-0")) == GroupView("Dead")


@pytest.mark.parametrize("taken", usually(True, False))
def test_a_paused_process_does_not_believe_that_it_has_its_name(
    broker: EmbeddedBroker, executor: Start, taken: bool
) -> None:
    one, two = executor(), executor()
    setup = setup_at(broker, "orders-0")
    one.start(setup)
    before = one.until(setup, "STABLE")
    os.kill(before.pid, signal.SIGSTOP)
    since = now_ms()
    wait_until(lambda: not described(broker, setup).members)
    if taken:
        two.start(setup)
        two.until(setup, "STABLE")
    wait_until(lambda: now_ms() - since > 2 * SESSION_MS)
    # Its file says what it said last; the time in it says that this is over.
    stale = one.status(setup)
    assert stale.state == "STABLE"
    assert not stale.holds_name(now_ms())
    os.kill(before.pid, signal.SIGCONT)
    if taken:
        assert "FENCED_INSTANCE_ID" in one.until(setup, "FENCED").failure
        assert two.status(setup).state == "STABLE"
    else:
        wait_until(lambda: one.status(setup).joined == 2)
        after = one.status(setup)
        assert "UNKNOWN_MEMBER_ID" in after.trouble
        assert after.member_id != before.member_id


def test_restarts_of_the_coordinator_change_nothing(executor: Start) -> None:
    with EmbeddedBroker() as own:
        one, two = executor(), executor()
        setup = setup_at(own, "orders-0", session_timeout_ms=60_000)
        other = named(setup, "orders-1")
        one.start(setup)
        one.until(setup, "STABLE")
        two.start(other)
        two.until(other, "STABLE")
        wait_until(lambda: one.status(setup).generation == two.status(other).generation)
        before = [one.status(setup), two.status(other)]
        both = [own.nodes[0].stop, own.nodes[0].kill]
        for end in by_form(both[1:], both[1:], both):
            end()
            wait_until(lambda: one.status(setup).state == "FINDING")
            wait_until(lambda: two.status(other).state == "FINDING")
            own.nodes[0].start()
            after = [one.until(setup, "STABLE"), two.until(other, "STABLE")]
            for was, now in zip(before, after, strict=True):
                assert (now.pid, now.member_id) == (was.pid, was.member_id)
                assert (now.generation, now.joined) == (was.generation, was.joined)
        for each in (one, two):
            each.kill()


def test_a_task_that_yields_nothing_gives_the_name_up(
    broker: EmbeddedBroker, executor: Start
) -> None:
    one = executor()
    setup = setup_at(broker, "orders-0", max_poll_interval_ms=7_000)
    one.start(setup)
    before = one.until(setup, "STABLE")
    directory = member_directory(setup, one.directory)
    with TaskProgress(directory) as busy, TaskProgress(directory) as stuck:

        def given_up() -> bool:
            busy.yielded()
            return one.status(setup).state == "IDLE_GIVEN_UP"

        since = now_ms()
        wait_until(given_up)
        assert now_ms() - since >= 7_000
        assert "MEMBER_STALLED" in one.status(setup).failure
        wait_until(lambda: not described(broker, setup).members)
        assert not one.status(setup).holds_name(now_ms())
        stuck.yielded()
        wait_until(lambda: one.status(setup).joined == 2)
        after = one.status(setup)
        assert (after.state, after.pid, after.failure) == ("STABLE", before.pid, "")


def test_an_idle_executor_keeps_its_name(broker: EmbeddedBroker, executor: Start) -> None:
    one = executor()
    setup = setup_at(broker, "orders-0", max_poll_interval_ms=SESSION_MS)
    one.start(setup)
    before = one.until(setup, "STABLE")
    with TaskProgress(member_directory(setup, one.directory)):
        pass
    since = now_ms()
    wait_until(lambda: now_ms() - since > 2 * SESSION_MS)
    after = one.status(setup)
    assert (after.state, after.joined, after.since_ms) == ("STABLE", 1, before.since_ms)
    assert after.holds_name(now_ms())


@pytest.mark.parametrize("session_ms", [999, 1_800_001])
def test_a_session_that_the_broker_refuses_is_named_with_its_bounds(
    broker: EmbeddedBroker, executor: Start, session_ms: int
) -> None:
    one, setup = executor(), setup_at(broker, "orders-0", session_timeout_ms=session_ms)
    one.start(setup)
    failure = one.until(setup, "FAILED").failure
    for word in (
        "SESSION_TIMEOUT_REFUSED",
        "INVALID_SESSION_TIMEOUT",
        f"session.timeout.ms={session_ms}",
        "group.min.session.timeout.ms=1000",
        "group.max.session.timeout.ms=1800000",
    ):
        assert word in failure


def test_a_wrong_option_is_named(executor: Start) -> None:
    one = executor()
    names = NameSettings("orders", name="orders-0")
    setup = MemberSetup(names, "orders.members", {"bootstrap.servers": "["})
    one.start(setup)
    assert "kafka.bootstrap.servers" in one.until(setup, "FAILED").failure


def test_a_name_that_is_missing_is_named(broker: EmbeddedBroker, executor: Start) -> None:
    one, setup = executor(), setup_at(broker, "orders-0")
    setup = replace(setup, names=replace(setup.names, name="", variable="NO_SUCH_VARIABLE"))
    one.start(setup)
    assert "NO_STATIC_MEMBER_INFO_SET" in one.until(setup, "FAILED").failure


def test_a_process_that_cannot_start_says_why(executor: Start) -> None:
    one = executor()
    setup = MemberSetup(NameSettings("orders"), "orders.members", {})
    directory = member_directory(setup, one.directory)
    directory.mkdir(mode=0o700)
    (directory / "lock").mkdir()
    with pytest.raises(UnavailableError, match=r"MEMBER_NOT_STARTED.*IsADirectoryError"):
        one.start(setup)


def test_a_name_is_free_at_once_where_no_broker_answers(tmp_path: Path, executor: Start) -> None:
    """The next executor of a host has the slot of the one that died while its member searched."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        servers = f"127.0.0.1:{silent.getsockname()[1]}"
        setup = MemberSetup(
            NameSettings("orders", policy="static", slot_directory=str(tmp_path / "slots")),
            "orders.members",
            {"bootstrap.servers": servers},
        )
        first, second = executor(), executor()
        first.start(setup)
        wait_until(lambda: first.status(setup).name != "")
        name = first.status(setup).name
        asking, _ = silent.accept()
        first.kill()
        second.start(setup)
        wait_until(lambda: second.status(setup).name != "")

        asking.close()

    assert second.status(setup).name == name


def test_it_is_small(broker: EmbeddedBroker, executor: Start) -> None:
    one, setup = executor(), setup_at(broker, "orders-0")
    one.start(setup)
    process = psutil.Process(one.until(setup, "STABLE").pid)
    assert process.memory_info().rss <= 60e6
    paths = {Path(each.path) for each in process.memory_maps()}
    heavy = ("numpy", "pyarrow", "numba", "llvmlite", "pandas")
    assert [path for path in paths if any(name in path.parts for name in heavy)] == []
