"""What people do to the commits of a query: `keyrange commits reset`, `deadletters replay`."""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Collection, Iterable
from contextlib import redirect_stdout
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from keyrange.cli.commits.commit_source import OfSourceShown
from keyrange.cli.commits.reset import reset
from keyrange.cli.render import OutputFormat
from keyrange.errors import KeyrangeError
from keyrange.individual_commits.table.commit_admin import open_commits
from keyrange.individual_commits.table.commit_schema import commits_of
from keyrange.individual_commits.table.dead_letter_replay import replay_dead_letters
from keyrange.model.offsets import TopicPartition
from simulation.faults import Crash
from simulation.kinds import COMMITS
from simulation.topics import Place, places_in

if TYPE_CHECKING:
    from simulation.world import World


class ByHand:
    """What was asked for. `again`: how often more each record may be there; `given_up`: those that
    need not be there at all."""

    def __init__(self, world: World, random: Random, state_directory: str = "") -> None:
        """`state_directory`: of a query that keeps state."""
        self._world, self._random = world, random
        self._state = state_directory
        self.again: Counter[Place] = Counter()
        self.given_up: set[Place] = set()
        # How often a record was settled when it was asked for again.
        self._asked: dict[Place, int] = {}

    def is_done(self, settled: Counter[Place], late: Collection[Place]) -> bool:
        """Whether everything that was asked for again was done again, but records that were `late`
        when they came first."""
        return not self._left(settled, late)

    def check_done(self, settled: Counter[Place], late: Collection[Place]) -> None:
        left = self._left(settled, late)
        assert not left, f"asked for again and not done again: {left[:10]}"

    def _left(self, settled: Counter[Place], late: Collection[Place]) -> list[Place]:
        excused = self.given_up | self._world.topics.gone | {*late}
        return sorted(
            at for at, before in self._asked.items() if settled[at] <= before and at not in excused
        )

    def reset(self, settled: Counter[Place], is_open: bool) -> None:
        """Set the committed offset of one partition, back or forward. `settled`: how often each
        record is settled now; `is_open`: a batch is planned and not committed."""
        states = self._states()
        if not states:
            return
        at = self._random.choice(sorted(states))
        state = states[at]
        back = self._random.random() < 0.7
        to = self._random.randint(0, state.committed if back else state.position)
        redo = self._random.random() < 0.5
        log = self._world.topics.logs[at]
        if self._state and self._random.random() < 0.7:
            # State goes back to where all before was done and nothing behind.
            to = self._random.choice(self._positions(at))
        # What is gone cannot be asked for.
        to, log_end = min(max(to, log.start), state.position), log.end
        text = io.StringIO()
        option = [f"stateDirectory={self._state}"] if self._state else None
        try:
            with redirect_stdout(text):
                reset(
                    COMMITS,
                    topic=at.topic,
                    partition=at.partition,
                    to=str(to),
                    why="simulated",
                    redo=redo,
                    who="somebody",
                    confirm=True,
                    of=OfSourceShown(output=OutputFormat.JSON, option=option),
                )
        except (KeyrangeError, Crash) as failure:
            self._world.faults.note(f"commits reset of {at} to {to}: {failure}")
            # It may have been written.
            self._ask(self._within(at, [[0, log_end]]), None)
            if not (redo or back):
                self.given_up.update(self._within(at, [[0, to]]))
            return
        [row] = json.loads(text.getvalue())["partitions"]
        self._world.faults.note(f"commits reset: {row}")
        self._ask(self._within(at, row["again"]), settled)
        if is_open:
            # What the batch has handed out of keys that were rewound comes again too.
            self._ask(self._within(at, [[to, log_end]]), None)
        given_up = [[each, each + 1] for each in row["given_up"]]
        self.given_up.update(self._within(at, [*given_up, *row["passed_over"]]))

    def replay(self, settled: Counter[Place]) -> None:
        """Dead letters are worked on again."""
        before = self._letters("dead") - self._letters("replayed")
        if not before and not self._letters("timer"):
            return
        try:
            count = replay_dead_letters(COMMITS, who="somebody", state_directory=self._state)
        except (KeyrangeError, Crash) as failure:
            self._world.faults.note(f"deadletters replay: {failure}")
            self._ask({Place(*each[:4]) for each in before}, None)
            return
        taken = self._letters("replayed") & before
        self._world.faults.note(f"deadletters replay: {count} of {len(before)}")
        self._ask({Place(*each[:4]) for each in taken}, settled)

    def _ask(self, places: Iterable[Place], settled: Counter[Place] | None) -> None:
        for each in places:
            self.again[each] += 1
            if settled is not None:
                self._asked[each] = settled[each]

    def _positions(self, at: TopicPartition) -> list[int]:
        """Where the commits of a partition that is known stand."""
        rows = self._world.table(COMMITS).rows()
        sources = rows.column("source_id")
        return [
            commit.states[at].position
            for source in sorted(set(sources.to_pylist()))
            for commit in commits_of(rows.filter(pc.equal(sources, source)), source)
            if at in commit.states
        ]

    def _states(self) -> dict[TopicPartition, Any]:
        if not self._world.table(COMMITS).versions:
            return {}
        try:
            found = open_commits(COMMITS, "", "", {}).table.known().states
        except (KeyrangeError, Crash):
            return {}
        topics = self._world.topics
        return {
            at: each
            for at, each in found.items()
            if at in topics.logs and each.topic_id in ("", topics.ids[at.topic])
        }

    def _within(self, at: TopicPartition, ranges: Iterable[Iterable[int]]) -> set[Place]:
        log = self._world.topics.logs.get(at)
        return {
            each
            for begin, end in ranges
            for each in (places_in(at, log) if log else ())
            if begin <= each.offset < end
        }

    def _letters(self, kind: str) -> set[tuple[Any, ...]]:
        """Dead letters, each by its place and the batch that it is of."""
        return {(*place, *of) for place, of in letters(self._world, kind)}


def letters(world: World, kind: str = "dead") -> list[tuple[Place, tuple[str, int]]]:
    """The dead letters, or what was noted of those that were replayed: place, source and batch."""
    table = world.table(f"{COMMITS}_dead_letters")
    if not table.versions:
        return []
    names = ["kind", "topic", "partition", "offset", "topic_id", "source_id", "batch_id"]
    return [
        (
            Place(*(row[name] for name in names[1:4]), world.topics.generation_of(row["topic_id"])),
            (row["source_id"], row["batch_id"]),
        )
        for row in table.rows().select(names).to_pylist()
        if row["kind"] == kind
    ]
