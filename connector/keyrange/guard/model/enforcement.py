"""Slowing the producers of a cluster down by client quotas, and letting them go again.

A pure machine. It looks at the quotas as they are, with all that was written beside them
(`quota_entities.py`), and says what to alter. What it has to know of the past stands in the quotas:
who dies at any point leaves nothing that the next look of another guard, or of a reaper, does not
understand. In memory are only times, and which lease is its own.

For whoever drives it, again and again, about once a second or as often as `next_look_ms` says:
read the clock, describe the quotas, `step` with a Look at that time, send what comes back one after
the other, and `step` with Acked or Refused after each. What comes behind a refused one is dropped.
Before a request is sent, the clock is read again: after `until_ms` it may not be sent any more.
Times are ms of a monotonic clock that goes on while the machine sleeps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from keyrange.guard.model import quota_entities as entities
from keyrange.guard.model.dry_run import Imagined
from keyrange.guard.model.enforcement_states import IDLE, TRANSITIONS, GuardEvent, GuardState
from keyrange.guard.model.lease import REMOVED, Lease, LeaseWatch, is_held, next_epoch, read_lease
from keyrange.guard.model.quota_entities import EVERY_CLIENT, RATE, Hold, QuotaEntity, Quotas
from keyrange.guard.model.quota_ramp import WINDOW_MS, stepped
from keyrange.guard.model.quota_requests import LATENESS, RECORDS_MAX, Alter, Parcel, packed
from keyrange.guard.model.throttle_factor import OPEN_FACTOR, Factor, ThrottleState

# Of the lease's time: how often it is renewed, and how long it is held without an answer.
_RENEWALS: Final = 5
_PATIENCE: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Rates are bytes a second and broker. `stamp` are seconds since 1970, and `chance` any number,
    that no other guard is likely to have. After `release_ms` of rising all is let go."""

    floor: int
    base: int
    stamp: int
    chance: int
    excluded: frozenset[str] = frozenset()
    window_ms: int = WINDOW_MS
    lease_ms: int = 60_000
    release_ms: int = 60_000
    dry_run: bool = True
    records_max: int = RECORDS_MAX


@dataclass(frozen=True, slots=True)
class Look:
    """The quotas as they are, and the factor that holds."""

    quotas: Quotas
    factor: Factor


@dataclass(frozen=True, slots=True)
class Report(Alter):
    """What would be one, in a dry run: never to be sent."""


@dataclass(frozen=True, slots=True)
class Acked:
    command: Alter


@dataclass(frozen=True, slots=True)
class Refused:
    """It was refused, not sent in time, or nobody knows."""

    command: Alter


@dataclass(frozen=True, slots=True)
class Stop:
    """Let all go, and do nothing more: until the stage is one of IDLE."""


Event = Look | Acked | Refused | Stop


@dataclass(frozen=True, slots=True, kw_only=True)
class EnforcementState:
    """`epoch` 0 stands for no lease, and the times are of its own. `exposed` are excluded users
    that would be slowed, which is why nothing is held; `yielded` what people have changed."""

    stage: GuardState = GuardState.UNKNOWN
    epoch: int = 0
    is_confirmed: bool = False
    counter: int = 0
    acked_counter: int = 0
    sent_ms: int = 0
    acked_ms: int = 0
    # When rates fell or rose last, and since when they rise.
    moved_ms: int = 0
    has_moved: bool = False
    # Whether what an earlier life has held stays as it is, until the factor says why not.
    is_adopted: bool = False
    rising_ms: int | None = None
    last_epoch: int = 0
    watch: LeaseWatch = field(default_factory=LeaseWatch)
    is_stopping: bool = False
    exposed: tuple[str, ...] = ()
    yielded: tuple[QuotaEntity, ...] = ()
    imagined: Imagined = field(default_factory=Imagined)


def step(
    settings: Settings, state: EnforcementState, event: Event, now_ms: int
) -> tuple[EnforcementState, tuple[Alter, ...]]:
    """The next state, and what to send in this order."""
    match event:
        case Look():
            look = _imagined if settings.dry_run else _look
            return look(settings, state, event, now_ms)
        case Acked(command):
            acked = max(state.acked_counter, command.counter)
            state = replace(state, acked_counter=acked, acked_ms=state.sent_ms)
        case Refused():
            pass
        case Stop():
            return replace(state, is_stopping=True), ()
    # From when it is known what the brokers have: they may have had it only then.
    return (replace(state, moved_ms=now_ms) if state.has_moved else state), ()


