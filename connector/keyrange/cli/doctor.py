"""`keyrange doctor`: is everything here that the source needs, and does the cluster answer?"""

from __future__ import annotations

import pkgutil
import platform
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Annotated

import typer

from keyrange.cli.render import OutputFormat, OutputOption, make_output
from keyrange.errors import KeyrangeError

if TYPE_CHECKING:
    from keyrange.kafka.cluster import Cluster
    from keyrange.kafka.view import Broker

OK, MISSING, FAILED = "ok", "not there", "failed"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line: what was looked at, how it is, and what to know about it."""

    check: str
    state: str
    detail: str


def doctor(
    bootstrap_servers: Annotated[
        str, typer.Option(metavar="HOST:PORT,...", help="Also look at this cluster.")
    ] = "",
    topic: Annotated[
        str, typer.Option(metavar="TOPIC,...", help="Also look at these topics.")
    ] = "",
    option: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="An option of the source, such as kafka.*"),
    ] = None,
    output: OutputOption = OutputFormat.TEXT,
) -> None:
    """Check Python, Java, Spark, the jars, and, where given, a cluster and its topics."""
    findings = list(_environment())
    if bootstrap_servers:
        options = dict(each.partition("=")[::2] for each in option or [])
        options["kafka.bootstrap.servers"] = bootstrap_servers
        findings += _cluster(options, topic)
    elif topic:
        raise typer.BadParameter("--topic needs --bootstrap-servers")
    if output is OutputFormat.JSON:
        import json

        print(json.dumps([asdict(finding) for finding in findings]))
    else:
        rows = [[finding.check, finding.state, finding.detail] for finding in findings]
        make_output(output).table("keyrange doctor", ["check", "state", "detail"], rows)
    if any(finding.state == FAILED for finding in findings):
        raise typer.Exit(1)


def _environment() -> Iterator[Finding]:
    yield Finding("Python", OK, platform.python_version())
    for package in ("keyrange", "pyspark", "pyarrow", "numba", "cramjam", "kafka-python"):
        try:
            yield Finding(package, OK, version(package))
        except PackageNotFoundError:
            needed = package != "pyspark"
            yield Finding(package, FAILED if needed else MISSING, "not installed in this Python")
    yield _try("Java", _java)
    yield _try("kernels", _kernels)
    yield _discovery()
    yield from _jars()


def _java() -> str:
    from keyrange.embedded.jars import java_executable

    return str(java_executable())


def _kernels() -> str:
    """The compiled passes: loaded, or compiled now, which the first task would have to do."""
    began = time.monotonic()
    from keyrange.wire import kernels

    crc = "in hardware" if kernels.crc32c is not kernels.crc32c_in_software else "in software"
    return f"ready in {time.monotonic() - began:.1f} s, CRC32C {crc}"


def _discovery() -> Finding:
    """Spark looks through top-level packages whose name begins with pyspark_."""
    names = {module.name for module in pkgutil.iter_modules() if module.name.startswith("pyspark_")}
    if "pyspark_keyrange" in names:
        return Finding('format("keyrange")', OK, "Spark finds it without a register call")
    return Finding(
        'format("keyrange")',
        MISSING,
        "not visible to Spark's lookup: call spark.dataSource.register(KeyRangeDataSource)",
    )


def _jars() -> Iterator[Finding]:
    from keyrange.embedded import jars

    for jar_set in (jars.kafka(), jars.delta()):
        place = jars.cache_dir() / "jars" / f"{jar_set.name}-{jar_set.version}"
        state = OK if place.is_dir() else MISSING
        detail = str(place) if place.is_dir() else "resolved when first needed"
        yield Finding(f"jars: {jar_set.name} {jar_set.version}", state, detail)


def _try(check: str, look: Callable[[], str]) -> Finding:
    try:
        return Finding(check, OK, look())
    except KeyrangeError as failure:
        return Finding(check, FAILED, str(failure))


def _cluster(options: dict[str, str], topic: str) -> list[Finding]:
    from keyrange.core.offsets import EARLIEST, LATEST
    from keyrange.core.subscription import Subscribe
    from keyrange.kafka.cluster import Cluster
    from keyrange.options import parse_options

    # A name is required of the source; the cluster itself is looked at without one.
    parsed = parse_options({**options, "subscribe": topic or "none"})
    cluster = Cluster(parsed.client)
    findings: list[Finding] = []
    try:
        began = time.monotonic()
        view = cluster.describe([])
        took_ms = (time.monotonic() - began) * 1000
        findings.append(
            Finding("cluster", OK, f"{view.cluster_id or 'no id'}, answered in {took_ms:.0f} ms")
        )
        for broker in sorted(view.brokers.values(), key=lambda each: each.node_id):
            findings.append(_try(f"broker {broker.node_id}", partial(_broker, cluster, broker)))
        named = parsed.subscription.topics if isinstance(parsed.subscription, Subscribe) else ()
        for name in named if topic else ():
            view = cluster.describe([name])
            partitions = view.partitions()
            first = cluster.list_offsets(view, dict.fromkeys(partitions, EARLIEST))
            last = cluster.list_offsets(view, dict.fromkeys(partitions, LATEST))
            for partition in partitions:
                low, high = first[partition][0], last[partition][0]
                findings.append(
                    Finding(str(partition), OK, f"offsets [{low}, {high}), {high - low} in all")
                )
    except KeyrangeError as failure:
        findings.append(Finding("cluster" if not findings else "topics", FAILED, str(failure)))
    finally:
        cluster.close()
    return findings


def _broker(cluster: Cluster, broker: Broker) -> str:
    connection = cluster.connection(broker.host, broker.port)
    return f"{broker.host}:{broker.port}, Fetch v{connection.fetch_version()}"
