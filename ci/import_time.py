"""How long `import keyrange` takes in this Python, without the interpreter: median of eleven.

`-X importtime` counts in microseconds, imports of imports included.
"""

from __future__ import annotations

import re
import statistics
import subprocess
import sys

RUNS = 11


def import_ms() -> float:
    """One run, in ms."""
    command = [sys.executable, "-X", "importtime", "-c", "import keyrange"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    [found] = re.findall(r"\|\s*(\d+) \| keyrange$", said, re.M)
    return int(found) / 1000


def main() -> None:
    import_ms()  # what is compiled and read from the disk once is not counted
    times = sorted(import_ms() for _ in range(RUNS))
    print(
        f"import keyrange: {statistics.median(times):.0f} ms, "
        f"median of {RUNS}, {times[0]:.0f} to {times[-1]:.0f}"
    )


if __name__ == "__main__":
    main()
