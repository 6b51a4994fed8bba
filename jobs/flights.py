"""A function for `jobs/process.py`: flights as rows, one carrier's data broken, one carrier's slow.

The flights are those of `ci/demo_commits.sh`. Carrier OO's records cannot be read. Those of HA need
a service that may be down: the file that FLIGHTS_OUTAGE names stands for its outage. Those of YV
take their time.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

SCHEMA = "carrier string, flight int, tail string, origin string, dest string, mph double"

BROKEN = "OO"
DEPENDENT = "HA"
SLOW = "YV"


class ServiceDown(RuntimeError):
    """What this carrier's flights need does not answer."""


def flown(record: Any) -> tuple[Any, ...]:
    """The row of a flight; without a speed where it did not take off."""
    flight = json.loads(record.value)
    carrier = flight["carrier"]
    if carrier == BROKEN:
        raise ValueError(f"flight {carrier} {flight['flight']} has no readable distance")
    outage = os.environ.get("FLIGHTS_OUTAGE")
    if carrier == DEPENDENT and outage and Path(outage).exists():
        raise ServiceDown(f"no answer for {carrier} {flight['flight']}")
    if carrier == SLOW:
        time.sleep(0.005)
    hours = (flight["air_time"] or 0) / 60
    return (
        carrier,
        flight["flight"],
        flight["tailnum"],
        flight["origin"],
        flight["dest"],
        flight["distance"] / hours if hours else None,
    )
