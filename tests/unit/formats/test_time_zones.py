"""Local times of a zone to instants."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyrange.formats.time_zones import instants, zone_of


@pytest.mark.parametrize("name", ["UTC", "Z", "", "GMT", "Etc/UTC", "UTC+0", "+00:00"])
def test_names_of_utc(name: str) -> None:
    assert instants(np.array([5]), zone_of(name)).tolist() == [5]


@pytest.mark.parametrize(
    ("name", "hours"), [("+02:00", 2.0), ("-3", -3), ("UTC+5:30", 5.5), ("GMT-0130", -1.5)]
)
def test_offsets(name: str, hours: float) -> None:
    assert zone_of(name) == hours * 3600


@pytest.mark.parametrize(
    "name", ["PST", "+19:00", "+01:60", "Mars/Olympus", "../etc/passwd", "x" * 300]
)
def test_a_zone_that_nobody_knows_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=name[:5].replace("+", r"\+")):
        zone_of(name)


@given(
    st.sampled_from(["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata"]),
    st.lists(st.datetimes(datetime(1, 1, 3), datetime(9999, 12, 29)), max_size=20),
)
def test_an_instant_read_by_the_clocks_of_its_zone_is_the_local_time(
    name: str, times: list[datetime]
) -> None:
    epoch, zone = datetime(1970, 1, 1), ZoneInfo(name)
    local = np.array([(each - epoch) // timedelta(microseconds=1) for each in times], np.int64)
    for each, us in zip(times, instants(local, zone).tolist(), strict=True):
        instant = epoch + timedelta(microseconds=us)
        shown = instant.replace(tzinfo=UTC).astimezone(zone).replace(tzinfo=None)
        assert shown == each or _is_skipped(each, zone)


def _is_skipped(local: datetime, zone: tzinfo) -> bool:
    before, behind = (local.replace(tzinfo=zone, fold=fold).utcoffset() for fold in (0, 1))
    assert before is not None
    assert behind is not None
    return before < behind
