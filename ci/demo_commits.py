"""The demo of individual commits: flights through `jobs/process.py`, killed twice, and the proof.

One carrier's records are broken and end in the dead letters; one's need a service that is down
until the second kill; one's are slow. Every other flight goes on meanwhile.
"""

from __future__ import annotations

import json
import operator
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import deltalake
from rich.table import Table

from demo import (
    BATCH_OFFSETS,
    ROOT,
    TOPIC,
    console,
    end_group,
    flights,
    lines_of,
    main,
    produce,
    submit,
)
from flights import BROKEN, SCHEMA
from keyrange.embedded.broker import EmbeddedBroker

KILLS = (2, 2)


class Demo:
    """The places of one run, and what is done there."""

    def __init__(self, home: Path, bootstrap_servers: str) -> None:
        self.home = home
        self.bootstrap_servers = bootstrap_servers
        self.commits = home / "commits"
        self.outage = home / "outage"

    def process(self, kill_after: int | None) -> None:
        """Run the job to its end, or until so many batches are done; then kill it."""
        arguments = [
            *("--bootstrap-servers", self.bootstrap_servers, "--topic", TOPIC),
            *("--function", "flights:flown", "--schema", SCHEMA),
            *("--table", str(self.home / "table"), "--checkpoint", str(self.home / "checkpoint")),
            *("--commit-table", str(self.commits), "--available-now"),
            *("--option", f"maxOffsetsPerTrigger={BATCH_OFFSETS}"),
            *("--option", "splitBy=keyRange", "--option", "keyRangesPerPartition=8"),
            *("--option", "maxDeliveries=4", "--option", "redelivery.backoff=3s"),
            *("--option", "availableNow.redelivery=drain"),
        ]
        environment = {
            "FLIGHTS_OUTAGE": str(self.outage),
            "PYTHONPATH": os.pathsep.join([str(ROOT / "jobs"), os.environ.get("PYTHONPATH", "")]),
        }
        process = submit("process.py", arguments, self.home, environment)
        batches = 0
        try:
            for line in lines_of(process):
                batches += bool(re.search(r"batch \d+: ", line))
                if batches == kill_after:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
                    console.print(f"[bold red]kill -9[/bold red] after {batches} batches")
                    return
        finally:
            end_group(process)

    def keyrange(self, *arguments: str) -> None:
        """Show what a command of keyrange prints."""
        shown = " ".join(arguments).replace(str(self.home), "HOME")
        console.print(f"[bold]keyrange[/bold] {shown}", soft_wrap=True)
        command = [str(Path(sys.executable).parent / "keyrange"), *arguments]
        result = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        console.print(result.stdout.rstrip(), highlight=False, markup=False)
        if result.returncode:
            raise SystemExit(f"demo: keyrange {arguments[0]} {arguments[1]} failed")

    def check(self, values: Sequence[bytes]) -> list[str]:
        """Compare the table with what was written; says what is wrong."""
        table = deltalake.DeltaTable(str(self.home / "table")).to_pyarrow_table()
        dead = deltalake.DeltaTable(f"{self.commits}_dead_letters").to_pyarrow_table().to_pylist()
        written = Counter(_flight(json.loads(value)) for value in values)
        broken = Counter({each: n for each, n in written.items() if each[0] == BROKEN})
        found = Counter(_flight(row) for row in table.to_pylist())
        given_up = Counter(_flight(json.loads(value)) for value in _given_up(dead))
        wrong = []
        if found != written - broken:
            wrong.append(
                f"{(written - broken - found).total():,} flights are missing in the table, "
                f"{(found - (written - broken)).total():,} are there too often"
            )
        if given_up != broken:
            wrong.append(f"{given_up.total():,} dead letters, {broken.total():,} broken flights")
        summary = Table(title="What came of it", title_justify="left", show_header=False)
        for name, value in (
            ("flights", f"{written.total():,}"),
            ("rows in the Delta table", f"{found.total():,}"),
            (f"dead letters (carrier {BROKEN})", f"{given_up.total():,}"),
            ("every flight exactly once", "no: " + "; ".join(wrong) if wrong else "yes"),
        ):
            summary.add_row(name, value)
        console.print(summary)
        return wrong


def _given_up(letters: Sequence[dict[str, Any]]) -> list[bytes]:
    """The values of the dead letters that were not replayed."""
    name = operator.itemgetter("source_id", "batch_id", "topic", "partition", "offset")
    replayed = {name(each) for each in letters if each["kind"] == "replayed"}
    return [e["value"] for e in letters if e["kind"] == "dead" and name(e) not in replayed]


def _flight(row: dict[str, object]) -> tuple[object, ...]:
    tail = row["tail"] if "tail" in row else row["tailnum"]
    return row["carrier"], row["flight"], tail, row["origin"], row["dest"]


def run(home: Path) -> int:
    console.print("[bold]keyrange demo[/bold]: a function that fails, a job that is killed")
    keys, values = flights()
    with EmbeddedBroker(report=console.print) as broker:
        produce(broker.bootstrap_servers, keys, values)
        demo = Demo(home, broker.bootstrap_servers)
        demo.outage.touch()
        for batches in KILLS:
            demo.process(batches)
            demo.keyrange("commits", "show", str(demo.commits))
        demo.keyrange("commits", "gaps", str(demo.commits), "--limit", "5")
        demo.outage.unlink()
        console.print("the service is back: what was given up for it is handed out again")
        demo.keyrange(
            *("deadletters", "replay", str(demo.commits), "--error", "ServiceDown"),
            *("--why", "the service is back", "--confirm"),
        )
        demo.process(None)
        demo.keyrange("commits", "show", str(demo.commits))
        demo.keyrange("commits", "history", str(demo.commits))
        demo.keyrange("deadletters", "list", str(demo.commits), "--limit", "5")
        wrong = demo.check(values)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(run, "Flights through a function that fails, in a job that is killed twice."))
