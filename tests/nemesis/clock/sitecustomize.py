"""A clock that can be stepped: Python imports this at its start where the directory is on its path.

`NEMESIS_CLOCK` names a file that holds how many seconds the wall clock is to be off. The monotonic
clock stays as it is, as when an administrator sets the time.
"""

import os
import time

_PATH = os.environ.get("NEMESIS_CLOCK", "")
_time, _time_ns = time.time, time.time_ns


def _off_s() -> float:
    try:
        with open(_PATH) as file:
            return float(file.read() or 0)
    except (OSError, ValueError):
        return 0.0


if _PATH:
    time.time = lambda: _time() + _off_s()
    time.time_ns = lambda: _time_ns() + int(_off_s() * 1e9)
