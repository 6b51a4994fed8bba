"""Guards that crash, pause and meet, requests that are lost or answered by nobody, brokers that
lag, and people who edit quotas: what is never to happen, checked at every request and after it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from brokers.quota_store import RequestRefusedError, Store, allowed, mute_ms, without_reserved
from keyrange.guard.model.enforcement import (
    Acked,
    EnforcementState,
    Look,
    Refused,
    Settings,
    Stop,
    step,
)
from keyrange.guard.model.enforcement_states import IDLE
from keyrange.guard.model.lease import LeaseWatch, is_held, read_lease
from keyrange.guard.model.quota_entities import (
    RATE,
    Alteration,
    QuotaEntity,
    exposed,
    read_holds,
)
from keyrange.guard.model.quota_ramp import floor_rate
from keyrange.guard.model.quota_requests import Alter, reap, release
from project.forms import by_form
from samples.volume_samples import factor

SECOND = 1_000
WINDOW, LEASE, MUTE, CONNECTIONS, REQUEST = 11 * SECOND, 60 * SECOND, 60 * SECOND, 2, 2**20
FLOOR = floor_rate(MUTE, CONNECTIONS, REQUEST)
BASE = 40 * FLOOR
EXCLUDED = frozenset({"tool"})
USERS, CLIENTS = ["a", "b", "tool"], ["c", "d"]
ENTITIES = [
    QuotaEntity("a", None),
    QuotaEntity("b", None),
    QuotaEntity("a", "c"),
    QuotaEntity("b", ""),
    QuotaEntity("", None),
    QuotaEntity("", "d"),
    QuotaEntity(None, "c"),
    QuotaEntity(None, ""),
    QuotaEntity("/user=é %", None),
]
OWN = QuotaEntity("tool", None)
RATES = [1, FLOOR - 1, FLOOR, FLOOR + 1, 3 * FLOOR, 10 * FLOOR, BASE, 2**53, 2**62]
# Few records a request, so that most writes take several.
RECORDS_MAX = 10


@dataclass
class Sent:
    """A request that waits to be sent, and the version that it was made from."""

    command: Alter
    version: int


@dataclass
class Guard:
    """A process: its machine, its clock, which begins anywhere, and what it is about to send."""

    settings: Settings
    offset_ms: int
    state: EnforcementState = field(default_factory=EnforcementState)
    queue: list[Sent] = field(default_factory=list)


class World(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.store = Store(RECORDS_MAX)
        self.now_ms = 0
        self.factor = factor(1.0)
        self.born = 0
        self.guards = [self.birth(), self.birth()]
        self.reaper = LeaseWatch()
        # What people have said, by entity: version and rate, None for none.
        self.said: dict[QuotaEntity, list[tuple[int, float | None]]] = {}
        self.writers: dict[int, int] = {}
        # When a rate was lowered last, and what to.
        self.lowered: dict[QuotaEntity, int] = {}
        # The version that somebody released.
        self.released = 0

    def birth(self) -> Guard:
        self.born += 1
        made = Settings(
            floor=FLOOR,
            base=BASE,
            stamp=self.born,
            chance=self.born,
            excluded=EXCLUDED,
            window_ms=WINDOW,
            lease_ms=LEASE,
            dry_run=False,
            records_max=RECORDS_MAX,
        )
        return Guard(made, self.born * 12_345)

    @initialize(rates=st.dictionaries(st.sampled_from(ENTITIES), st.sampled_from(RATES)))
    def begins(self, rates: dict[QuotaEntity, int]) -> None:
        self.edit(OWN, 2.0**60)
        for entity, rate in rates.items():
            self.edit(entity, float(rate))
        self.store.alter([Alteration(ENTITIES[0], "consumer_byte_rate", 7.0)])

    def edit(self, entity: QuotaEntity, rate: float | None) -> None:
        """Who sets what the guard has written has said nothing: it looks as the guard left it."""
        self.store.alter([Alteration(entity, RATE, rate)])
        hold = read_holds(self.store.quotas).get(entity)
        if hold is not None and hold.is_ours:
            rate = hold.prior
        self.said.setdefault(entity, [(0, None)]).append((self.store.version, rate))
        self.lowered.pop(entity, None)

    @rule(seconds=st.sampled_from([0, 1, 5, 11, 12, 31, 60, 61]))
    def passes(self, seconds: int) -> None:
        self.now_ms += seconds * SECOND

    @rule(value=st.sampled_from([0.0, 0.0, 0.5, 1.0, None]), has_recovered=st.booleans())
    def the_disks_say(self, value: float | None, has_recovered: bool) -> None:
        self.factor = factor(value, has_recovered)

    @rule(entity=st.sampled_from(ENTITIES), rate=st.none() | st.sampled_from(RATES))
    def somebody_edits(self, entity: QuotaEntity, rate: int | None) -> None:
        self.edit(entity, None if rate is None else float(rate))

    @rule(number=st.sampled_from([0, 1]), lag=st.sampled_from([0, 0, 0, 1, 2]))
    def looks(self, number: int, lag: int) -> None:
        guard = self.guards[number]
        version = max(self.store.version - lag, 0)
        look = Look(self.store.versions[version], self.factor)
        now_ms = self.now_ms + guard.offset_ms
        guard.state, commands = step(guard.settings, guard.state, look, now_ms)
        guard.queue = [Sent(command, version) for command in commands]

    @rule(
        number=st.sampled_from([0, 1]),
        fate=st.sampled_from(["sent", "sent", "sent", "sent", "lost", "unanswered"]),
    )
    def sends(self, number: int, fate: str) -> None:
        guard = self.guards[number]
        if not guard.queue:
            return
        sent = guard.queue.pop(0)
        now_ms = self.now_ms + guard.offset_ms
        if now_ms > sent.command.until_ms:
            fate = "lost"
        if fate != "lost":
            self.applies(sent, guard)
        event = Acked(sent.command) if fate == "sent" else Refused(sent.command)
        if fate != "sent":
            guard.queue.clear()
        guard.state, _ = step(guard.settings, guard.state, event, now_ms)

    @rule(number=st.sampled_from([0, 1]), times=st.integers(1, 20))
    def goes_on(self, number: int, times: int) -> None:
        """Undisturbed, as a guard mostly is."""
        for _ in range(times):
            self.passes(3)
            self.looks(number, 0)
            while self.guards[number].queue:
                self.sends(number, "sent")

    @rule(number=st.sampled_from([0, 1]))
    def dies(self, number: int) -> None:
        self.guards[number] = self.birth()

    @rule(number=st.sampled_from([0, 1]))
    def is_stopped(self, number: int) -> None:
        guard = self.guards[number]
        guard.state, _ = step(guard.settings, guard.state, Stop(), self.now_ms + guard.offset_ms)

    @rule(partial=st.booleans())
    def reaps(self, partial: bool) -> None:
        self.reaper, commands = reap(
            self.reaper, self.store.quotas, self.now_ms, LEASE, RECORDS_MAX
        )
        for command in commands[: 1 if partial else None]:
            self.applies(Sent(command, self.store.version), None)

    @rule()
    def somebody_releases(self) -> None:
        """While guards live, and have requests on their way."""
        for command in release(self.store.quotas, self.now_ms, RECORDS_MAX):
            self.applies(Sent(command, self.store.version), None)
        self.released = self.store.version

    def applies(self, sent: Sent, guard: Guard | None) -> None:
        """A request arrives; all that a single one may not do is checked here."""
        before, seen = self.store.quotas, self.store.versions[sent.version]
        holds = read_holds(seen)
        try:
            self.store.alter(sent.command.alterations)
        except RequestRefusedError as refused:
            raise AssertionError(str(refused)) from None
        for each in sent.command.alterations:
            if each.entity.is_reserved:
                continue
            assert each.key == RATE
            assert each.entity.user not in EXCLUDED
            hold = holds.get(each.entity)
            # What a person has, as far as the guard could see, is not written to.
            assert hold is None or hold.is_ours
            self.loses(each.entity, sent.version)
            if guard is not None and each.value is not None:
                # What is written into a release was meant for the rate before it.
                if sent.version >= self.released:
                    self.is_gentle(each, before.get(each.entity, {}).get(RATE))
                assert not exposed(seen, EXCLUDED) or hold is not None
        self.has_one_writer(guard)

    def loses(self, entity: QuotaEntity, version: int) -> None:
        """Kafka has no compare-and-set: an edit behind the view that a write was made from is
        overwritten, and what was said before holds."""
        said = self.said.get(entity, [])
        self.said[entity] = [each for each in said if each[0] <= version] or [(0, None)]

    def is_gentle(self, each: Alteration, before: float | None) -> None:
        """At most halved within a window, and nobody muted beyond what is allowed."""
        assert each.value is not None
        observed = BASE if before is None else min(before, BASE)
        if each.value >= observed:
            return
        assert mute_ms(observed, each.value, WINDOW, CONNECTIONS, REQUEST) <= MUTE
        lowered_ms = self.lowered.get(each.entity)
        assert lowered_ms is None or self.now_ms - lowered_ms >= WINDOW
        self.lowered[each.entity] = self.now_ms

    def has_one_writer(self, guard: Guard | None) -> None:
        lease = read_lease(self.store.quotas)
        if guard is not None and lease is not None:
            assert self.writers.setdefault(lease.epoch, guard.settings.chance) == (
                guard.settings.chance
            )

    def expected(self) -> dict[QuotaEntity, dict[str, float]]:
        """The quotas if there were no guard."""
        found = {entity: {RATE: said[-1][1]} for entity, said in self.said.items()}
        expected = {
            entity: {key: rate for key, rate in values.items() if rate is not None}
            for entity, values in found.items()
        }
        expected.setdefault(ENTITIES[0], {})["consumer_byte_rate"] = 7.0
        return {entity: values for entity, values in expected.items() if values}

    @invariant()
    def nobody_is_given_more(self) -> None:
        expected: Mapping[QuotaEntity, Mapping[str, float]] = self.expected()
        for user in USERS:
            for client in CLIENTS:
                now, without = (
                    allowed(quotas, user, client) for quotas in (self.store.quotas, expected)
                )
                assert now <= without
                assert user not in EXCLUDED or now == without

    @invariant()
    def nothing_is_throttled_that_could_not_be_restored(self) -> None:
        holds = read_holds(self.store.quotas)
        restored = without_reserved(self.store.quotas)
        for entity, hold in holds.items():
            if hold.is_ours:
                values = restored[entity]
                del values[RATE]
                if hold.prior is not None:
                    values[RATE] = hold.prior
        assert {entity: each for entity, each in restored.items() if each} == self.expected()

    def teardown(self) -> None:
        """All guards are dead, and one reaper lives."""
        for guard in self.guards:
            guard.queue.clear()
        for _ in range(LEASE // (5 * SECOND) + 3):
            self.reaps(partial=False)
            self.now_ms += 5 * SECOND
        assert not is_held(self.store.quotas)
        assert dict(self.store.quotas) == self.expected()


World.TestCase.settings = settings(
    max_examples=by_form(30, 75, 1_000),
    stateful_step_count=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
test_guards_and_people = World.TestCase


def test_a_stopped_guard_is_idle() -> None:
    assert replace(EnforcementState(), is_stopping=True).stage in IDLE
