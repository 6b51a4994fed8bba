"""What the guard writes beside quotas: markers, leases; and how far rates are lowered."""

from __future__ import annotations

import pytest

from brokers.quota_store import RequestRefusedError, Store, mute_ms
from guards.guard_run import ALICE, BOB, SETTINGS
from keyrange.guard.model.enforcement import EnforcementState, next_look_ms
from keyrange.guard.model.enforcement_states import GuardState
from keyrange.guard.model.lease import Lease, LeaseWatch, next_epoch, read_lease
from keyrange.guard.model.quota_entities import (
    EVERY_CLIENT,
    RATE,
    Alteration,
    QuotaEntity,
    Quotas,
    exposed,
    marked,
    marker,
)
from keyrange.guard.model.quota_ramp import WINDOW_MS, floor_rate, stepped


@pytest.mark.parametrize(
    "entity",
    [
        ALICE,
        BOB,
        EVERY_CLIENT,
        QuotaEntity("", None),
        QuotaEntity("", ""),
        QuotaEntity("", "app"),
        QuotaEntity("CN=a/b, O=é%2F", "/user=x/client="),
    ],
)
def test_a_marker_says_whom_it_is_about(entity: QuotaEntity) -> None:
    assert marked(marker(entity)) == entity
    assert marker(entity).is_reserved


@pytest.mark.parametrize(
    "name",
    [
        "app",
        "__volume_guard.prior",
        "__volume_guard.prior/x",
        "__volume_guard.prior/user=a/b",
        "__volume_guard.priority/user=a",
        "__volume_guard.lease",
        "",
    ],
)
def test_other_names_are_no_markers(name: str) -> None:
    assert marked(QuotaEntity(None, name)) is None
    assert marked(QuotaEntity("alice", "__volume_guard.prior/user=a")) is None


def test_every_marker_may_be_found_by_people() -> None:
    assert str(marker(BOB)) == "client-id __volume_guard.prior/user=bob/client=app"
    assert str(EVERY_CLIENT) == "client-id <default>"


@pytest.mark.parametrize(
    ("values", "lease"),
    [
        ({RATE: 3.0, "consumer_byte_rate": 5.0}, Lease(5, 3)),
        ({RATE: 3.0}, None),
        ({RATE: 3.5, "consumer_byte_rate": 5.0}, None),
        ({RATE: 3.0, "consumer_byte_rate": 2.0**60}, None),
    ],
)
def test_only_what_a_guard_can_have_written_is_a_lease(
    values: dict[str, float], lease: Lease | None
) -> None:
    quotas: Quotas = {QuotaEntity(None, "__volume_guard.lease"): values}
    assert read_lease(quotas) == lease


def test_epochs_grow_and_are_exact() -> None:
    first = next_epoch(0, 1_800_000_000, 2**40 + 5)
    second = next_epoch(first, 0, 1)

    assert first < second < 2**53
    assert float(second) == second
    assert next_epoch(0, 1_800_000_001, 0) > first


def test_a_lease_that_does_not_move_is_dead() -> None:
    watch = LeaseWatch()
    assert not watch.is_dead(10**9, 60)
    watch = watch.look(Lease(1, 1), 0).look(Lease(1, 1), 59)
    assert not watch.is_dead(59, 60)
    assert watch.is_dead(60, 60)
    assert not watch.look(Lease(1, 2), 60).is_dead(119, 60)


@pytest.mark.parametrize(
    ("mute", "connections", "floor"),
    [(60_000, 8, 171_197), (60_000, 1, 21_400), (10**9, 1, 16_384)],
)
def test_the_floor(mute: int, connections: int, floor: int) -> None:
    assert floor_rate(mute, connections, 2**20) == floor
    assert mute_ms(2 * floor, floor, WINDOW_MS, connections, 2**20) <= mute


def test_no_floor_keeps_to_less_than_a_step() -> None:
    with pytest.raises(ValueError, match="no more than one step"):
        floor_rate(11_000, 1, 1)


@pytest.mark.parametrize(
    ("rate", "target", "then"),
    [(100, 10, 50), (15, 10, 10), (101, 10, 51), (10, 10, 10), (10, 100, 40), (30, 100, 100)],
)
def test_a_step(rate: int, target: int, then: int) -> None:
    assert stepped(rate, target) == then


def test_exposed_are_those_without_a_quota_for_all_their_clients() -> None:
    quotas: Quotas = {
        QuotaEntity("a", None): {RATE: 1.0},
        QuotaEntity("b", ""): {RATE: 1.0},
        QuotaEntity("c", "app"): {RATE: 1.0},
        QuotaEntity("d", None): {"consumer_byte_rate": 1.0},
    }
    assert exposed(quotas, frozenset("abcde")) == ("c", "d", "e")


def test_looks_are_more_frequent_than_renewals() -> None:
    assert next_look_ms(SETTINGS, EnforcementState(stage=GuardState.FLOOR)) == 5_500
    assert next_look_ms(SETTINGS, EnforcementState(stage=GuardState.TAKING)) == 500


def test_the_store_refuses_what_kafka_refuses() -> None:
    for value in (0.0, 0.5, 1e19):
        with pytest.raises(RequestRefusedError):
            Store().alter([Alteration(ALICE, RATE, value)])
