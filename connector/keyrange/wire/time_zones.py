"""Local times to instants, as Java's ZonedDateTime.of makes them of a time zone's rules.

Where a clock is put back, the earlier of two instants is meant; where it is put forward, a time
that it skips is as much later as it skips.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import cache
from typing import Any, Final
from zoneinfo import ZoneInfo

import numpy as np

_Instants = np.ndarray[Any, np.dtype[np.int64]]
_EPOCH: Final = datetime(1970, 1, 1)
_SECOND_US: Final = 1_000_000
_OFFSET = re.compile(r"(?:UTC|GMT)?([+-])(\d\d?)(?::?(\d\d))?", re.ASCII)
_UTC_NAMES = frozenset(("", "Z", "UTC", "GMT", "Etc/UTC", "Etc/GMT", "Etc/UCT", "UCT", "Zulu"))


@cache
def zone_of(name: str) -> tzinfo:
    """The zone of an offset from UTC, such as +02:00 or UTC-3, or of a name of the IANA database.
    Raises ValueError where there is none of that name."""
    if name in _UTC_NAMES:
        return UTC
    if (found := _OFFSET.fullmatch(name)) is not None:
        shift = timedelta(hours=int(found[2]), minutes=int(found[3] or 0))
        if int(found[3] or 0) > 59 or shift > timedelta(hours=18):
            raise ValueError(name)
        return timezone(-shift if found[1] == "-" else shift)
    try:
        return ZoneInfo(name)
    except (OSError, LookupError) as failure:
        raise ValueError(name) from failure


def instants(local_us: _Instants, zone: tzinfo) -> _Instants:
    """Microseconds since 1970 in UTC of times that are so long after 1970 by a zone's clocks."""
    if isinstance(zone, timezone):
        return local_us - _offset_us(_EPOCH, zone)
    seconds, at = np.unique(local_us // _SECOND_US, return_inverse=True)
    times = (_EPOCH + timedelta(seconds=each) for each in seconds.tolist())
    offsets = np.fromiter((_offset_us(each, zone) for each in times), np.int64, len(seconds))
    return local_us - offsets[at]


def _offset_us(local: datetime, zone: tzinfo) -> int:
    offset = local.replace(tzinfo=zone).utcoffset()
    assert offset is not None
    return offset // timedelta(microseconds=1)
