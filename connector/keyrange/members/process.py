"""The member process of an executor: `python -m keyrange.members.process DIRECTORY`.

It holds the executor's name in a Kafka group, with heartbeats that no task can hold up, and says in
`member.json` how it stands. It reads its setup from its standard input, as secrets may be among it.
It ends with the process that it was started for. Neither numpy nor pyarrow nor pyspark is loaded:
it is to stay small.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import select
import shutil
import signal
import socket
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from keyrange.errors import KeyrangeError, invalid_options
from keyrange.members.executor import Owner
from keyrange.members.executor_names import Surroundings as NameSurroundings
from keyrange.members.executor_names import find_name
from keyrange.members.status import (
    MemberSetup,
    MemberStatus,
    from_json,
    now_ms,
    oldest_progress,
    write_status,
)
from keyrange.observing.logs import TextFormatter
from keyrange.ranges.sharing.locks import take_lock
from keyrange.ranges.sharing.shared_directory import is_alive, start_time

if TYPE_CHECKING:
    from keyrange.members.model.group_member import GroupMember

_log = logging.getLogger(__name__)

# How often tasks' progress is looked at, and where the kernel cannot tell it the executor's end.
_LOOK_MS: Final = 1_000
_LOCK: Final = "lock"


class OwnerWatch:
    """Whether the process lives that the member ends with."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        # Wakes who waits; whether the process is gone is asked of its start time, as pids are used
        # again.
        self.descriptor = -1
        if sys.platform == "linux":
            with contextlib.suppress(OSError):
                self.descriptor = os.pidfd_open(owner.pid)

    @property
    def gone(self) -> bool:
        return not is_alive(self._owner.pid, self._owner.started)

    def then(self, action: Callable[[], None]) -> None:
        """Do something as soon as it is gone, whatever else this process waits for."""

        def wait() -> None:
            poll = select.poll()
            if self.descriptor >= 0:
                poll.register(self.descriptor, select.POLLIN)
            while not self.gone:
                poll.poll(_LOOK_MS)
            action()

        threading.Thread(target=wait, daemon=True).start()


class ProcessSurroundings:
    """Signals, the owner's end and tasks' progress, for `run_member`."""

    def __init__(self, directory: Path, status: MemberStatus, watch: OwnerWatch) -> None:
        self.status = status
        self._directory = directory
        self._watch = watch
        self._terminated = False
        self._wanted = True
        self._look_at_ms = 0
        self._writing = threading.Lock()
        self._swept = False
        # Whether the status on the disk is an older one.
        self._is_outdated = False
        self._wake_from, self._wake_to = socket.socketpair()
        for each in (self._wake_from, self._wake_to):
            each.setblocking(False)

    def listen(self) -> None:
        """Take SIGTERM as the order to end."""
        signal.set_wakeup_fd(self._wake_to.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, self._terminate)
        for number in (signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)

    def _terminate(self, *_: Any) -> None:
        self._terminated = True

    def now_ms(self) -> int:
        return now_ms()

    def look(self, member: GroupMember) -> None:
        """Once in a while, and whenever a signal has come or the owner has ended."""
        at_ms = now_ms()
        if self._wanted and (self._terminated or self._watch.gone):
            self._wanted = False
            member.close(at_ms)
            self.told(member, "")
        if not self._wanted or at_ms < self._look_at_ms:
            return
        self._look_at_ms = at_ms + _LOOK_MS
        last_ms = oldest_progress(self._directory)
        member.working(last_ms is not None, at_ms)
        if last_ms is not None:
            member.progressed(last_ms)

    def wait(self, timeout_ms: float, answer_from: int = -1) -> bool:
        poll = select.poll()
        poll.register(self._wake_from, select.POLLIN)
        if answer_from >= 0:
            poll.register(answer_from, select.POLLIN)
        if self._wanted and self._watch.descriptor >= 0:
            poll.register(self._watch.descriptor, select.POLLIN)
        ready = {each for each, _ in poll.poll(min(max(timeout_ms, 0), _LOOK_MS))}
        if self._wake_from.fileno() in ready:
            with contextlib.suppress(BlockingIOError):
                self._wake_from.recv(1_024)
        return answer_from in ready

    def told(self, member: GroupMember, trouble: str) -> None:
        """Write down how the member stands, where that is another than before."""
        before = self.status
        state = str(member.state)
        status = replace(
            before,
            state=state,
            failure=member.failure or "",
            trouble=trouble or before.trouble,
            since_ms=before.since_ms if state == before.state else now_ms(),
            held_until_ms=member.held_until_ms or 0,
        )
        identity = (member.member_id, member.generation)
        if state == "STABLE" and identity != (before.member_id, before.generation):
            # What was held last is told until something else is.
            status = replace(
                status,
                member_id=member.member_id,
                generation=member.generation,
                joined=before.joined + 1,
            )
        if status != before or self._is_outdated:
            self.put(status)

    def put(self, status: MemberStatus) -> None:
        """Say how the member stands. Where that cannot be written, as where the disk is full, it is
        tried again whenever something is told; what is read meanwhile holds no longer than it
        says."""
        if status.state != self.status.state:
            _log.info("%s is %s %s", status.name, status.state, status.failure)
        self.status = status
        with self._writing:
            if self._swept:
                return
            try:
                write_status(self._directory, status)
                self._is_outdated = False
            except OSError as failure:
                if not self._is_outdated:
                    _log.warning("the status cannot be written: %s", failure)
                self._is_outdated = True

    def sweep(self) -> None:
        """Remove the directory, from whichever thread; nothing is written there from then on."""
        with self._writing:
            self._swept = True
            shutil.rmtree(self._directory, ignore_errors=True)
        with contextlib.suppress(OSError):
            self._directory.parent.rmdir()


