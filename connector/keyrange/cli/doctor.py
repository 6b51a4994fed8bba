"""`keyrange doctor`: is everything here that the source needs, and does the cluster answer?"""

from __future__ import annotations

import pkgutil
import platform
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Annotated, Any

import typer

from keyrange.cli.arguments import named_values
from keyrange.cli.exit_codes import ExitCode
from keyrange.cli.render import OutputFormat, OutputOption, by_name, print_as, print_table, table_of
from keyrange.cli.values import now
from keyrange.errors import KeyrangeError
from keyrange.model.offsets import EARLIEST, LATEST
from keyrange.model.subscription import Subscribe
from keyrange.options import check_names, parse_options
from keyrange.text.packages import install_line, unfit_delta

if TYPE_CHECKING:
    from keyrange.kafka.cluster import Cluster
    from keyrange.kafka.cluster_view import Broker

OK, MISSING, FAILED = "ok", "not there", "failed"
_DETAIL_CHARACTERS_MAX = 500
_PACKAGES = ("keyrange", "pyspark", "pyarrow", "numba", "cramjam", "kafka-python", "deltalake")


# A line: what was looked at (check), how it is (state), and what to know about it (detail).
CheckResult = dict[str, str]


def doctor(
    bootstrap_servers: Annotated[
        str, typer.Option(metavar="HOST:PORT,...", help="Also look at this cluster.")
    ] = "",
    topic: Annotated[
        str, typer.Option(metavar="TOPIC,...", help="Also look at these topics.")
    ] = "",
    option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="An option of the source, such as kafka.*; VALUE may be @FILE, for secrets.",
        ),
    ] = None,
    output: OutputOption = OutputFormat.TEXT,
) -> None:
    """Check Python, Java, Spark and jars, a cluster and its topics."""
    if topic and not bootstrap_servers:
        raise typer.BadParameter("--topic needs --bootstrap-servers")
    options = named_values(option or [])
    findings = list(_environment())
    if not bootstrap_servers:
        findings += _all("options", partial(_names, options))
    else:
        options["kafka.bootstrap.servers"] = bootstrap_servers
        findings += _all("cluster", partial(_cluster, options, topic))
    print_as(output, "doctor/1", {"findings": findings}, _show)
    if any(finding["state"] == FAILED for finding in findings):
        raise typer.Exit(ExitCode.FINDING)


def _line(check: str, state: str, detail: str) -> CheckResult:
    return {"check": check, "state": state, "detail": detail}


def _show(document: Mapping[str, Any]) -> None:
    columns = by_name("check", "state", "detail")
    print_table("keyrange doctor", *table_of(columns, document["findings"]))


def _environment() -> Iterator[CheckResult]:
    yield _line("Python", OK, platform.python_version())
    for package in _PACKAGES:
        try:
            yield _line(package, OK, version(package))
        except PackageNotFoundError:
            needed = package not in ("pyspark", "deltalake")
            detail = "not installed in this Python"
            if package == "deltalake":
                detail += f", for jobs, commit tables and member tables: {install_line('commits')}"
            yield _line(package, FAILED if needed else MISSING, detail)
    yield from _all("Java", _java)
    yield from _all("kernels", _kernels)
    yield from _all('format("keyrange")', _discovery)
    yield from _all("jars", _jars)


def _java() -> Iterator[CheckResult]:
    from keyrange.embedded.jars import java_executable

    yield _line("Java", OK, str(java_executable()))


def _kernels() -> Iterator[CheckResult]:
    """The compiled passes: loaded, or compiled now, which the first task would have to do."""
    began = time.monotonic()
    from keyrange.wire import record_kernels

    in_software = record_kernels.crc32c is record_kernels.crc32c_in_software
    crc = "in software" if in_software else "in hardware"
    yield _line("kernels", OK, f"ready in {time.monotonic() - began:.1f} s, CRC32C {crc}")


