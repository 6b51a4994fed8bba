"""The throttle factor: the specification's timeline, every boundary, hysteresis, what it counts."""

from __future__ import annotations

import pytest

from keyrange.guard.model.throttle_factor import Factor, Throttle, ThrottleState
from keyrange.guard.model.volume_readings import LogDirs, VolumeReading
from keyrange.model.volumes import Limit, Policy, Recovery, Volume
from samples.volume_samples import MINUTE, answer, reading, volume

BYTES = Limit(min_available_bytes=100)
FULL, BAND, CLEAR = reading(volume(100)), reading(volume(149)), reading(volume(150))


def throttle(
    fallback: float = 0.0, validity_ms: int = 2 * MINUTE, limit: Limit = BYTES, **recovery: int
) -> Throttle:
    return Throttle(Policy(limit, fallback, validity_ms, MINUTE, Recovery(**recovery)), 0)


def held(at_ms: int = 0) -> Throttle:
    each = throttle()
    each.observe(FULL, at_ms)
    return each


def standing(each: Throttle, now_ms: int) -> tuple[float, ThrottleState]:
    factor = each.factor(now_ms)
    return factor.value, factor.standing


def test_the_timeline_of_the_specification() -> None:
    """Validity 2 minutes, fallback 0.0; the checks of minutes 1, 2 and 3 fail."""
    each = throttle(fallback=0.0, validity_ms=2 * MINUTE)
    values = []
    for minute, succeeded in enumerate([True, False, False, False, True]):
        if succeeded:
            each.observe(CLEAR, minute * MINUTE)
        else:
            each.failed("timed out", minute * MINUTE)
        values.append(each.factor(minute * MINUTE).value)

    assert values == [1.0, 1.0, 1.0, 0.0, 1.0]
    assert each.fallback_applied == 1
    assert each.limit_violated == 0


@pytest.mark.parametrize(
    ("limit", "at", "above"),
    [
        (Limit(min_available_bytes=100), volume(100), volume(101)),
        (Limit(min_available_bytes=0), volume(0), volume(1)),
        (Limit(min_available_ratio=0.1), volume(100), volume(101)),
        (Limit(min_available_ratio=0.0), volume(0), volume(1)),
        (Limit(min_available_ratio=1.0), volume(1_000), None),
        (Limit(min_available_ratio=0.1), volume(0, total=0), None),
    ],
)
def test_at_the_limit_is_a_violation(limit: Limit, at: Volume, above: Volume | None) -> None:
    assert limit.is_violated(at)
    assert not limit.is_recovered(at, Recovery())
    assert above is None or not limit.is_violated(above)


@pytest.mark.parametrize(
    ("limit", "total", "needed"),
    [
        (Limit(min_available_bytes=100), 1_000, 150),
        # Half the way to an empty volume, where the factor asks for more than there can be.
        (Limit(min_available_bytes=800), 1_000, 900),
        (Limit(min_available_bytes=0), 1_000, 1),
        (Limit(min_available_ratio=0.5), 1_000, 520),
        (Limit(min_available_ratio=0.99), 1_000, 995),
        (Limit(min_available_ratio=0.0), 1_000, 20),
    ],
)
def test_how_much_counts_as_recovered(limit: Limit, total: int, needed: int) -> None:
    recovered = [
        usable
        for usable in range(total + 1)
        if limit.is_recovered(volume(usable, total=total), Recovery())
    ]
    assert recovered == list(range(needed, total + 1))


@pytest.mark.parametrize(("size", "ratio"), [(None, None), (1, 0.5)])
def test_there_is_one_limit(size: int | None, ratio: float | None) -> None:
    with pytest.raises(ValueError, match="one of"):
        Limit(min_available_bytes=size, min_available_ratio=ratio)


def test_one_volume_of_many_is_enough() -> None:
    each = throttle()
    each.observe(reading(volume(900), volume(100, 2), volume(50, 3), volume(900, 4)), 0)

    found = each.factor(0)
    assert found == Factor(
        0.0,
        "broker 2 /d has 100 B of 1000 B available, and 1 more; min.available.bytes is 100",
        0,
        False,
        (volume(100, 2), volume(50, 3)),
        None,
        ThrottleState.HELD,
        has_recovered=False,
    )
    assert each.limit_violated == 2


