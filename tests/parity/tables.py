"""Short forms that the tables of scenarios share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from parity.harness import Side
from parity.outcome import Scenario
from parity.stage import SINCE_MS

Play = Callable[[Side], None]

EARLIEST = {"startingOffsets": "earliest"}
HEADERS = {"includeHeaders": "true"}
COMMITTED = {"kafka.isolation.level": "read_committed"}
UNCOMMITTED = {"kafka.isolation.level": "read_uncommitted"}
ONE_EACH = {"bytesPerTask": "0"}

_STRATEGIES = {"subscribe", "assign", "subscribePattern"}


def at(topic: str, *positions: int) -> str:
    """Offsets or times of partitions 0, 1, ... as the options take them."""
    inner = ",".join(f'"{number}":{where}' for number, where in enumerate(positions))
    return f'{{"<{topic}>":{{{inner}}}}}'


def time_at(topic: str, *after_ms: int) -> str:
    return at(topic, *(SINCE_MS + each for each in after_ms))


def limit(count: int) -> dict[str, str]:
    return {**EARLIEST, "maxOffsetsPerTrigger": str(count)}


def with_long(long: AbstractSet[str], scenarios: Sequence[Scenario]) -> tuple[Scenario, ...]:
    """The scenarios, of which those named `long` are left to the long form: another one that the
    ordinary form plays takes the same way through keyrange, or a longer one."""
    if unknown := long - {one.name for one in scenarios}:
        raise ValueError(f"no such scenario: {sorted(unknown)}")
    return tuple(replace(one, slow=one.slow or one.name in long) for one in scenarios)


def read(side: Side) -> None:
    side.read()


def drain(side: Side) -> None:
    side.drain()


def batch(
    topic: str, name: str, options: Mapping[str, str], expect: str, **more: object
) -> Scenario:
    """A batch read of a shared topic; options may name another strategy than subscribe."""
    fields = {"play": read, "topics": (topic,), **more}
    return Scenario(name=name, options=_reading(topic, options), expect=expect, **fields)


def stream(
    topic: str,
    name: str,
    options: Mapping[str, str],
    expect: str,
    play: Play = drain,
    **more: object,
) -> Scenario:
    """A stream of a shared topic, with Trigger.AvailableNow unless it is played otherwise."""
    fields = {"play": play, "topics": (topic,), **more}
    return Scenario(
        name=f"stream: {name}", options=_reading(topic, options), expect=expect, **fields
    )


def own(
    name: str,
    options: Mapping[str, str],
    expect: str,
    play: Play,
    *topics: str,
    kind: str = "stream",
    **more: object,
) -> Scenario:
    """A scenario with topics of each side, the first of them `ten`."""
    return Scenario(
        name=f"{kind}: {name}",
        play=play,
        own=("ten", *topics),
        options=_reading("ten", options),
        expect=expect,
        **more,
    )


def _reading(topic: str, options: Mapping[str, str]) -> dict[str, str]:
    if _STRATEGIES & options.keys():
        return dict(options)
    return {"subscribe": f"<{topic}>", **options}
