"""Limits of volumes that are named, beside the one of all others."""

from __future__ import annotations

from keyrange.guard.model.throttle_factor import Throttle
from keyrange.model.volumes import Limit, Policy, Recovery, Volume, VolumeName
from samples.volume_samples import MINUTE, reading, volume


def test_a_volume_has_the_first_limit_that_names_it() -> None:
    names = (VolumeName(2, "/d"), VolumeName(None, "/d*"), VolumeName(3, "/e?"))
    others = tuple(
        Limit(min_available_bytes=least, name=name)
        for name, least in zip(names, (200, 300, 400), strict=True)
    )
    limit = Limit(min_available_bytes=100, others=others)

    def least(broker: int, log_dir: str) -> int | None:
        return limit.of(Volume(broker, log_dir, 1_000, 500)).min_available_bytes

    assert least(2, "/d") == 200
    assert {least(1, "/d"), least(2, "/d/x"), least(3, "/d")} == {300}
    assert least(3, "/e1") == 400
    assert {least(3, "/e"), least(2, "/e1"), least(2, "/D")} == {100}
    # And is told so.
    assert limit.is_violated(Volume(2, "/d", 1_000, 200))
    assert not limit.is_violated(Volume(2, "/d", 1_000, 201))
    assert not limit.is_recovered(Volume(2, "/d", 1_000, 299), Recovery())
    assert limit.is_recovered(Volume(2, "/d", 1_000, 300), Recovery())


def test_the_limit_that_was_reached_is_told() -> None:
    named = Limit(min_available_bytes=300, name=VolumeName(2, "/d"))
    limit = Limit(min_available_bytes=100, others=(named,))
    each = Throttle(Policy(limit, 0.0, 2 * MINUTE, MINUTE, Recovery()), 0)
    each.observe(reading(volume(250), volume(250, 2)), 0)
    assert each.factor(0).why == (
        "broker 2 /d has 250 B of 1000 B available; min.available.bytes of 2:/d is 300"
    )
    assert each.limit_violated == 1
    each.observe(reading(volume(900), volume(900, 2)), MINUTE)
    assert each.factor(MINUTE).why.endswith(
        "; min.available.bytes is 100, min.available.bytes of 2:/d is 300"
    )


def test_of_many_limits_some_are_told() -> None:
    others = tuple(Limit(min_available_ratio=0.5, name=VolumeName(each, "/d")) for each in range(5))
    said = str(Limit(min_available_ratio=0.1, others=others))
    assert said.endswith(" of 2:/d is 0.5, and 2 more")
