"""What does each kind of fault."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from nemesis import broker_faults, faults, host_faults, operations, registry_faults, store_faults
from nemesis.driver import Supervisor
from nemesis.faults import Heal
from nemesis.schedule import Fault
from nemesis.world import World

Act = Callable[[World, Supervisor, Fault], Heal | None]
ACTS: Final[dict[str, Act]] = {
    "kill-driver": faults.kill_driver,
    "change-options": faults.change_options,
    "kill-executor": faults.killed("executor"),
    "kill-executors": faults.killed("executor", every=True),
    "kill-worker": faults.killed("worker"),
    "roll-executors": host_faults.roll_executors,
    "add-host": host_faults.add_host,
    "lose-host": host_faults.lose_host,
    "kill-member": faults.killed("member"),
    "kill-consumer": faults.killed("consumer"),
    "pause-driver": faults.paused("driver"),
    "stall-driver": faults.paused("driver"),
    "pause-executor": faults.paused("executor"),
    "stall-executor": faults.paused("executor"),
    "pause-worker": faults.paused("worker"),
    "pause-member": faults.paused("member"),
    "stall-member": faults.paused("member"),
    "pause-consumer": faults.paused("consumer"),
    "stall-consumer": faults.paused("consumer"),
    "kill-broker": broker_faults.kill_broker,
    "restart-broker": broker_faults.restart_broker,
    "move-leader": broker_faults.move_leader,
    "move-coordinator": broker_faults.move_coordinator,
    "unclean-election": broker_faults.unclean_election,
    "recreate-topic": broker_faults.recreate_topic,
    "add-partition": broker_faults.add_partition,
    "delete-done": broker_faults.delete_done,
    "delete-ahead": broker_faults.delete_ahead,
    "empty-memory": faults.empty_memory,
    "fill-memory": faults.filled(lambda world: faults.MEMORY),
    "remove-slots": faults.remove_slots,
    "fill-disk": faults.filled(lambda world: world.lake),
    "slow-store": store_faults.answering(delay_ms=100),
    "throttle-store": store_faults.answering(throttled=0.3),
    "fail-store": store_faults.answering(failing=0.3),
    "lose-answers": store_faults.answering(lost=0.2),
    "deny-store": store_faults.answering(denied=1.0, most=1 << 30),
    "grow-schema": registry_faults.grow_schema,
    "kill-registry": registry_faults.kill_registry,
    "fail-registry": registry_faults.fail_registry,
    "trickle": faults.connected("trickle"),
    "hang": faults.connected("hang"),
    "cut": faults.connected("cut"),
    "step-clock": faults.step_clock,
    "second-driver": faults.second_driver,
    "reset-commits": operations.reset_commits,
    "replay-letters": operations.replay_letters,
    "rebalance": operations.rebalance,
}
