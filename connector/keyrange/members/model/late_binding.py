"""Late binding: which task reads which portions of a batch, decided when the tasks ask.

Spark places the tasks of a Python source wherever a core is free. So a task is planned without
anything to read, and asks when it runs: for a portion of its own slot, and when that is read for
the next one, until there is nothing left for it. What a task was given is kept, in its order: an
attempt that is made again, or twice at once, is given the same.

Every portion is given to one task. A task is let go while portions are left only if another task
is still to ask for them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

NO_SLOT = ""
# Of the time that others wait for a slot's tasks.
_STANDBY_SHARE: Final = 0.1

Standbys = Mapping[str, Collection[str]]


@dataclass(frozen=True, slots=True)
class Give:
    """Read this portion, then ask again."""

    portion: int


@dataclass(frozen=True, slots=True)
class NoMoreWork:
    """There is nothing more to read for this task."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Ask again in `pause_ms`."""

    pause_ms: int


@dataclass(frozen=True, slots=True)
class Refuse:
    """What is left belongs to `slots`, which are there, and no task of theirs comes for it."""

    slots: tuple[str, ...]


Answer = Give | NoMoreWork | Wait | Refuse


@dataclass(frozen=True, slots=True)
class PinRule:
    """How strictly portions are kept for their slot: with `strict` they are read there only, else
    elsewhere after `wait_ms`, and after a tenth of that by a slot that stands by for one from which
    no task has come: it has what they take. `pause_ms` is how long a task that waits is silent at
    least, and `pause_per_task_ms` how long for each task of the batch that is not done: however
    many tasks there are, their questions come at a rate that the planning process can answer beside
    its own work."""

    strict: bool = False
    wait_ms: int = 3000
    pause_ms: int = 50
    pause_per_task_ms: float = 2.0


@dataclass(slots=True)
class _Task:
    """What a task was given so far; `slot` None before it asks for the first time."""

    given: list[int] = field(default_factory=list)
    ended: bool = False
    slot: str | None = None
    # Since when its own slot has nothing left for it.
    idle_since_ms: int | None = None


@dataclass(frozen=True, slots=True)
class WorkUnitCounts:
    """How many portions were read by their slot's tasks, by others in its place, by whoever was
    free because nobody holds their slot, and by the standby of a slot that is away."""

    own: int
    foreign: int
    unowned: int
    standby: int = 0


