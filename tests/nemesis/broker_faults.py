"""Faults of brokers and of topics, and what each takes away."""

from __future__ import annotations

import time

from kafka import TopicPartition
from kafka.errors import KafkaError

from keyrange.embedded.broker import BrokerNode
from nemesis.driver import Supervisor
from nemesis.facts import Gone
from nemesis.faults import Heal, Missed
from nemesis.schedule import Fault
from nemesis.tables import committed_offsets
from nemesis.world import World

_FAR = 1 << 62
_PARTITIONS_MAX = 8
# Others lead the partitions of a broker that is away within this.
_LEADERS_S = 20


def _node(world: World, fault: Fault) -> BrokerNode:
    if not all(node.running for node in world.cluster.nodes):
        raise Missed("a broker is away already")
    return world.cluster.nodes[int(fault.pick * len(world.cluster.nodes))]


def kill_broker(world: World, supervisor: Supervisor, fault: Fault) -> Heal:
    node = _node(world, fault)
    node.kill()
    world.reconnect()
    return node.start


def restart_broker(world: World, supervisor: Supervisor, fault: Fault) -> None:
    node = _node(world, fault)
    node.stop()
    node.start()
    world.reconnect()


def move_leader(world: World, supervisor: Supervisor, fault: Fault) -> None:
    """Each partition is led by another of its replicas."""
    _node(world, fault)
    admin = world.topics.admin
    [described] = admin.describe_topics([world.topic])
    turned = {}
    for each in described["partitions"]:
        others = [node for node in each["replica_nodes"] if node != each["leader_id"]]
        place = TopicPartition(world.topic, each["partition_index"])
        turned[place] = [*others, each["leader_id"]]
    admin.alter_partition_reassignments(turned)
    numbers = [place.partition for place in turned]
    admin.elect_leaders(0, {world.topic: numbers}, raise_errors=False)


def move_coordinator(world: World, supervisor: Supervisor, fault: Fault) -> Heal:
    """The broker ends that coordinates the transactions of a sender, killed or in order, so another
    one does until it is back, or for good."""
    _node(world, fault)
    listed = world.topics.admin.list_transactions()
    own = [
        (each.transactional_id, broker)
        for broker, transactions in listed.items()
        for each in transactions
        if each.transactional_id.startswith("keyrange:")
    ]
    if not own:
        raise Missed("nobody has sent anything")
    _, coordinator = sorted(own)[int(fault.pick * len(own))]
    [node] = (each for each in world.cluster.nodes if each.node_id == coordinator)
    if int(fault.pick * 1_000) % 2:
        node.kill()
    else:
        node.stop()
    world.reconnect()
    return node.start


def unclean_election(world: World, supervisor: Supervisor, fault: Fault) -> Heal:
    """A follower is away while its leader goes on; then the leader dies, and the follower comes
    back and leads, without what it has missed."""
    _node(world, fault)
    [described] = world.topics.admin.describe_topics([world.topic])
    pairs = [(p["leader_id"], p["replica_nodes"]) for p in described["partitions"]]
    leader, replicas = pairs[int(fault.pick * len(pairs))]
    follower = next(node for node in replicas if node != leader)
    by_id = {node.node_id: node for node in world.cluster.nodes}
    ends = _ends(world)
    by_id[follower].kill()
    world.reconnect()

    def heal() -> None:
        shared = {
            p["partition_index"]
            for p in described["partitions"]
            if set(p["replica_nodes"]) == {leader, follower}
        }
        later = _ends(world)
        by_id[leader].kill()
        world.unsure_at_cuts |= world.feeder.unsure
        by_id[follower].start()
        time.sleep(4)
        by_id[leader].start()
        world.reconnect()
        until_n = world.feeder.next_n
        for number in shared:
            # Some were acknowledged between the look and the kill.
            until = later[number] + 10_000
            world.gone.append(Gone(fault.kind, number, ends[number] - 1_000, until, until_n))

    return heal


def _ends(world: World) -> dict[int, int]:
    """Where the logs of partitions end. One that was led by who is away is asked for once another
    leads it: a fault that gives up leaves brokers behind that nobody starts."""
    until_s = time.monotonic() + _LEADERS_S
    while True:
        try:
            return {number: end for number, (_, end) in world.topics.offsets(world.topic).items()}
        except KafkaError:
            if time.monotonic() > until_s:
                raise
            world.reconnect()
            time.sleep(0.5)


def recreate_topic(world: World, supervisor: Supervisor, fault: Fault) -> Heal:
    until = world.feeder.next_n
    world.topics.delete_topic(world.topic)

    def heal() -> None:
        # What was sent meanwhile went to either of the two.
        until_n = max(until, world.feeder.next_n)
        world.create_topic()
        world.gone.append(Gone(fault.kind, -1, 0, _FAR, until_n))

    return heal


def add_partition(world: World, supervisor: Supervisor, fault: Fault) -> None:
    if world.partitions >= _PARTITIONS_MAX:
        raise Missed("there are partitions enough")
    world.topics.add_partitions(world.topic, world.partitions + 1)
    world.feeder.add_partition(world.partitions)
    world.partitions += 1


def delete_done(world: World, supervisor: Supervisor, fault: Fault) -> None:
    """Retention behind the committed position takes nothing away that is not done. A dead letter
    that is replayed afterwards has no record any more."""
    done = {number: at for number, at in committed_offsets(world).items() if at > 0}
    if not done:
        raise Missed("nothing is done")
    for number, at in done.items():
        world.deleted.append(Gone(fault.kind, number, 0, at, world.feeder.next_n))
    _delete(world, done)


def delete_ahead(world: World, supervisor: Supervisor, fault: Fault) -> None:
    """Retention goes past the position in one partition: what is not done there is gone."""
    ends = world.topics.offsets(world.topic)
    number = sorted(ends)[int(fault.pick * len(ends))]
    end = ends[number][1]
    world.gone.append(Gone(fault.kind, number, 0, end, world.feeder.next_n))
    _delete(world, {number: end})


def _delete(world: World, before: dict[int, int]) -> None:
    try:
        world.topics.delete_records(world.topic, before)
    except KafkaError as failure:
        raise Missed(f"the broker took no such request: {failure!r}") from None
