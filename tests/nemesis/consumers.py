"""Consumers that share a topic, each started again when it ends; and what their journals say."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from keyrange import Consumer
from nemesis.driver import own_environment
from nemesis.facts import End, Place, Row
from nemesis.schedule import Met, explained
from nemesis.victims import everyone, send
from nemesis.work import content
from nemesis.world import World

_COMMAND = (sys.executable, "-P", "-m", "nemesis.consume")
_COUNT = 3
_PAUSE_S = 1.0
_QUIET_MS = 5_000


class Consumers:
    """In the place of a driver: as many consumers as there are names."""

    def __init__(self, world: World, met: Sequence[Met]) -> None:
        self._world, self._met = world, met
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.ends: list[End] = []
        self.asked_to_stop = False
        self._lives = 0
        self._began_s: dict[str, float] = {}
        self._due: dict[str, float] = {}
        self._journals: dict[str, Path] = {}

    def start(self) -> None:
        for number in range(_COUNT):
            self._start(f"consumer-{number}")

    def _start(self, name: str) -> None:
        world = self._world
        self._lives += 1
        self._began_s[name] = world.now
        options = consumer_options(world, name)
        path = world.logs / f"{name}.json"
        path.write_text(json.dumps(options))
        journal = self._journals[name] = world.logs / f"journal-{self._lives}"
        with (world.logs / f"{name}-{self._lives}.log").open("wb") as log:
            self.running[name] = subprocess.Popen(
                [*_COMMAND, path, world.topic, journal, world.copies_topic],
                stdout=log,
                stderr=log,
                env={**os.environ, **own_environment(world)},
                start_new_session=True,
            )

    def tick(self) -> None:
        world = self._world
        for name, process in list(self.running.items()):
            code = process.poll()
            if code is None:
                continue
            del self.running[name]
            if self.asked_to_stop:
                continue
            logs = sorted(world.logs.glob(f"{name}-*.log"), key=lambda each: each.stat().st_mtime)
            text = logs[-1].read_text(errors="replace").strip().rpartition("\n")[2]
            found = re.search(r"\b([A-Z][A-Z0-9]+(?:_[A-Z0-9]+)+)\b", text)
            why = "KILLED" if code == -9 else found[1] if found else f"EXIT_{code}"
            if code != -9:
                allowed = explained(self._met, world.now, self._began_s[name])
                self.ends.append(End(world.now, why, f"{name}: {text[:500]}", allowed))
                world.say(f"{name} ended with {why}: {text[:300]}")
            self._due[name] = world.now + _PAUSE_S
        for name, due in list(self._due.items()):
            if not self.asked_to_stop and world.now >= due:
                del self._due[name]
                self._start(name)

    def pids(self) -> list[Any]:
        return []

    def stop(self, timeout_s: float = 60) -> int | None:
        """How the worst of them ended that were there to be asked; None if one did not."""
        self.tick()
        self.asked_to_stop = True
        codes = []
        until = time.monotonic() + timeout_s
        while not all(path.exists() for path in self._journals.values()):
            if time.monotonic() > until:
                return None
            time.sleep(0.1)
        for process in self.running.values():
            process.send_signal(signal.SIGTERM)
        for process in self.running.values():
            try:
                codes.append(process.wait(timeout_s))
            except subprocess.TimeoutExpired:
                return None
        return max(codes, key=abs, default=0)

    def kill(self) -> None:
        send(everyone(self._world.run), signal.SIGKILL)
        for process in self.running.values():
            process.wait(60)


def consumer_options(world: World, name: str) -> dict[str, str]:
    return {
        **world.mode.options(),
        **world.client_options(),
        "kafka.sasl.password": f"file:{world.secret_file}",
        "kafka.bootstrap.servers": world.bootstrap,
        "kafka.group.id": world.run,
        "memberGroup": world.run,
        "commitTable": world.store.uri("commits"),
        "startingOffsets": "earliest",
        "failOnDataLoss": "false",
        "member.name": name,
    }


def not_committed(world: World) -> list[Place]:
    """What one more consumer of the group, who takes everything over, is handed."""
    producer = {} if world.copies_topic else None
    with Consumer(consumer_options(world, "one-more"), producer=producer) as consumer:
        consumer.assign({(world.topic, number): [] for number in range(world.partitions)})
        records = []
        while more := consumer.poll_records(_QUIET_MS):
            records += more
    return [Place(each.partition, each.offset, content(each.value).n) for each in records]


def journals(world: World) -> Iterator[list[dict[str, Any]]]:
    """What each process wrote; the last line of one that was killed may be half."""
    for path in sorted(world.logs.glob("journal-*"), key=lambda each: int(each.name[8:])):
        yield list(_lines(path))


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    for line in path.read_text().splitlines():
        try:
            yield json.loads(line)
        except ValueError:
            return


def consumed(world: World) -> list[Row]:
    """A row for each time that a record was committed, by when it was handed over.

    Of a process that was killed nobody knows whether its last commit landed: that counts where
    nobody else has committed the records."""
    rows: list[Row] = []
    open_ends: list[Row] = []
    for lines in journals(world):
        last: list[Row] = []
        for line in lines:
            if line["what"] == "committed":
                rows += _rows(line, world.run)
            last = _rows(line, world.run) if line["what"] == "handed" else []
        open_ends += last
    present = {row.place for row in rows}
    return rows + list({row.place: row for row in open_ends if row.place not in present}.values())


def _rows(line: dict[str, Any], run: str) -> list[Row]:
    # Within one handing over the order is that of the list.
    return [
        Row(Place(*place), key, run, (line["at"], at))
        for at, (place, key) in enumerate(zip(line["places"], line["keys"], strict=True))
    ]
