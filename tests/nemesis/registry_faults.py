"""What each kind of fault does to the schema registry, and to what the writers of values know."""

from __future__ import annotations

from nemesis.driver import Supervisor
from nemesis.faults import Heal, Missed, kill_driver
from nemesis.schedule import Fault
from nemesis.values import AvroValues
from nemesis.world import World

# More than are asked for while it answers so.
_REQUESTS = 1_000


def grow_schema(world: World, supervisor: Supervisor, fault: Fault) -> None:
    """Values have a field more. The driver does not know it yet, and the next one does."""
    _avro(world).grow()
    world.say(f"values have {world.values.fields} added fields")
    kill_driver(world, supervisor, fault)


def kill_registry(world: World, supervisor: Supervisor, fault: Fault) -> Heal:
    """Right after it has told a writer of a schema that no reader has seen yet."""
    values = _avro(world)
    if not values.answers:
        raise Missed("the registry is away already")
    values.grow()
    values.kill()
    return values.restart


def fail_registry(world: World, supervisor: Supervisor, fault: Fault) -> Heal:
    """It has a new schema, and most of its answers are none."""
    registry = _avro(world).registry
    _avro(world).grow()
    registry.faults = [503, "half", "none", 429, "reset"] * _REQUESTS

    def heal() -> None:
        registry.faults = []

    return heal


def _avro(world: World) -> AvroValues:
    assert isinstance(world.values, AvroValues)
    return world.values
