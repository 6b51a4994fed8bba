"""The results as a table for people and as JSON, and what machine and versions they come from."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table

from bench.figures import Figure
from bench.registry import REPETITIONS, Group, Scale
from keyrange.embedded import jars

_PACKAGES = ("keyrange", "pyspark", "kafka-python", "pyarrow", "numpy", "numba", "cramjam")


@dataclass(frozen=True, slots=True)
class GroupResult:
    """The figures of one group, and how long they took. `failed` says that some are missing."""

    group: Group
    figures: list[Figure]
    seconds: float
    failed: bool


def run(scale: Scale) -> dict[str, Any]:
    """What was run, of which commit, and when it began."""
    return {
        "scale": scale,
        "repetitions": REPETITIONS[scale],
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _git("rev-parse", "HEAD"),
        "changed": bool(_git("status", "--porcelain", "--untracked-files=no")),
    }


def _git(*arguments: str) -> str | None:
    """What git says of the tree that is measured; nothing where it is no checkout."""
    tree = Path(__file__).parent
    try:
        answer = subprocess.run(
            ["git", "-C", str(tree), *arguments], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return answer.stdout.strip()


def machine() -> dict[str, Any]:
    """The machine, as far as it matters to the figures."""
    load_1_min = os.getloadavg()[0]
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(psutil.virtual_memory().total / 2**30, 1),
        "system": f"{platform.system()} {platform.release()}",
        "architecture": platform.machine(),
        "load_at_start": round(load_1_min, 2),
    }


def versions() -> dict[str, str]:
    """What was measured, and on what it ran."""
    found = {"python": platform.python_version(), "java": _java_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    found["kafka"] = jars.KAFKA_VERSION
    found["spark-sql-kafka-0-10"] = jars.SPARK_VERSION
    return found


def _cpu_model() -> str:
    try:
        match = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
    except OSError:
        match = None
    return match[1] if match else platform.processor() or "unknown"


def _java_version() -> str:
    answer = subprocess.run(
        [jars.java_executable(), "-version"], capture_output=True, text=True, check=True
    )
    match = re.search(r'version "([^"]+)"', answer.stderr + answer.stdout)
    return match[1] if match else "unknown"


def document(
    run: dict[str, Any],
    machine: dict[str, Any],
    versions: dict[str, str],
    results: Sequence[GroupResult],
) -> dict[str, Any]:
    """The JSON form of a run, from which `bench.pages` writes the tables of the pages."""
    return {
        "run": run,
        "machine": machine,
        "versions": versions,
        "groups": [
            {
                "name": result.group.name,
                "seconds": round(result.seconds, 1),
                "failed": result.failed,
            }
            for result in results
        ],
        "figures": [
            {
                "group": result.group.name,
                "name": figure.name,
                "value": _rounded(figure.value),
                "unit": figure.unit,
                "min": _rounded(figure.minimum),
                "max": _rounded(figure.maximum),
                "runs": figure.runs,
                "samples": [_rounded(sample) for sample in figure.samples],
            }
            for result in results
            for figure in result.figures
        ],
    }


def _rounded(number: float) -> float:
    return float(f"{number:.4g}")


def print_table(console: Console, results: Iterable[GroupResult], judged: bool = True) -> None:
    """Every figure with its target, met or missed; not `judged` where the runs were too short."""
    table = Table("figure", box=None, pad_edge=False)
    for heading in ("value", "unit", "min..max", "runs", "target", ""):
        words = heading in ("unit", "")
        table.add_column(heading, justify="left" if words else "right", no_wrap=True)
    for result in results:
        table.add_section()
        for figure in result.figures:
            target = result.group.targets.get(figure.name) if judged else None
            table.add_row(
                figure.name,
                _text(figure.value),
                figure.unit,
                f"{_text(figure.minimum)}..{_text(figure.maximum)}",
                str(figure.runs),
                str(target) if target else "",
                _verdict(target.met(figure.value)) if target else "",
            )
        if result.failed:
            table.add_row(f"[red]{result.group.name}: failed, figures are missing[/]")
    console.print(table)
    times = ", ".join(f"{result.group.name} {result.seconds:.0f} s" for result in results)
    console.print(f"took: {times}")


def _text(number: float) -> str:
    return f"{number:,.0f}" if number >= 1000 else f"{number:.3g}"


def _verdict(met: bool) -> str:
    return "[green]met[/]" if met else "[red]missed[/]"
