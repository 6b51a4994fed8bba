"""`python -m bench`: one embedded broker, every group in a process of its own, a table and JSON.

A process per group keeps one group's Spark session, page faults and machine code out of the next
one's figures, and a group that fails does not take the others with it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from bench import report
from bench.figures import Figure
from bench.registry import Group, Scale, all_groups
from bench.report import GroupResult
from keyrange.embedded.broker import EmbeddedBroker


def main() -> int:
    known = all_groups()
    arguments = _parse(known)
    chosen = [group for group in known if not arguments.only or group.name in arguments.only]
    scale: Scale = "tiny" if arguments.tiny else "quick" if arguments.quick else "full"
    run, machine, versions = report.run(scale), report.machine(), report.versions()
    results: list[GroupResult] = []
    if all(group.own_broker for group in chosen):
        results.extend(_run(group, scale, "") for group in chosen)
    else:
        with EmbeddedBroker(report=_progress) as broker:
            results.extend(_run(group, scale, broker.bootstrap_servers) for group in chosen)
    # Long names stay whole where the output is not a terminal.
    console = Console(width=None if sys.stdout.isatty() else 120)
    report.print_table(console, results, judged=scale != "tiny")
    if scale == "tiny":
        console.print("--tiny shows that the benchmark runs; its figures say nothing about speed.")
    if arguments.out:
        text = json.dumps(report.document(run, machine, versions, results), indent=1)
        arguments.out.write_text(text + "\n")
    return 1 if any(result.failed for result in results) else 0


def _parse(known: Sequence[Group]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.sh", description=__doc__)
    parser.add_argument(
        "--only",
        action="append",
        choices=[group.name for group in known],
        help="only this group; may be given several times",
    )
    parser.add_argument("--quick", action="store_true", help="fewer records and 3 runs")
    parser.add_argument("--tiny", action="store_true", help="a few thousand records, 1 run")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the figures as JSON")
    return parser.parse_args()


def _progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _run(group: Group, scale: Scale, bootstrap_servers: str) -> GroupResult:
    """Run a group in a process of its own and take over the figures it wrote, failed or not."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix=f"keyrange-bench-{group.name}-") as name:
        directory = Path(name)
        lines = directory / "figures.jsonl"
        work = directory / "work"
        work.mkdir()
        command = [sys.executable, "-m", "bench.group_process", group.name, scale]
        finished = subprocess.run(
            [*command, bootstrap_servers, str(work), str(lines)],
            # The group's stdout is Spark's too; the table is alone on this process's.
            stdout=sys.stderr,
            env=os.environ | {"PYSPARK_PYTHON": sys.executable},
            check=False,
        )
        texts = lines.read_text().splitlines() if lines.exists() else []
    figures = [Figure(**json.loads(text)) for text in texts]
    return GroupResult(group, figures, time.monotonic() - started, finished.returncode != 0)


if __name__ == "__main__":
    sys.exit(main())
