"""What tasks are told of the run that they belong to: where its binding service listens, and which
key ranges the slots have in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Address:
    """Where the service of a run listens, and the secret of that run."""

    host: str
    port: int
    secret: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Greeting:
    """What tasks are told of the run that they belong to: `run` is its name."""

    address: Address
    run: str


@dataclass(frozen=True, slots=True)
class SlotRanges:
    """What a run says of a slot: its ranges in an epoch, and the run and the epoch since which it
    has had them without a break."""

    run: str
    epoch: int
    since: tuple[str, int]
    ranges: Mapping[str, Mapping[str, list[list[int]]]]
