"""Faults by a seed over real brokers, executors and tables, and whether the promises held.

    bash ci/soak.sh nemesis --mode pinned --seed 31 --seconds 120
    bash ci/soak.sh nemesis --only kill-executor --only stall-executor --every 20
    bash ci/soak.sh nemesis --replay /tmp/nemesis-pinned-31.json --keep /tmp/kept

The exit code is 1 where something is wrong. Then the schedule is printed, and kept in a file for
--replay, which does the same things at the same times; the records are the seed's. --keep leaves
the logs of driver, executors and brokers, and the tables. With 2 cores and much else to do,
--every 15 lets a query come back between two faults. `kill -USR1` of this process prints where its
threads are; a step that hangs is named, and ends the run.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

from nemesis.kinds import KINDS, possible
from nemesis.modes import MODES, OF_ANY_STORE, mode_of
from nemesis.run import Run
from nemesis.schedule import Schedule, make_schedule, read_schedule
from nemesis.store import KINDS as STORES

_INSIDE = "NEMESIS_INSIDE"


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="nemesis", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=120, help="how long faults come")
    parser.add_argument("--seed", type=int, help="of the schedule and the records")
    parser.add_argument("--mode", choices=list(MODES), help="by default the seed's")
    parser.add_argument(
        "--only", action="append", choices=list(KINDS), metavar="KIND", help="only such faults"
    )
    parser.add_argument(
        "--without", action="append", default=[], choices=list(KINDS), metavar="KIND"
    )
    parser.add_argument(
        "--every", type=float, default=8, metavar="S", help="from one fault to the next, about"
    )
    parser.add_argument("--rate", type=int, default=60, help="records a second")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="run this schedule again")
    parser.add_argument(
        "--store",
        choices=STORES,
        default="files",
        help="what keeps tables and checkpoint; s3 is for jobs whose tables keyrange writes",
    )
    parser.add_argument("--output", choices=["text", "json"], default="text")
    parser.add_argument("--keep", type=Path, metavar="DIRECTORY", help="keep logs and tables there")
    arguments = parser.parse_args()
    if arguments.store == "s3" and arguments.mode not in OF_ANY_STORE:
        # Delta's own writer puts what it writes there over what another driver has written.
        parser.error(f"--store s3 takes a --mode of {', '.join(OF_ANY_STORE)}")
    return arguments


def become_private() -> bool:
    """Go on in a mount namespace of its own, where this user may; whether this is one."""
    if os.environ.get(_INSIDE):
        return os.environ[_INSIDE] == "private"
    able = os.geteuid() == 0 and shutil.which("unshare") is not None
    able = able and os.system("unshare --mount true 2>/dev/null") == 0
    os.environ[_INSIDE] = "private" if able else "shared"
    if able:
        command = ["unshare", "--mount", sys.executable, "-P", "-m", "nemesis", *sys.argv[1:]]
        os.execvp(command[0], command)
    return False


def chosen(arguments: argparse.Namespace, private: bool) -> Schedule:
    if arguments.replay is not None:
        return read_schedule(arguments.replay.read_text())
    seed = arguments.seed if arguments.seed is not None else int(time.time()) % 1_000_000
    mode = MODES[arguments.mode] if arguments.mode else mode_of(seed)
    kinds = possible(mode.has(private, arguments.store))
    if arguments.only:
        kinds = [kind for kind in kinds if kind in arguments.only]
    kinds = [kind for kind in kinds if kind not in arguments.without]
    return make_schedule(seed, mode.name, arguments.seconds, kinds, arguments.every)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    arguments = parse_arguments()
    private = become_private()
    # `kill -USR1` shows where all of its threads are.
    faulthandler.register(signal.SIGUSR1)
    # What a run has started ends with it, also where somebody ends the run.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if not private:
        say("not root: no private file systems, so nothing is filled or emptied")
    schedule = chosen(arguments, private)
    say(f"mode {schedule.mode}, seed {schedule.seed}, {len(schedule.faults)} faults")
    home = arguments.keep or Path(tempfile.mkdtemp(prefix="nemesis-"))
    home.mkdir(parents=True, exist_ok=True)
    run = Run(schedule, home, say, private, arguments.rate, arguments.store)
    try:
        result = run.run()
    except BaseException:
        say(f"seed {schedule.seed}; the schedule:\n{schedule.written()}")
        raise
    if not result.is_good:
        kept = Path(tempfile.gettempdir()) / f"nemesis-{schedule.mode}-{schedule.seed}.json"
        kept.write_text(schedule.written())
        say(f"the schedule, for --replay, is {kept}:\n{schedule.written()}")
    if arguments.output == "json":
        print(json.dumps(result.document(), indent=1))
    else:
        print(result.text())
    if arguments.keep is None:
        shutil.rmtree(home, ignore_errors=True)
    return 0 if result.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