class Binding:
    """The portions of one plan, and who was given which.

    `portions` are the slots that they belong to, in the order in which they are to be read;
    `present` the slots that somebody holds: portions of others are anybody's. `awaited` are those
    of them that may be held again, as where executors have just begun: who of them has not come
    when `wait_ms` are over does not come. `owners` are the slots whose key ranges the portions are
    of, where others stand by for some of them, and `standbys` all that stand by for a slot. Times
    are those of any clock that does not go back.
    """

    def __init__(
        self,
        portions: Sequence[str],
        present: Collection[str],
        tasks: int,
        rule: PinRule,
        awaited: Collection[str] = (),
        owners: Sequence[str] = (),
        standbys: Standbys = MappingProxyType({}),
    ) -> None:
        if portions and tasks < 1:
            raise ValueError("without a task nothing would be read")
        self._portions = tuple(portions)
        self._owners = tuple(owners) or self._portions
        self._present = frozenset(present)
        self._awaited = set(awaited)
        self._standbys = standbys
        self._rule = rule
        self._tasks = [_Task() for _ in range(tasks)]
        # How many of them have not ended.
        self._open = tasks
        self._left: dict[str, deque[int]] = {}
        for number, slot in enumerate(portions):
            owner = slot if slot in self._present else NO_SLOT
            self._left.setdefault(owner, deque()).append(number)
        # How many portions nobody was given yet.
        self.left = len(self._portions)
        self._slot_of: dict[int, str] = {}

    def counts(self) -> WorkUnitCounts:
        own = foreign = unowned = standby = 0
        for portion, reader in self._slot_of.items():
            wanted = self._portions[portion]
            if reader == self._owners[portion]:
                own += 1
            elif reader == wanted or reader in self._of(wanted):
                standby += 1
            elif wanted in self._present:
                foreign += 1
            else:
                unowned += 1
        return WorkUnitCounts(own, foreign, unowned, standby)

    def heard(self) -> tuple[frozenset[str], frozenset[str]]:
        """The slots that portions are for, and those whose tasks have asked."""
        asked = (task.slot for task in self._tasks)
        return frozenset(self._portions), frozenset(slot for slot in asked if slot)

    def ask(self, number: int, position: int, slot: str, now_ms: int) -> Answer:
        """What the task reads as its `position`-th portion, counted from 0, where it runs in
        `slot`, NO_SLOT for none.

        Raises ValueError for a task that there is not, or a position that it cannot be at.
        """
        if not 0 <= number < len(self._tasks):
            raise ValueError(f"there is no task {number}")
        task = self._tasks[number]
        if position < len(task.given):
            return Give(task.given[position])
        if position > len(task.given):
            raise ValueError(f"task {number} is at {len(task.given)}, and not at {position}")
        if task.ended:
            return NoMoreWork()
        task.slot = slot
        self._awaited.discard(slot)
        for owner in (slot, NO_SLOT):
            if self._left.get(owner):
                return self._give(task, owner)
        return self._without_own(task, now_ms)

    def _give(self, task: _Task, owner: str) -> Give:
        portion = self._left[owner].popleft()
        self.left -= 1
        assert task.slot is not None
        self._slot_of[portion] = task.slot
        task.given.append(portion)
        task.idle_since_ms = None
        return Give(portion)

    def _without_own(self, task: _Task, now_ms: int) -> Answer:
        """What a task does for whom only others' portions are left."""
        if not self.left:
            return self._end(task)
        if task.idle_since_ms is None:
            task.idle_since_ms = now_ms
        has_others = self._open > 1
        left_ms = task.idle_since_ms + self._rule.wait_ms - now_ms
        waited, wait = left_ms <= 0, Wait(self._pause_ms(left_ms))
        late = [slot for slot in self._awaited if self._left.get(slot)]
        if late:
            if not waited:
                return wait
            return self._give(task, max(late, key=lambda slot: (len(self._left[slot]), slot)))
        if self._rule.strict:
            if task.slot == NO_SLOT and not waited:
                # Its executor has begun this moment, and is about to get its slot.
                return wait
            if has_others:
                return self._end(task)
            if waited:
                return Refuse(tuple(sorted(slot for slot, left in self._left.items() if left)))
            return wait
        if not waited and has_others:
            stood_for = self._stood_for(task)
            if not stood_for or left_ms > self._rule.wait_ms * (1 - _STANDBY_SHARE):
                return wait
            return self._give(task, min(stood_for))
        return self._give(task, max(self._left, key=lambda slot: (len(self._left[slot]), slot)))

    def _stood_for(self, task: _Task) -> list[str]:
        """The slots that a task's own stands by for, and from which none has come for what is
        left."""
        came = {each.slot for each in self._tasks}
        left = [slot for slot, portions in self._left.items() if portions]
        return [each for each in left if each not in came and task.slot in self._of(each)]

    def _of(self, slot: str) -> Collection[str]:
        """Who stands by for it."""
        return self._standbys.get(slot, ())

    def _end(self, task: _Task) -> NoMoreWork:
        task.ended = True
        self._open -= 1
        return NoMoreWork()

    def _pause_ms(self, left_ms: int) -> int:
        """How long a task is silent of the `left_ms` that it is to wait."""
        rule = self._rule
        return max(min(round(self._open * rule.pause_per_task_ms), left_ms), rule.pause_ms)


def count_tasks(portions: Sequence[str], capacities: Mapping[str, float]) -> int:
    """How many tasks a plan gets: one for every core of the slots, and not more than portions; but
    one for every slot, since Spark deals them out to executors in turn, and of fewer tasks none may
    come to where a portion is to be read."""
    cores = sum(max(round(each), 1) for each in capacities.values())
    return max(min(cores, len(portions)), len(capacities), 1) if portions else 0