def run(setup: MemberSetup, owner: Owner, directory: Path, is_there: Callable[[], None]) -> None:
    """The member's life, from the search for its name to its end; all of it is in `member.json`.

    `is_there` is called when the first of it is written. Raises OSError where it cannot be: nobody
    would find this process, and others would be started beside it.
    """
    mine = MemberStatus(
        pid=os.getpid(),
        started=start_time(os.getpid()),
        since_ms=now_ms(),
        setup=setup.mark,
        run=setup.run,
    )
    watch = OwnerWatch(owner)
    around = ProcessSurroundings(directory, mine, watch)
    around.listen()
    write_status(directory, mine)
    is_there()

    def leave() -> None:
        around.sweep()
        os._exit(0)

    try:
        _take_part(setup, owner, around, lambda: watch.then(leave))
    except KeyrangeError as failure:
        around.put(replace(around.status, state="FAILED", failure=str(failure), since_ms=now_ms()))
    except Exception as failure:
        _log.exception("the member process failed")
        text = f"{type(failure).__name__}: {failure}"
        around.put(replace(around.status, state="FAILED", failure=text, since_ms=now_ms()))
    finally:
        if watch.gone:
            around.sweep()


def _take_part(
    setup: MemberSetup, owner: Owner, around: ProcessSurroundings, end_at_once: Callable[[], None]
) -> None:
    """Find the name, and be a member under it.

    A static member has nobody to tell that it ends. `end_at_once` has the process end with its
    executor while it waits for a broker, too: who comes next on this host is to find the name free.
    """
    # After the fork, and after the first status is written: these take most of the start's time.
    from keyrange.kafka.cluster import Cluster
    from keyrange.members.coordinator_client import check_session_timeout, run_member
    from keyrange.members.model.group_member import GroupMember, MemberSettings
    from keyrange.members.model.join_metadata import MemberMetadata
    from keyrange.options.kafka_properties import parse_client_options
    from keyrange.options.value_parsers import Violations

    name = find_name(setup.names, NameSurroundings())
    around.put(replace(around.status, name=name.name, is_static=name.is_static, source=name.source))
    if name.is_static:
        end_at_once()
    violations = Violations()
    client = parse_client_options(setup.kafka, violations)
    if violations.messages:
        raise invalid_options(violations.messages)
    metadata = MemberMetadata(
        *(name.name, socket.gethostname(), setup.executor, setup.cores, name.source, owner.pid),
        rack=setup.rack,
    )
    settings = MemberSettings(
        group=setup.member_group,
        instance_id=name.instance_id,
        session_timeout_ms=setup.session_timeout_ms,
        heartbeat_interval_ms=setup.heartbeat_interval_ms,
        max_poll_interval_ms=setup.max_poll_interval_ms,
        metadata=metadata.to_bytes(),
    )
    with contextlib.closing(Cluster(client)) as cluster:
        check_session_timeout(cluster, setup.member_group, setup.session_timeout_ms)
        run_member(GroupMember(settings), cluster, around)


def _detached(directory: Path, life: Callable[[Callable[[], None]], None]) -> int:
    """Live in a process that is nobody's child; the present one returns as soon as it is there."""
    ready, there = os.pipe()
    if os.fork():
        os.close(there)
        return 0 if os.read(ready, 1) else 1
    os.close(ready)

    def is_there() -> None:
        os.write(there, b"x")
        os.close(there)

    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    # Who sweeps an executor's directory leaves alone what somebody holds.
    held = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    fcntl.flock(held, fcntl.LOCK_SH)
    if take_lock(directory / _LOCK) is None:
        is_there()  # Another one, which is.
        return 0
    life(is_there)
    return 0


def main() -> int:
    directory = Path(sys.argv[1])
    setup, owner = from_json(sys.stdin.read())
    handler = logging.StreamHandler()
    handler.setFormatter(TextFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    return _detached(directory, lambda is_there: run(setup, owner, directory, is_there))


if __name__ == "__main__":
    sys.exit(main())
