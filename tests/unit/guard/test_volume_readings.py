"""Readings of volumes: what counts as told, what is remembered, and when a volume will be full."""

from __future__ import annotations

import gc

import pytest

from keyrange.guard.model.volume_readings import LogDirs, View, VolumeReading
from keyrange.model.volumes import Volume
from samples.volume_samples import MINUTE, answer, reading, volume

VALIDITY = 5 * MINUTE


def test_the_figures_of_a_volume() -> None:
    each = Volume(1, "/d", 1_000, 250)

    assert each.used_bytes == 750
    assert each.ratio == 0.25
    assert str(each) == "broker 1 /d"


def test_a_volume_without_any_room_has_nothing_available() -> None:
    assert Volume(1, "/d", 0, 0).ratio == 0.0


@pytest.mark.parametrize(
    ("whole", "failure"),
    [
        (reading(volume(5), volume(6, broker=2)), ""),
        (reading(volume(5, total=0)), ""),
        (VolumeReading(frozenset(), ()), "the cluster named no broker"),
        (reading(volume(5), silent=(2,)), "broker 2 did not answer"),
        (VolumeReading(frozenset({1}), (LogDirs(1, ()),)), "broker 1 named no log dir"),
        (reading(volume(-1)), "broker 1 /d: its size was not told"),
        (reading(volume(5, total=-1)), "broker 1 /d: its size was not told"),
        (
            VolumeReading(frozenset({1}), (answer(volume(5), failure="KAFKA_STORAGE_ERROR /e"),)),
            "broker 1: KAFKA_STORAGE_ERROR /e",
        ),
        (
            VolumeReading(frozenset({1}), (LogDirs(1, (), "CLUSTER_AUTHORIZATION_FAILED"),)),
            "broker 1: CLUSTER_AUTHORIZATION_FAILED",
        ),
        (
            reading(volume(-1), silent=(2, 3, 4)),
            "broker 1 /d: its size was not told, broker 2 did not answer, broker 3 did not answer, "
            "and 1 more",
        ),
    ],
)
def test_what_is_not_told_is_a_failure(whole: VolumeReading, failure: str) -> None:
    assert whole.failure == failure
    assert (whole.failure == "") == (not failure)


def test_what_was_told_counts_beside_what_was_not() -> None:
    told = volume(5)
    read = VolumeReading(frozenset({1}), (answer(told, volume(-1, log_dir="/e"), failure="no"),))

    assert read.volumes == (told,)


def test_a_volume_that_is_gone_is_remembered_for_the_validity_time() -> None:
    view = View(VALIDITY)
    gone, there = volume(5, broker=2), volume(6)
    view.observe(reading(there, gone), 0)
    view.observe(reading(there), MINUTE)

    assert view.volumes(VALIDITY) == (there, gone)
    assert view.volumes(VALIDITY + 1) == (there,)
    assert (view.active_brokers, view.active_log_dirs) == (1, 1)

    view.observe(reading(there), VALIDITY + 1)
    assert view.volumes(VALIDITY + 1) == (there,)
    assert view.time_to_full_ms(gone) is None


def test_the_later_reading_goes_before() -> None:
    view = View(VALIDITY)
    view.observe(reading(volume(5)), 0)
    view.observe(reading(volume(7)), MINUTE)

    assert view.volumes(MINUTE) == (volume(7),)


def test_volumes_stand_in_order() -> None:
    view = View(VALIDITY)
    view.observe(reading(volume(1, 10), volume(2, 9, "/b"), volume(3, 9, "/a")), 0)

    assert [(each.broker, each.log_dir) for each in view.volumes(0)] == [
        (9, "/a"),
        (9, "/b"),
        (10, "/d"),
    ]


def test_time_to_full_is_by_the_growth_over_the_last_readings() -> None:
    view = View(VALIDITY)
    view.observe(reading(volume(900)), 0)
    assert view.time_to_full_ms(volume(900)) is None

    view.observe(reading(volume(800)), MINUTE)
    assert view.time_to_full_ms(volume(800)) == 8 * MINUTE

    view.observe(reading(volume(600)), 2 * MINUTE)
    assert view.time_to_full_ms(volume(600)) == 4 * MINUTE

    for minute in range(3, 13):
        view.observe(reading(volume(600)), minute * MINUTE)
    assert view.time_to_full_ms(volume(600)) is None


def test_a_volume_that_empties_will_not_be_full() -> None:
    view = View(VALIDITY)
    view.observe(reading(volume(500)), 0)
    view.observe(reading(volume(600)), MINUTE)

    assert view.time_to_full_ms(volume(600)) is None


def test_a_volume_that_was_enlarged_begins_anew() -> None:
    view = View(VALIDITY)
    view.observe(reading(volume(500)), 0)
    view.observe(reading(volume(400, total=2_000)), MINUTE)
    assert view.time_to_full_ms(volume(400)) is None

    view.observe(reading(volume(300, total=2_000)), 2 * MINUTE)
    assert view.time_to_full_ms(volume(300)) == 3 * MINUTE


def test_two_readings_at_one_time_say_nothing_of_growth() -> None:
    view = View(VALIDITY)
    view.observe(reading(volume(500)), 0)
    view.observe(reading(volume(400)), 0)

    assert view.time_to_full_ms(volume(400)) is None


def test_a_full_volume_is_full_at_once() -> None:
    view = View(VALIDITY)
    view.observe(reading(volume(500)), 0)
    view.observe(reading(volume(0)), MINUTE)

    assert view.time_to_full_ms(volume(0)) == 0


def test_volumes_stay_in_order_when_others_come_and_go() -> None:
    view = View(VALIDITY)
    first, second, third = (volume(1, broker) for broker in (1, 2, 3))
    view.observe(reading(second), 0)
    view.observe(reading(second, third, first), MINUTE)
    assert view.volumes(MINUTE) == (first, second, third)
    view.observe(reading(third, first), MINUTE + VALIDITY + 1)
    assert view.volumes(MINUTE + VALIDITY + 1) == (first, third)
    assert view.time_to_full_ms(second) is None


def test_who_asks_makes_hardly_anything_new() -> None:
    """What Python's collector counts: a thousand objects at once would call it."""
    view = View(VALIDITY)
    many = (volume(1, broker, f"/{at}") for broker in range(100) for at in range(10))
    view.observe(reading(*many), 0)
    gc.collect()
    gc.disable()
    try:
        before = gc.get_count()[0]
        found = view.volumes(0)
        made = gc.get_count()[0] - before
    finally:
        gc.enable()
    assert len(found) == 1_000
    assert made < 100