def _discovery() -> Iterator[CheckResult]:
    """Spark looks through top-level packages whose name begins with pyspark_."""
    state, detail = OK, "visible to Spark's lookup, without a register call"
    if "pyspark_keyrange" not in {module.name for module in pkgutil.iter_modules()}:
        state, detail = MISSING, "not visible to Spark's lookup: call keyrange.register(spark)"
    yield _line('format("keyrange")', state, detail)


def _jars() -> Iterator[CheckResult]:
    from keyrange.embedded import jars

    try:
        spark = version("pyspark")
    except PackageNotFoundError:
        # The command line alone needs none, and what is not there has no wrong jars.
        spark = jars.SPARK_VERSION
    for jar_set in (jars.kafka(), jars.delta()):
        path = jars.cache_dir() / "jars" / f"{jar_set.name}-{jar_set.version}"
        there = (OK, str(path)) if path.is_dir() else (MISSING, "resolved when first needed")
        # pip knows of no jars, and they say nothing before a table is read.
        if unfit := unfit_delta(jar_set.modules[0].name, spark):
            there = (MISSING, f"{unfit}: {install_line('spark,delta')} brings one that fits")
        yield _line(f"jars: {jar_set.name} {jar_set.version}", *there)


def _all(check: str, look: Callable[[], Iterable[CheckResult]]) -> Iterator[CheckResult]:
    """What a look finds up to where it fails, and the failure: whatever it was, one paragraph. This
    command is for places where things are broken."""
    try:
        yield from look()
    except Exception as failure:
        text = " ".join(str(failure).split())
        if not isinstance(failure, KeyrangeError):
            text = f"{type(failure).__name__}: {text}"[:_DETAIL_CHARACTERS_MAX]
        yield _line(check, FAILED, text)


def _names(options: dict[str, str]) -> Iterable[CheckResult]:
    """What is given and asked of no cluster is looked at by name."""
    check_names(options)
    return ()


def _cluster(options: dict[str, str], topic: str) -> Iterator[CheckResult]:
    from keyrange.kafka.cluster import Cluster

    # A name is required of the source; the cluster itself is looked at without one.
    parsed = parse_options({**options, "subscribe": topic or "none"})
    with closing(Cluster(parsed.client)) as cluster:
        began = time.monotonic()
        view = cluster.describe([])
        took_ms = (time.monotonic() - began) * 1000
        yield _line("cluster", OK, f"{view.cluster_id or 'no id'}, answered in {took_ms:.0f} ms")
        for broker in sorted(view.brokers.values(), key=lambda each: each.node_id):
            yield from _all(f"broker {broker.node_id}", partial(_broker, cluster, broker))
        named = parsed.subscription.topics if isinstance(parsed.subscription, Subscribe) else ()
        for name in named if topic else ():
            yield from _all(f"topic {name}", partial(_topic, cluster, name))


def _topic(cluster: Cluster, name: str) -> Iterator[CheckResult]:
    from keyrange.cli.watch.reasons import describe_held, held_text
    from keyrange.kafka.open_transactions import held_back

    view = cluster.describe([name])
    partitions = view.partitions()
    first = cluster.list_offsets(view, dict.fromkeys(partitions, EARLIEST))
    last = cluster.list_offsets(view, dict.fromkeys(partitions, LATEST))
    held = held_back(cluster, view, partitions)
    for partition in partitions:
        low, high = first[partition][0], last[partition][0]
        detail = f"offsets [{low}, {high}), {high - low} in all"
        if partition in held:
            detail += f"; {held_text(describe_held(held[partition], now()))}"
        yield _line(str(partition), OK, detail)


def _broker(cluster: Cluster, broker: Broker) -> Iterator[CheckResult]:
    version = cluster.connection(broker.host, broker.port).fetch_version()
    detail = f"{broker.host}:{broker.port}, Fetch v{version}"
    yield _line(f"broker {broker.node_id}", OK, detail)