@pytest.mark.parametrize("fallback", [0.0, 0.5, 1.0])
def test_before_the_first_reading_the_fallback_is_in_force(fallback: float) -> None:
    """Who throttles others may wait for the validity time: until then the standing is UNKNOWN."""
    each = throttle(fallback=fallback)

    assert standing(each, 2 * MINUTE) == (fallback, ThrottleState.UNKNOWN)
    assert standing(each, 2 * MINUTE + 1) == (fallback, ThrottleState.FALLBACK)
    for now_ms in (0, 2 * MINUTE + 1):
        factor = each.factor(now_ms)
        assert (factor.is_fallback, factor.since_ms) == (True, 0)
    assert each.fallback_applied == 1


def test_the_first_reading_ends_the_fallback() -> None:
    each = throttle(fallback=0.0)
    each.observe(CLEAR, MINUTE)

    found = each.factor(MINUTE)
    assert (found.value, found.is_fallback, found.since_ms) == (1.0, False, MINUTE)
    assert each.fallback_applied == 0


def test_a_first_reading_between_limit_and_recovery_is_no_violation() -> None:
    each = throttle()
    each.observe(BAND, 0)

    assert standing(each, 0) == (1.0, ThrottleState.OPEN)
    assert not each.factor(0).has_recovered
    each.observe(CLEAR, MINUTE)
    assert each.factor(MINUTE).has_recovered


def test_the_fallback_lets_go_of_what_nobody_remembers() -> None:
    each = throttle(fallback=1.0)
    each.observe(BAND, 0)

    assert not each.factor(2 * MINUTE).has_recovered
    assert each.factor(2 * MINUTE + 1).has_recovered


def test_it_takes_two_clear_readings_in_a_row() -> None:
    each = held()
    each.observe(CLEAR, MINUTE)
    assert standing(each, MINUTE) == (0.0, ThrottleState.RECOVERING)
    each.observe(BAND, 2 * MINUTE)
    assert standing(each, 2 * MINUTE) == (0.0, ThrottleState.HELD)
    each.observe(CLEAR, 3 * MINUTE)
    assert standing(each, 3 * MINUTE) == (0.0, ThrottleState.RECOVERING)
    assert each.factor(3 * MINUTE).since_ms == 0
    each.observe(CLEAR, 4 * MINUTE)
    assert standing(each, 4 * MINUTE) == (1.0, ThrottleState.OPEN)
    assert each.factor(4 * MINUTE).since_ms == 4 * MINUTE


def test_it_takes_the_dwell_time() -> None:
    each = throttle(readings=1, dwell_ms=MINUTE)
    each.observe(FULL, 10)
    each.observe(CLEAR, MINUTE + 9)
    assert each.factor(MINUTE + 9).value == 0.0
    each.observe(CLEAR, MINUTE + 10)
    assert each.factor(MINUTE + 10).value == 1.0


def test_a_failed_check_neither_counts_nor_breaks_the_row() -> None:
    each = held()
    each.observe(CLEAR, MINUTE)
    each.failed("timed out", 2 * MINUTE)
    each.observe(CLEAR, 3 * MINUTE)

    assert standing(each, 3 * MINUTE) == (1.0, ThrottleState.OPEN)


def test_full_again_during_recovery() -> None:
    each = held()
    each.observe(CLEAR, MINUTE)
    each.observe(FULL, 2 * MINUTE)
    each.observe(CLEAR, 3 * MINUTE)

    assert standing(each, 3 * MINUTE) == (0.0, ThrottleState.RECOVERING)


def test_one_volume_that_has_not_recovered_holds() -> None:
    each = held()
    for minute in (1, 2, 3):
        each.observe(reading(volume(500), volume(149, 2)), minute * MINUTE)
        assert standing(each, minute * MINUTE) == (0.0, ThrottleState.HELD)


