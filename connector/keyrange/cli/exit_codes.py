"""The exit codes of the command `keyrange` and of the scripts in `jobs/`: every one that they end
with is here, with what it means. The help of `keyrange` ends with this table."""

from __future__ import annotations

import signal
from enum import IntEnum
from typing import Final

_AS_A_SHELL_SAYS: Final = 128


class ExitCode(IntEnum):
    """Names of one number are its meanings, which scripts tell apart by the command."""

    meaning: str

    def __new__(cls, number: int, meaning: str) -> ExitCode:
        made = int.__new__(cls, number)
        made._value_, made.meaning = number, meaning
        return made

    SUCCESS = 0, "success; volumes guard or a script of jobs/ was stopped by SIGTERM or Ctrl-C"
    ERROR = (
        1,
        "an error, named on stderr; or a finding of doctor, report, watch --once, volumes show or "
        "a command verify",
    )
    FINDING = ERROR
    # As click has it.
    USAGE = 2, "a wrong command line"
    NO_BROKER = (
        3,
        "no broker runs (broker status); a throttle is in force (volumes guard, reap, release); "
        "records are left pending, or some are dead and none is done (scripts of jobs/)",
    )
    THROTTLED = NO_BROKER
    NOT_DONE = NO_BROKER
    INTERRUPTED = _AS_A_SHELL_SAYS + signal.SIGINT, "Ctrl-C"
    TERMINATED = (
        _AS_A_SHELL_SAYS + signal.SIGTERM,
        "SIGTERM; the JVM of a script of jobs/ was stopped",
    )


EXIT_CODES: Final = tuple((str(int(code)), code.meaning) for code in ExitCode)
