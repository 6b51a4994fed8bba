"""What each kind of fault does to the hosts that executors run on, and to all executors in turn."""

from __future__ import annotations

import shutil
import signal
import time
from typing import Final

from nemesis.driver import Supervisor
from nemesis.faults import Heal, Missed
from nemesis.schedule import Fault
from nemesis.victims import of_role, send
from nemesis.world import World
from spark.standalone import StandaloneCluster

_MORE_HOSTS: Final = ("127.0.0.3", "127.0.0.4")
# An orchestrator waits for the next executor to run before it takes another one.
_ROLL_S: Final = 6.0


def roll_executors(world: World, supervisor: Supervisor, fault: Fault) -> None:
    """Each executor is asked to end, one after the other, as in a rolling restart."""
    victims = of_role(world.run, "executor")
    if not victims:
        raise Missed("no executor runs")
    for victim in victims:
        send([victim], signal.SIGTERM)
        time.sleep(_ROLL_S)


def add_host(world: World, supervisor: Supervisor, fault: Fault) -> Heal:
    """One more executor comes, on a host of its own, and goes without a word."""
    cluster = _cluster(supervisor)
    free = [host for host in _MORE_HOSTS if host not in cluster.hosts]
    if not free:
        raise Missed("all hosts are there")
    cluster.add_workers(free[0])

    def heal() -> None:
        if free[0] in cluster.hosts:
            cluster.lose_worker(free[0])

    return heal


def lose_host(world: World, supervisor: Supervisor, fault: Fault) -> Heal:
    """A host is gone with all that runs there; another one is left. It comes back as it was, or
    with nothing of what it had."""
    cluster = _cluster(supervisor)
    if len(cluster.hosts) < 2:
        raise Missed("there is one host")
    host = cluster.hosts[int(fault.pick * len(cluster.hosts))]
    cluster.lose_worker(host)
    if fault.pick * 1000 % 2 < 1:
        shutil.rmtree(cluster.state(host), ignore_errors=True)
    return lambda: cluster.add_workers(host)


def _cluster(supervisor: Supervisor) -> StandaloneCluster:
    assert supervisor.cluster is not None
    return supervisor.cluster
