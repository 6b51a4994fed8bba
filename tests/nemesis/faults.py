"""What each kind of fault does to processes, files, clocks and connections, and how it is healed.

Those of brokers and topics are in `broker_faults`, those that operators commit in `operations`."""

from __future__ import annotations

import os
import random
import shutil
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil

from nemesis.driver import Supervisor
from nemesis.schedule import Fault
from nemesis.victims import of_role, send, with_children
from nemesis.world import MEMORY, World

Heal = Callable[[], None]


class Missed(Exception):
    """There was nobody whom the fault could have met."""


def one_of(world: World, role: str, pick: float) -> psutil.Process:
    found = of_role(world.run, role)
    if not found:
        raise Missed(f"no {role} runs")
    return found[int(pick * len(found))]


def killed(role: str, every: bool = False) -> Callable[[World, Supervisor, Fault], None]:
    def kill(world: World, supervisor: Supervisor, fault: Fault) -> None:
        victims = of_role(world.run, role) if every else [one_of(world, role, fault.pick)]
        if not victims:
            raise Missed(f"no {role} runs")
        send(victims, signal.SIGKILL)

    return kill


def kill_driver(world: World, supervisor: Supervisor, fault: Fault) -> None:
    """Executors are left to find out by themselves."""
    victims = supervisor.pids()
    if not victims:
        raise Missed("no driver runs")
    send(victims, signal.SIGKILL)


def change_options(world: World, supervisor: Supervisor, fault: Fault) -> None:
    """Whatever the driver is at, the next one has other options."""
    dice = random.Random(fault.pick)
    supervisor.changes = {
        "maxOffsetsPerTrigger": dice.choice(["50", "700", "3000"]),
        "keyRangesPerPartition": dice.choice(["1", "3", "11"]),
        "bytesPerTask": dice.choice(["0", "2000", "100000000"]),
        "maxBatchRows": dice.choice(["10", "1000", "100000"]),
    }
    mode = world.mode
    if not (mode.pinned or mode.has_state):
        supervisor.changes["splitBy"] = dice.choice(["partition", "keyRange"])
    world.say(f"the next driver has {supervisor.changes}")
    kill_driver(world, supervisor, fault)


def paused(role: str) -> Callable[[World, Supervisor, Fault], Heal]:
    """SIGSTOP, of an executor with its workers; SIGCONT where it ends."""

    def pause(world: World, supervisor: Supervisor, fault: Fault) -> Heal:
        if role == "driver":
            victims = supervisor.pids()
        else:
            victims = with_children(one_of(world, role, fault.pick))
        if not victims:
            raise Missed(f"no {role} runs")
        send(victims, signal.SIGSTOP)
        return lambda: send(victims, signal.SIGCONT)

    return pause


def empty_memory(world: World, supervisor: Supervisor, fault: Fault) -> None:
    for path in MEMORY.glob("keyrange-*/*"):
        shutil.rmtree(path, ignore_errors=True)


def remove_slots(world: World, supervisor: Supervisor, fault: Fault) -> None:
    cluster = supervisor.cluster
    homes = [world.slots] if cluster is None else map(cluster.state, cluster.hosts)
    for path in (each for home in homes for each in home.iterdir()):
        shutil.rmtree(path, ignore_errors=True)


def filled(place: Callable[[World], Path]) -> Callable[[World, Supervisor, Fault], Heal]:
    """A file that takes all room, up to the last byte."""

    def fill(world: World, supervisor: Supervisor, fault: Fault) -> Heal:
        # On a busy machine the next one may come before this one is over.
        path = place(world) / f"ballast-{fault.at_s}"
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT)
        try:
            for size in (1 << 20, 1 << 12):
                with suppress(OSError):
                    while True:
                        os.write(descriptor, bytes(size))
        finally:
            os.close(descriptor)
        return path.unlink

    return fill


def connected(mode: str) -> Callable[[World, Supervisor, Fault], Heal]:
    """What the proxy does to answers, those under way too."""

    def disturb(world: World, supervisor: Supervisor, fault: Fault) -> Heal:
        proxy = world.proxy
        assert proxy is not None
        if mode == "trickle":
            proxy.to_client.set("trickle", step_bytes=1, every_ms=50 + 200 * fault.pick)
        elif mode == "hang":
            way = proxy.to_client if fault.pick < 0.7 else proxy.to_server
            way.set("hang")
        else:
            proxy.to_client.set("cut", after_bytes=int(10 ** (5 * fault.pick)))

        def heal() -> None:
            proxy.mode = "pass"

        return heal

    return disturb


def step_clock(world: World, supervisor: Supervisor, fault: Fault) -> Heal:
    """The wall clock of all processes of the job is off by up to an hour, one way or the other."""
    off_s = (fault.pick - 0.5) * 7_200
    world.clock.write_text(f"{off_s:.3f}")

    def heal() -> None:
        world.clock.write_text("0")

    return heal


def second_driver(world: World, supervisor: Supervisor, fault: Fault) -> None:
    """The same job once more, as by an orchestrator that has lost sight of the first one."""
    if len(supervisor.running) != 1:
        raise Missed("there is not one driver")
    supervisor.start()
