"""What each kind of fault does to the S3 server that keeps the tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nemesis.driver import Supervisor
from nemesis.faults import Heal
from nemesis.schedule import Fault
from nemesis.store import Bucket
from nemesis.world import World


def answering(**faults: Any) -> Callable[[World, Supervisor, Fault], Heal]:
    """It answers like that to the share of calls that is given."""

    def disturb(world: World, supervisor: Supervisor, fault: Fault) -> Heal:
        store = world.store
        assert isinstance(store, Bucket)
        store.disturb(fault.kind, **faults)
        return lambda: store.heal(fault.kind)

    return disturb
