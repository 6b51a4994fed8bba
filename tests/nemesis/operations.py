"""What operators do to a query that runs, with the commands that they have."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

from nemesis.driver import Supervisor
from nemesis.facts import Again
from nemesis.faults import Missed
from nemesis.schedule import Fault
from nemesis.tables import commit_tables, letters
from nemesis.world import World

_BACK = 200


def command(world: World, *words: str) -> tuple[int, str]:
    """Exit code and output of the command line."""
    found = subprocess.run(
        [sys.executable, "-P", "-m", "keyrange.cli.main", *words],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    with (world.logs / "commands.log").open("a") as log:
        log.write(f"{words} -> {found.returncode}\n{found.stdout}{found.stderr}\n")
    return found.returncode, found.stdout + found.stderr


def reset_commits(world: World, supervisor: Supervisor, fault: Fault) -> None:
    """Some records of one partition are handed out again that are done."""
    states: dict[int, Any] = {}
    for table in commit_tables(world):
        for place, state in table.known().states.items():
            states[place.partition] = state
    if not states:
        raise Missed("nothing is committed")
    number = sorted(states)[int(fault.pick * len(states))]
    to = max(states[number].committed - int(_BACK * fault.pick), 0)
    words = ("--topic", world.topic, "--partition", str(number), "--to", str(to))
    code, said = command(
        world,
        *("commits", "reset", str(world.lake / "commits"), *words),
        *("--redo", "--why", "nemesis", "--confirm"),
    )
    if code != 0:
        raise Missed(said.strip().splitlines()[-1][:200])
    # What was read when the reset was written, and not what had been seen before.
    until = max(
        state.position
        for table in commit_tables(world)
        for place, state in table.known().states.items()
        if place.partition == number
    )
    world.again.append(Again(number, to, max(until, states[number].position) + 1))


def replay_letters(world: World, supervisor: Supervisor, fault: Fault) -> None:
    """All dead letters are worked on again."""
    if not letters(world):
        raise Missed("there are no dead letters")
    words = ("--all", "--why", "nemesis", "--confirm")
    code, said = command(world, "deadletters", "replay", str(world.lake / "commits"), *words)
    if code != 0:
        raise Missed(said.strip().splitlines()[-1][:200])


def rebalance(world: World, supervisor: Supervisor, fault: Fault) -> None:
    """Key ranges are assigned anew at once."""
    if not (world.lake / "members").exists():
        raise Missed("nothing is assigned")
    words = ("--why", "nemesis", "--confirm")
    code, said = command(world, "members", "rebalance", str(world.lake / "members"), *words)
    if code != 0:
        raise Missed(said.strip().splitlines()[-1][:200])


def verify(world: World, live: bool) -> list[str]:
    """What `commits verify` finds."""
    words = ["commits", "verify", str(world.lake / "commits")]
    if world.mode.individual:
        words += ["--sink", str(world.lake / "table")]
    if live and world.mode.individual:
        words += ["--live", "--bootstrap-servers", world.cluster.bootstrap_servers]
    words += ["--output", "json"]
    code, said = command(world, *words)
    if code == 0:
        return []
    try:
        document = json.loads(said)
    except ValueError:
        return [said.strip()[-1_000:]]
    return [json.dumps(document)[:2_000]]
