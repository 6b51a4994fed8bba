"""A schedule of faults from a seed, and its form in a file."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import NamedTuple

from nemesis.kinds import KINDS

# From one fault to the next, in parts of the usual time: some meet a query that has just begun
# again, some one at rest.
_GAP = (0.25, 1.75)
# So long after its end a fault explains the end of a driver.
_EXPLAINS_S = 90.0
# Close to what clients wait in all for a broker, 60 s: after a fault it takes a while to come back.
_CUT_OFF_S = 40.0
# One that has not reached any broker yet gives up after 8 s: most often it was told a wrong one. A
# driver takes a minute and more to come so far where others have the machine.
_FIRST_CONTACT_S = 6.0
_YOUNG_S = 120.0
# Clients ask for so long for a topic that is not there.
_TOPIC_AWAY_S = 3.0


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault `at_s` seconds from when the query runs, healed `hold_s` seconds later. `pick` in
    [0, 1) says which victim, and whatever else the fault has to choose."""

    at_s: float
    kind: str
    hold_s: float
    pick: float


class Met(NamedTuple):
    """A fault that was done, from when until when; for ever as long as it is not healed."""

    fault: Fault
    from_s: float
    until_s: float


def explained(met: Sequence[Met], now_s: float, began_s: float) -> frozenset[str]:
    """The ends of a driver, begun at `began_s`, that the faults of the last while may have brought
    about."""
    recent = [each for each in met if now_s < each.until_s + _EXPLAINS_S]
    fenced = [each for each in met if KINDS[each.fault.kind].fences and began_s < each.from_s]
    ends = frozenset().union(*(KINDS[each.fault.kind].ends for each in (*recent, *fenced)))
    cut_off_s = sum(
        max(min(each.until_s, now_s) - max(each.from_s, began_s, now_s - _EXPLAINS_S), 0.0)
        for each in recent
        if KINDS[each.fault.kind].cuts_off
    )
    if any(
        each.fault.kind == "recreate-topic"
        and min(each.until_s, now_s) - each.from_s > _TOPIC_AWAY_S
        for each in recent
    ):
        ends |= {"UNKNOWN_TOPIC_OR_PARTITION"}
    # Clients give up when no broker has answered for so long.
    patience_s = _FIRST_CONTACT_S if now_s - began_s < _YOUNG_S else _CUT_OFF_S
    return ends | {"BROKER_UNREACHABLE", "REQUEST_TIMED_OUT"} if cut_off_s > patience_s else ends


@dataclass(frozen=True, slots=True)
class Schedule:
    """All that a run depends on, but for the machine."""

    seed: int
    mode: str
    seconds: float
    faults: tuple[Fault, ...]

    def written(self) -> str:
        return json.dumps(asdict(self), indent=1)


def read_schedule(text: str) -> Schedule:
    document = json.loads(text)
    faults = tuple(Fault(**each) for each in document.pop("faults"))
    return Schedule(**document, faults=faults)


def make_schedule(
    seed: int, mode: str, seconds: float, kinds: Sequence[str], every_s: float = 8.0
) -> Schedule:
    """Faults of these kinds about `every_s` until `seconds`: each once before any comes again."""
    chance = random.Random(f"{seed} {mode}")
    faults: list[Fault] = []
    left: list[str] = []
    at_s = chance.uniform(1.0, 4.0)
    while kinds and at_s < seconds:
        if not left:
            left = list(kinds)
            chance.shuffle(left)
        kind = left.pop()
        hold_s = chance.uniform(*KINDS[kind].hold_s)
        faults.append(Fault(round(at_s, 2), kind, round(hold_s, 2), round(chance.random(), 6)))
        at_s += every_s * chance.uniform(*_GAP)
    return Schedule(seed, mode, seconds, tuple(faults))
