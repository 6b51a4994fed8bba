"""The exit codes of the command `keyrange`, and the table of them that its help ends with.

The command's main function gives SUCCESS, ERROR, USAGE and INTERRUPTED; a command that has found
something raises typer.Exit with one of the others, in the module of the command (`commands`).
"""

from __future__ import annotations

from typing import Final

SUCCESS: Final = 0
ERROR: Final = 1
FINDING: Final = 1
# As click has it.
USAGE: Final = 2
NO_BROKER: Final = 3
THROTTLED: Final = 3
# As a shell has it of a process that SIGINT ended.
INTERRUPTED: Final = 130

EXIT_CODES: Final = (
    (str(SUCCESS), "success"),
    (
        str(ERROR),
        "an error, named on stderr; or a finding of doctor, report, watch --once, volumes show or "
        "a command verify",
    ),
    (str(USAGE), "a wrong command line"),
    (
        str(NO_BROKER),
        "no broker runs (broker status); a throttle is in force (volumes guard, reap, release)",
    ),
    (str(INTERRUPTED), "Ctrl-C"),
)