def next_look_ms(settings: Settings, state: EnforcementState) -> int:
    """How long a guard may wait for its next look."""
    is_taking = state.stage is GuardState.TAKING and not state.is_confirmed
    if is_taking or state.stage is GuardState.RELEASING:
        return 500
    return min(settings.window_ms, settings.lease_ms // _RENEWALS) // 2


def _imagined(
    settings: Settings, state: EnforcementState, look: Look, now_ms: int
) -> tuple[EnforcementState, tuple[Alter, ...]]:
    """A look of a dry run: nothing is sent, and the next look shows it nevertheless."""
    if is_held(look.quotas):
        # Where a guard really holds, nothing is imagined.
        idle = state if state.stage in IDLE else _lost(state)
        return replace(_moved(idle, GuardEvent.FOREIGN), imagined=Imagined()), ()
    imagined = state.imagined
    seen = replace(look, quotas=imagined.seen(look.quotas))
    state, commands = _look(settings, state, seen, now_ms)
    for each in commands:
        imagined = imagined.take(each.alterations, look.quotas)
        state = replace(state, acked_counter=each.counter, acked_ms=now_ms)
    reports = tuple(Report(each.alterations, each.until_ms, each.counter) for each in commands)
    return replace(state, imagined=imagined), reports


def _look(
    settings: Settings, state: EnforcementState, look: Look, now_ms: int
) -> tuple[EnforcementState, tuple[Alter, ...]]:
    lease = read_lease(look.quotas)
    holds = entities.read_holds(look.quotas)
    state = replace(
        state,
        watch=state.watch.look(lease, now_ms),
        last_epoch=max(state.last_epoch, lease.epoch if lease else 0),
        exposed=entities.exposed(look.quotas, settings.excluded),
        yielded=tuple(entity for entity, hold in holds.items() if not hold.is_ours),
    )
    if state.stage in IDLE:
        return _idle(settings, state, look.factor, bool(lease or holds), now_ms)
    return _holding(settings, state, look, holds, now_ms)


def _idle(
    settings: Settings, state: EnforcementState, factor: Factor, is_left: bool, now_ms: int
) -> tuple[EnforcementState, tuple[Alter, ...]]:
    """Without a lease: the only thing to write is one."""
    is_blind = factor.standing is ThrottleState.UNKNOWN
    wants = factor.value < OPEN_FACTOR and not is_blind and not state.exposed
    if state.is_stopping:
        return _moved(state, GuardEvent.NOTHING), ()
    if is_left and not state.watch.is_dead(now_ms, settings.lease_ms):
        return _moved(state, GuardEvent.FOREIGN), ()
    if not is_left and not wants:
        return _moved(state, GuardEvent.BLIND if is_blind else GuardEvent.NOTHING), ()
    state = replace(
        _moved(state, GuardEvent.TAKE),
        epoch=next_epoch(state.last_epoch, settings.stamp, settings.chance),
        is_confirmed=False,
        counter=0,
        acked_counter=0,
        acked_ms=now_ms,
        rising_ms=None,
        has_moved=False,
        is_adopted=is_left,
    )
    return _send(settings, state, (), now_ms)


def _holding(
    settings: Settings,
    state: EnforcementState,
    look: Look,
    holds: dict[QuotaEntity, Hold],
    now_ms: int,
) -> tuple[EnforcementState, tuple[Alter, ...]]:
    """With a lease: is it still ours, and what are the rates to be?"""
    lease, patience_ms = state.watch.lease, settings.lease_ms // _PATIENCE
    if now_ms - state.acked_ms > patience_ms or (lease and lease.epoch > state.epoch):
        return _lost(state), ()
    is_seen = lease is not None and lease.epoch == state.epoch
    if is_seen and not state.is_confirmed:
        # Who took it at the same time may just have changed rates.
        state = replace(state, is_confirmed=True, moved_ms=now_ms)
    if not state.is_confirmed or (is_seen and lease and lease.counter < state.acked_counter):
        # What is seen is older than what was written.
        return _renewed(settings, _moved(state, GuardEvent.WAIT), now_ms)
    if lease is not None and not is_seen:
        # One that is over has written late, and may have changed rates.
        state = replace(_moved(state, GuardEvent.WAIT), moved_ms=now_ms, has_moved=True)
        return _send(settings, state, (), now_ms)
    if lease is None:
        is_done = state.stage is GuardState.RELEASING and not holds
        return (replace(_moved(state, GuardEvent.DONE), epoch=0) if is_done else _lost(state)), ()
    if _is_decided(look.factor):
        state = replace(state, is_adopted=False)
    sign, parcels = _rates(settings, state, look, holds, now_ms)
    if sign is GuardEvent.RELEASE:
        state = replace(_moved(state, sign), moved_ms=now_ms, has_moved=True)
        released = [entities.restored(hold) for hold in holds.values()]
        return _send(settings, state, released, now_ms, is_last=True)
    began_ms = now_ms if state.rising_ms is None else state.rising_ms
    state = replace(_moved(state, sign), rising_ms=began_ms if sign is GuardEvent.RISE else None)
    others = list(_given_up(settings, holds))
    if parcels:
        state = replace(state, moved_ms=now_ms, has_moved=True)
    elif not others:
        return _renewed(settings, state, now_ms)
    return _send(settings, state, [*others, *parcels], now_ms)


def _rates(
    settings: Settings,
    state: EnforcementState,
    look: Look,
    holds: dict[QuotaEntity, Hold],
    now_ms: int,
) -> tuple[GuardEvent, list[Parcel]]:
    """What is the matter with the rates, and what to write, once a window."""
    factor = OPEN_FACTOR if state.exposed else look.factor.value
    is_blind = look.factor.standing is ThrottleState.UNKNOWN
    if state.is_stopping:
        return GuardEvent.RELEASE, []
    if (is_blind or state.is_adopted) and not state.exposed:
        return GuardEvent.WAIT, []
    levels = list(_levels(settings, look.quotas, holds, factor))
    if factor >= OPEN_FACTOR:
        rising_ms = now_ms if state.rising_ms is None else state.rising_ms
        has_risen = all(each.rate == each.target for each in levels if each.hold)
        if has_risen or now_ms - rising_ms >= settings.release_ms:
            return GuardEvent.RELEASE, []
        sign, levels = GuardEvent.RISE, [each for each in levels if each.hold]
    else:
        levels = [each for each in levels if each.rate != each.target]
        sign = GuardEvent.FALL if levels else GuardEvent.REACHED
    is_time = now_ms - state.moved_ms >= settings.window_ms
    return sign, [each.written() for each in levels if is_time and each.next != each.rate]


def _is_decided(factor: Factor) -> bool:
    """Whether it says to throttle or to let go, for who does not know what was before."""
    is_known = factor.standing is not ThrottleState.UNKNOWN
    return is_known and (factor.value < OPEN_FACTOR or factor.has_recovered)


@dataclass(frozen=True, slots=True)
class _Level:
    """The rate of an entity and where it is to go; without a hold, what it is taken to be."""

    entity: QuotaEntity
    prior: float | None
    hold: Hold | None
    rate: int
    target: int

    @property
    def next(self) -> int:
        return stepped(self.rate, self.target)

    def written(self) -> Parcel:
        return entities.written(self.entity, self.prior, float(self.next))


def _levels(
    settings: Settings, quotas: Quotas, holds: dict[QuotaEntity, Hold], factor: float
) -> Iterator[_Level]:
    """Everything that limits what a client produces, in order, but what is nobody's to touch."""
    limits = {entity for entity, values in quotas.items() if RATE in values} | {EVERY_CLIENT}
    for entity in sorted(limits, key=lambda each: each.order):
        hold = holds.get(entity)
        if entity.is_reserved or entity.user in settings.excluded or (hold and not hold.is_ours):
            continue
        prior = hold.prior if hold else quotas.get(entity, {}).get(RATE)
        if prior is not None and not entities.is_rate(prior):
            continue
        # More than the base nobody sends, whatever a quota allows.
        free = settings.base if prior is None else min(int(prior), settings.base)
        if hold and hold.written:
            free = max(free, int(hold.written))
        target = free
        if factor < OPEN_FACTOR:
            target = min(free, max(settings.floor, int(factor * free)))
        rate = int(hold.written) if hold and hold.written else free
        yield _Level(entity, prior, hold, rate, target)


def _given_up(settings: Settings, holds: dict[QuotaEntity, Hold]) -> Iterator[Parcel]:
    """What people have changed, where the marker does not say so yet, and what is excluded."""
    for hold in holds.values():
        if hold.entity.user in settings.excluded:
            yield entities.restored(hold)
        elif not hold.is_ours and hold.written is not None:
            yield entities.yielded(hold)


def _moved(state: EnforcementState, sign: GuardEvent) -> EnforcementState:
    return replace(state, stage=TRANSITIONS[state.stage, sign])


def _lost(state: EnforcementState) -> EnforcementState:
    return replace(_moved(state, GuardEvent.LOST), epoch=0, is_confirmed=False)


def _renewed(
    settings: Settings, state: EnforcementState, now_ms: int
) -> tuple[EnforcementState, tuple[Alter, ...]]:
    if now_ms - state.sent_ms < settings.lease_ms // _RENEWALS:
        return state, ()
    return _send(settings, replace(state, has_moved=False), (), now_ms)


def _send(
    settings: Settings,
    state: EnforcementState,
    parcels: Iterable[Parcel],
    now_ms: int,
    is_last: bool = False,
) -> tuple[EnforcementState, tuple[Alter, ...]]:
    """Requests that renew the lease, the last one of which may remove it."""
    commands: list[Alter] = []
    requests = list(packed(parcels, settings.records_max - 2))
    until_ms = now_ms + settings.lease_ms // LATENESS
    for number, request in enumerate(requests, 1):
        counter = state.counter + number
        removes = is_last and number == len(requests)
        lease = REMOVED if removes else Lease(state.epoch, counter).alterations()
        commands.append(Alter((*lease, *request), until_ms, counter))
    state = replace(state, counter=state.counter + len(requests), sent_ms=now_ms)
    return state, tuple(commands)
