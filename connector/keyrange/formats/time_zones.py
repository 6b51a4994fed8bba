"""Local times to instants, as Java's ZonedDateTime.of makes them of a time zone's rules.

Where a clock is put back, the earlier of two instants is meant; where it is put forward, a time
that it skips is as much later as it skips.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np

_Instants = np.ndarray[Any, np.dtype[np.int64]]
_OFFSET = re.compile(r"(?:UTC|GMT)?([+-])(\d\d?)(?::?(\d\d))?", re.ASCII)
_UTC_NAMES = frozenset(("", "Z", "UTC", "GMT", "Etc/UTC", "Etc/GMT", "Etc/UCT", "UCT", "Zulu"))


@cache
def zone_of(name: str) -> int | ZoneInfo:
    """The seconds by which the clocks of an offset such as +02:00 or UTC-3 are ahead of UTC, or the
    rules of a name of the IANA database. Raises ValueError where there is none of that name."""
    if name in _UTC_NAMES:
        return 0
    if (found := _OFFSET.fullmatch(name)) is not None:
        minutes = int(found[3] or 0)
        seconds = int(found[2]) * 3600 + minutes * 60
        if minutes > 59 or seconds > 18 * 3600:
            raise ValueError(name)
        return -seconds if found[1] == "-" else seconds
    try:
        return ZoneInfo(name)
    except (OSError, LookupError) as failure:
        raise ValueError(name) from failure


def instants(local_us: _Instants, zone: int | ZoneInfo) -> _Instants:
    """Microseconds since 1970 in UTC, of those that are so long after 1970 by a zone's clocks."""
    if isinstance(zone, int):
        return local_us - zone * 1_000_000
    seconds, at = np.unique(local_us // 1_000_000, return_inverse=True)
    times = (each.replace(tzinfo=zone) for each in seconds.astype("M8[s]").tolist())
    ahead = np.fromiter((each.utcoffset().total_seconds() for each in times), np.int64)
    return local_us - ahead[at] * 1_000_000
