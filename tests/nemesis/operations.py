"""What operators do to a query that runs, with the commands that they have."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from typing import Any

from nemesis.checker import removed
from nemesis.driver import Supervisor
from nemesis.facts import Again
from nemesis.faults import Missed
from nemesis.schedule import Fault
from nemesis.tables import commit_tables, last_reset, letters, planned_batches, replayed
from nemesis.world import World

_BACK = 200
_COMMAND_S = 150.0


def command(world: World, *words: str) -> tuple[int, str]:
    """Exit code and output of the command line; of one that does not end, that it does not."""
    try:
        found = subprocess.run(
            [sys.executable, "-P", "-m", "keyrange.cli.main", *words],
            capture_output=True,
            text=True,
            timeout=_COMMAND_S,
            check=False,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
    except subprocess.TimeoutExpired:
        said = f"{' '.join(words[:2])} did not end in {_COMMAND_S:.0f} s"
        world.complaints.append(("hung", said))
        return 124, said
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
    numbers = sorted(states)
    first = int(fault.pick * len(numbers))
    for number in [*numbers[first:], *numbers[:first]]:
        to = max(states[number].committed - int(_BACK * fault.pick), 0)
        code, said = _reset(world, number, to)
        if code != 0 and (near := re.findall(r"\b(\d+) \(commit:\d+\)", said)):
            # State goes back to where some commit has left it.
            to = int(near[0])
            code, said = _reset(world, number, to)
        if code == 0 or not world.mode.has_state:
            break
    if code != 0:
        raise Missed(said.strip().splitlines()[-1][:200])
    last = last_reset(world)
    if last in world.resets:
        # The command has nothing to write where nothing is done that is to be done again.
        raise Missed("nothing was handed out again")
    # Those that Kafka no longer has are not handed out, and state goes back all the same.
    asked = [at for at in dict(world.feeder.sent) if at.partition == number and at.offset >= to]
    world.unreadable |= removed(asked, world.deleted)
    # Windows that are open again have records from before.
    world.resets[last] = Again(number, to if world.mode.has_rows else 0, to)
    follow_resets(world)


def _reset(world: World, number: int, to: int) -> tuple[int, str]:
    return command(
        world,
        *("commits", "reset", world.store.uri("commits"), "--topic", world.topic),
        *("--partition", str(number), "--to", str(to), "--redo", "--why", "nemesis", "--confirm"),
    )


def follow_resets(world: World) -> None:
    """What a reset hands out again ends where the batches end that were planned before it: one that
    was under way may have its rows in the table, and nothing of it counts as done. To be called
    while the checkpoint still has them."""
    if not world.resets:
        return
    for batch in planned_batches(world):
        for reset, again in world.resets.items():
            if batch.source_id == reset.source_id and batch.seq < reset.seq:
                until = max(again.until_offset, batch.ends.get(again.partition, 0))
                world.resets[reset] = replace(again, until_offset=until)


def replay_letters(world: World, supervisor: Supervisor, fault: Fault) -> None:
    """All dead letters are worked on again."""
    if not letters(world):
        raise Missed("there are no dead letters")
    before = replayed(world)
    words = ("--all", "--why", "nemesis", "--confirm")
    code, said = command(world, "deadletters", "replay", world.store.uri("commits"), *words)
    if code != 0:
        raise Missed(said.strip().splitlines()[-1][:200])
    # Nothing is deleted later that a replay has made pending: the position stands before it.
    places = {letter.place for letter in replayed(world) - before}
    world.unreadable |= removed(places, world.deleted)


def rebalance(world: World, supervisor: Supervisor, fault: Fault) -> None:
    """Key ranges are assigned anew at once."""
    if not world.store.seen("members").exists():
        raise Missed("nothing is assigned")
    words = ("--why", "nemesis", "--confirm")
    code, said = command(world, "members", "rebalance", world.store.uri("members"), *words)
    if code != 0:
        raise Missed(said.strip().splitlines()[-1][:200])


def verify(world: World) -> list[str]:
    """What `commits verify` finds. The table holds more or less than the commits say where records
    were handed out again on request, or are gone, also where a dead letter was replayed whose
    record is: there the commits alone are looked at."""
    table = world.store.uri("commits")
    found = _verified(world, table)
    if not world.mode.individual:
        return found
    touched = {each.partition for each in (*world.resets.values(), *world.gone, *world.unreadable)}
    for number in range(world.partitions):
        if world.mode.table and world.mode.has_rows and not touched & {-1, number}:
            words = ["--sink", world.store.uri("table"), "--live"]
            words += ["--bootstrap-servers", world.cluster.bootstrap_servers]
            words += ["--topic", world.topic, "--partition", str(number)]
            found += _verified(world, table, *words)
    return found


def _verified(world: World, *words: str) -> list[str]:
    code, said = command(world, "commits", "verify", *words, "--output", "json")
    if code == 0:
        return []
    text = said[: said.rfind("}") + 1]
    try:
        document = json.loads(text)
    except ValueError:
        return [said.strip()[-1_000:]]
    return [json.dumps([document["commits"], *filter(_differs, document["partitions"])])[:2_000]]


def _differs(partition: dict[str, Any]) -> bool:
    counted = (partition["missing"], partition["doubled"])
    return bool(partition["unexpected"]) or any(each["count"] for each in counted)