def test_within_the_band_nothing_changes() -> None:
    once_held, open_ = held(), throttle()
    open_.observe(CLEAR, 0)
    for minute in range(1, 20):
        for each in (once_held, open_):
            each.observe(reading(volume(101 + minute % 49)), minute * MINUTE)

    assert once_held.factor(19 * MINUTE).value == 0.0
    assert open_.factor(19 * MINUTE).value == 1.0


def test_the_last_factor_stands_for_the_validity_time() -> None:
    each = throttle(fallback=1.0)
    each.observe(FULL, 0)
    each.failed("timed out", MINUTE)

    assert standing(each, 2 * MINUTE) == (0.0, ThrottleState.HELD)
    assert standing(each, 2 * MINUTE + 1) == (1.0, ThrottleState.FALLBACK_HELD)
    assert "the last check failed: timed out" in each.factor(2 * MINUTE + 1).why


def test_a_reading_renews_the_validity() -> None:
    each = throttle(fallback=0.5)
    each.observe(CLEAR, 0)
    each.observe(CLEAR, 2 * MINUTE)

    assert each.factor(4 * MINUTE).value == 1.0
    assert each.factor(4 * MINUTE + 1).value == 0.5


def test_a_reading_that_comes_too_late_finds_the_fallback_in_force() -> None:
    each = throttle()
    each.observe(CLEAR, 0)
    each.observe(CLEAR, 9 * MINUTE)

    assert each.fallback_applied == 1
    assert standing(each, 9 * MINUTE) == (1.0, ThrottleState.OPEN)


def test_the_fallback_is_counted_once_each_time() -> None:
    each = throttle()
    for minute in range(10):
        each.failed("timed out", minute * MINUTE)
        each.factor(minute * MINUTE)
    assert each.fallback_applied == 1

    each.observe(CLEAR, 10 * MINUTE)
    assert each.factor(13 * MINUTE).is_fallback
    assert each.fallback_applied == 2


def test_what_was_full_before_the_fallback_has_to_have_recovered() -> None:
    within, above = held(), held()
    for each in (within, above):
        assert standing(each, 3 * MINUTE) == (0.0, ThrottleState.FALLBACK_HELD)
    within.observe(BAND, 4 * MINUTE)
    above.observe(CLEAR, 4 * MINUTE)

    assert standing(within, 4 * MINUTE) == (0.0, ThrottleState.HELD)
    assert not within.factor(4 * MINUTE).is_fallback
    assert standing(above, 4 * MINUTE) == (1.0, ThrottleState.OPEN)


PARTS = {
    "silent": lambda usable: reading(volume(usable), silent=(2,)),
    "denied": lambda usable: VolumeReading(
        frozenset({1, 2}),
        (LogDirs(1, (volume(usable),)), LogDirs(2, (), "CLUSTER_AUTHORIZATION_FAILED")),
    ),
    "offline": lambda usable: VolumeReading(
        frozenset({1}), (LogDirs(1, (volume(usable),), "KAFKA_STORAGE_ERROR /e"),)
    ),
    "not told": lambda usable: reading(volume(usable), volume(-1, 2)),
}


@pytest.mark.parametrize("part", PARTS)
def test_that_all_is_well_is_not_believed_of_a_part(part: str) -> None:
    each = throttle()
    each.observe(PARTS[part](900), 0)
    each.observe(PARTS[part](900), 3 * MINUTE)

    assert standing(each, 3 * MINUTE) == (0.0, ThrottleState.FALLBACK)


@pytest.mark.parametrize("part", PARTS)
def test_that_a_volume_is_full_is_believed_of_a_part(part: str) -> None:
    each = throttle(fallback=1.0)
    for minute in range(5):
        each.observe(PARTS[part](100), minute * MINUTE)

    assert standing(each, 4 * MINUTE) == (0.0, ThrottleState.HELD)
    assert each.limit_violated == 5


