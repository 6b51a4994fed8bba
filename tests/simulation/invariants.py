"""What holds at the end of every simulation, and along the way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from keyrange.individual_commits.model.auditing import audit
from keyrange.individual_commits.table.commit_schema import commits_of
from keyrange.members.table.assignment_schema import Stored, read_rows
from keyrange.model.checkpoint import read_checkpoint
from keyrange.model.offsets import TopicPartition
from simulation.by_hand import letters
from simulation.kinds import COMMITS
from simulation.topics import Place

if TYPE_CHECKING:
    from simulation.by_hand import ByHand
    from simulation.query import Checkpoint
    from simulation.store import Table
    from simulation.world import World


def each_once(
    produced: Iterable[Place],
    settled: Iterable[Place],
    accounted: Collection[Place] = (),
    again: Iterable[Place] = (),
) -> None:
    """Each record is in the sink once or in the dead letters once, and once more for each time that
    somebody asked for it; those that are `accounted` for may be lost."""
    wanted, found = Counter(produced), Counter(settled)
    lost = sorted((wanted - found).keys() - set(accounted))
    assert not lost, f"lost: {lost[:10]}"
    more = sorted((found - wanted - Counter(again)).elements())
    assert not more, f"doubled or foreign: {more[:10]}"


def keys_in_order(rows: Iterable[tuple[Place, str | None]]) -> None:
    """Each key's records came in the order of their offsets; those without a key have none."""
    last: dict[tuple[str, int, int, str], int] = {}
    for (topic, partition, offset, generation), key in rows:
        if key is not None:
            before = last.get((topic, partition, generation, key), -1)
            assert offset > before, f"{key} of {topic}-{partition}: {offset} came after {before}"
            last[topic, partition, generation, key] = offset


def never_back(
    ends: Iterable[tuple[Mapping[str, str], Mapping[TopicPartition, int]]],
    fell: Collection[TopicPartition] = (),
) -> None:
    """No partition's position falls, nor is one forgotten, but where its topic is another one, or
    where it was said that it `fell`. Each end has topic ids and positions."""
    last: dict[TopicPartition, int] = {}
    ids: dict[str, str] = {}
    for topic_ids, positions in ends:
        for partition, before in last.items():
            topic = partition.topic
            after = positions.get(partition, -1)
            if topic_ids.get(topic, "") == ids.get(topic, "") and partition not in fell:
                assert after >= before, f"{partition} went from {before} back to {after}"
        ids, last = dict(topic_ids), dict(positions)


def agrees(table: Table) -> None:
    """The commits of each source contradict themselves in nothing."""
    if not table.versions:
        return
    rows = table.rows()
    for source in sorted(set(rows.column("source_id").to_pylist())):
        found = list(audit(commits_of(of_source(rows, source), source)))
        assert not found, f"commits of {source}: {found[:5]}"


def all_have_ranges(table: Table, executors: Iterable[str]) -> None:
    """Everybody who is there has key ranges, and nobody else."""
    [last] = [each for each in read_rows(table.rows(), "") if isinstance(each, Stored)][-1:]
    slots = last.assignment.slots if last.assignment is not None else ()
    assert set(slots) == set(executors), f"{sorted(slots)} have ranges, there are {executors}"


def check(
    world: World, checkpoints: Sequence[Checkpoint], by_hand: ByHand, late: Collection[Place] = ()
) -> None:
    """All of it. Records that are `late` may be lost."""
    produced = [at for at, _ in world.topics.produced()]
    found = list(settled(world))
    may_lack = accounted(world, checkpoints, by_hand).union(late)
    each_once(produced, found, may_lack, by_hand.again.elements())
    by_hand.check_done(Counter(found), late)
    assert not world.said.wrong, world.said.wrong
    # A record that somebody had handed out again has no place in the order of its key.
    keys_in_order(each for each in sunk(world) if not by_hand.again[each[0]])
    for checkpoint in checkpoints:
        ends = [read_checkpoint(each) for each in checkpoint.ends]
        never_back(((each.topic_ids, each.known) for each in ends), world.said.fell)
    agrees(world.table(COMMITS))


def sunk(world: World) -> Iterator[tuple[Place, str | None]]:
    return ((Place(*row[:4]), row[4]) for row in world.sink.rows)


def settled(world: World) -> Iterator[Place]:
    """What is in the sink, and the dead letters."""
    yield from (place for place, _ in sunk(world))
    yield from (place for place, _ in letters(world))


def accounted(world: World, checkpoints: Sequence[Checkpoint], by_hand: ByHand) -> set[Place]:
    """The records that need not be there: somebody gave them up by hand, or they are gone, and that
    was said, or happened before the query began."""
    early = _before(checkpoints[0], world)
    gone = {at for at in world.topics.gone if world.said.knows(at) or early(at)}
    return gone | by_hand.given_up


def _before(checkpoint: Checkpoint, world: World) -> Callable[[Place], bool]:
    """Whether a record was gone when the query first knew of it, or began to read its topic."""
    first: dict[str, int] = {}
    begun: dict[tuple[str, int], int] = {}
    for number, document in enumerate(checkpoint.ends):
        end = read_checkpoint(document)
        for topic, topic_id in end.topic_ids.items():
            first.setdefault(topic, world.topics.generation_of(topic_id))
        if not number:
            begun = {(place.topic, place.partition): at for place, at in end.initial.items()}

    def early(at: Place) -> bool:
        generation = first.get(at.topic, at.generation)
        is_first = at.generation == generation
        return at.generation < generation or (is_first and at.offset < begun.get(at[:2], 0))

    return early


def of_source(rows: pa.Table, source: str) -> pa.Table:
    return rows.filter(pc.equal(rows.column("source_id"), source))