def test_a_full_volume_that_is_remembered_does_not_make_a_part_whole() -> None:
    each = throttle(fallback=1.0)
    each.observe(reading(volume(900), volume(100, 2)), 0)
    each.observe(reading(volume(900), silent=(2,)), 2 * MINUTE)

    assert each.factor(2 * MINUTE).value == 0.0
    assert each.factor(2 * MINUTE + 1).is_fallback
    assert each.limit_violated == 1


@pytest.mark.parametrize("last_words", ["", "refused"])
def test_a_full_volume_whose_broker_is_gone_is_a_failed_check_until_the_broker_is_back(
    last_words: str,
) -> None:
    """Also where it has answered before it went, and did not say how its volume is."""
    each = throttle(fallback=0.5)
    each.observe(reading(volume(900), volume(100, 2)), 0)
    if last_words:
        answers = (answer(volume(900)), answer(failure=last_words, broker=2))
        each.observe(VolumeReading(frozenset({1, 2}), answers), 1)
    each.observe(reading(volume(900)), MINUTE)
    each.observe(reading(volume(900)), 2 * MINUTE)
    assert standing(each, 2 * MINUTE) == (0.0, ThrottleState.HELD)

    for minute in range(3, 9):
        each.observe(reading(volume(900)), minute * MINUTE)
        assert standing(each, minute * MINUTE) == (0.5, ThrottleState.FALLBACK_HELD)
    assert "broker 2 had a volume at the limit and is not named now" in each.factor(9 * MINUTE).why

    each.observe(reading(volume(900), volume(100, 2)), 9 * MINUTE)
    assert standing(each, 9 * MINUTE) == (0.0, ThrottleState.HELD)
    for minute in range(10, 13):
        each.observe(reading(volume(900), volume(900, 2)), minute * MINUTE)
    assert standing(each, 12 * MINUTE) == (1.0, ThrottleState.OPEN)
    each.observe(reading(volume(900)), 13 * MINUTE)
    assert standing(each, 13 * MINUTE) == (1.0, ThrottleState.OPEN)


def test_the_prediction_is_that_of_the_first_to_be_full() -> None:
    each = throttle()
    each.observe(reading(volume(900), volume(900, 2)), 0)
    each.observe(reading(volume(800), volume(600, 2)), MINUTE)

    assert each.factor(MINUTE).time_to_full_ms == 2 * MINUTE


def test_every_standing_says_why() -> None:
    unread = throttle()
    unread.failed("no way", 0)
    assert unread.factor(0).why == (
        "throttle.factor.fallback: nothing was read yet; the last check failed: no way"
    )
    fallen = unread.factor(3 * MINUTE).why
    assert fallen.startswith("throttle.factor.fallback: nothing was read for more than 120000 ms")

    each = held()
    each.observe(BAND, MINUTE)
    behind = "broker 1 /d has not recovered: it has 149 B of 1000 B available, and 150 B are needed"
    assert each.factor(MINUTE).why.startswith(f"a volume was too full, and {behind}; ")
    each.observe(CLEAR, 2 * MINUTE)
    clear = "a volume was too full, and all have recovered, not for long enough; "
    assert each.factor(2 * MINUTE).why.startswith(clear)
    fresh = throttle()
    fresh.observe(BAND, 0)
    assert fresh.factor(0).why.startswith(f"no volume is at the limit, but {behind}: who is held")

    ratio = throttle(limit=Limit(min_available_ratio=0.25))
    ratio.observe(reading(volume(900)), 0)
    said = "every volume has more available; min.available.ratio is 0.25"
    assert ratio.factor(0).why == said


def test_a_look_at_many_volumes_rests_now_and_then() -> None:
    many = reading(*(volume(150, broker, f"/{at}") for broker in range(100) for at in range(10)))
    rested, alike = throttle(), throttle()
    rests: list[int] = []
    rested.observe(many, 0, lambda: rests.append(0))
    alike.observe(many, 0)

    # Five times through all of them.
    assert len(rests) == 5 * 1_000 / 100
    assert rested.factor(0) == alike.factor(0)
    assert rested.view.volumes(0) == alike.view.volumes(0)
