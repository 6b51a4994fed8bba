"""Named sets of jars, resolved once per user by the Ivy that pyspark brings.

Rule of this file: a jar set is either whole on disk or absent. It is built beside its place under a
lock that the kernel frees, then renamed into place with the list of its jars inside. No repository
is named here: Ivy's own defaults hold, or the settings file named by `KEYRANGE_IVY_SETTINGS`.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import quoteattr

from keyrange.errors import error, invalid_options
from keyrange.ranges.sharing.locks import lock_within

JAVA_VERSION_MIN = 17
KAFKA_VERSION = "4.3.1"
DELTA_VERSION = "4.4.0"
SPARK_VERSION = "4.2.0"
IVY_TIMEOUT_S = 1200
_REPORT_EVERY_S = 5.0
_MARKER = "complete.json"

Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class JarModule:
    """Maven coordinates. `transitive` says whether what it depends on is wanted too."""

    organisation: str
    name: str
    revision: str
    transitive: bool = True


@dataclass(frozen=True, slots=True)
class JarSet:
    """Jars that are wanted together, kept in `jars/<name>-<version>/`.

    `excluded` holds (organisation, name) of modules to leave out. With `beside_spark`, artifacts
    that Spark ships itself, in whatever version, are left out: two copies break a driver.
    """

    name: str
    version: str
    modules: tuple[JarModule, ...]
    excluded: tuple[tuple[str, str], ...] = ()
    beside_spark: bool = False


def kafka(version: str = KAFKA_VERSION) -> JarSet:
    """The Kafka server of a version, such as "4.3.1", with a logger to stderr."""
    return JarSet(
        name="kafka",
        version=version,
        modules=(
            JarModule("org.apache.kafka", "kafka_2.13", version),
            # Kafka's pom leaves the choice of a logger open, and without one it is mute.
            JarModule("org.slf4j", "slf4j-simple", "1.7.36"),
        ),
    )


def delta() -> JarSet:
    """Delta Lake for Spark, for `spark.jars`."""
    spark_minor = SPARK_VERSION.rpartition(".")[0]
    return JarSet(
        name="delta",
        version=DELTA_VERSION,
        modules=(JarModule("io.delta", f"delta-spark_{spark_minor}_2.13", DELTA_VERSION),),
        # Spark has each of these under another artifact's name, or in a newer version.
        excluded=(
            ("commons-logging", "commons-logging"),
            ("com.fasterxml.jackson.datatype", "jackson-datatype-jdk8"),
            ("javax.annotation", "javax.annotation-api"),
            ("org.roaringbitmap", "shims"),
        ),
        beside_spark=True,
    )


def spark_kafka() -> JarSet:
    """Spark's own Kafka connector, for `spark.jars`: what keyrange is compared with."""
    delegation = "spark-token-provider-kafka-0-10_2.13"
    return JarSet(
        name="spark-kafka",
        version=SPARK_VERSION,
        modules=(
            JarModule("org.apache.spark", "spark-sql-kafka-0-10_2.13", SPARK_VERSION),
            # Newer token providers are not published everywhere; this one has the same classes.
            JarModule("org.apache.spark", delegation, "4.0.0", transitive=False),
        ),
        excluded=(("org.apache.spark", delegation),),
        beside_spark=True,
    )


def spark_avro() -> JarSet:
    """Spark's own `from_avro`, for `spark.jars`: what keyrange's is compared with."""
    return JarSet(
        name="spark-avro",
        version=SPARK_VERSION,
        modules=(JarModule("org.apache.spark", "spark-avro_2.13", SPARK_VERSION),),
        excluded=(),
        beside_spark=True,
    )


def cache_dir() -> Path:
    """Where this user's jars and detached brokers live; not created here."""
    if own := os.environ.get("KEYRANGE_CACHE"):
        return Path(own).expanduser().absolute()
    if xdg := os.environ.get("XDG_CACHE_HOME"):
        return Path(xdg).expanduser().absolute() / "keyrange"
    return Path.home() / ".cache" / "keyrange"


def java_executable() -> Path:
    """The `java` of JAVA_HOME, else of PATH.

    Raises JAVA_NOT_FOUND when there is none, it does not run, or it is older than 17.
    """
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if found is None:
        raise error("JAVA_NOT_FOUND", "JAVA_HOME is not set and PATH holds no java")
    try:
        answer = subprocess.run(
            [found, "-version"], capture_output=True, text=True, timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError) as cause:
        raise error("JAVA_NOT_FOUND", "java does not run", path=found, cause=cause) from cause
    version = parse_java_version(answer.stderr + answer.stdout)
    if version < JAVA_VERSION_MIN:
        raise error("JAVA_NOT_FOUND", f"java is version {version}, too old", path=found)
    return Path(found)


def parse_java_version(text: str) -> int:
    """The feature version in what `java -version` prints: 8 of "1.8.0_292", 17 of "17.0.15".

    0 when there is none.
    """
    match = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(match[1]) if match else 0


def report_nothing(line: str) -> None:
    """The report of whoever does not want to hear."""
    del line


def resolve(jar_set: JarSet, report: Report = report_nothing) -> list[Path]:
    """The jars of a set, sorted by name, brought here first where they are not yet.

    `report` gets a line now and then while that takes time (about half a minute for Kafka). Raises
    JAVA_NOT_FOUND, PYSPARK_NOT_FOUND, or JARS_NOT_RESOLVED with the path of Ivy's log.
    """
    root = cache_dir() / "jars"
    path = root / f"{jar_set.name}-{jar_set.version}"
    if (jars := _complete(path)) is not None:
        return jars
    root.mkdir(parents=True, exist_ok=True)
    with _locked(root / "lock", report) as lock:
        # Another process may have brought them while this one waited for the lock.
        if (jars := _complete(path)) is not None:
            return jars
        with tempfile.TemporaryDirectory(prefix=f".{path.name}-", dir=root) as temporary:
            built = _build(jar_set, Path(temporary), root, lock, report)
            if path.exists():  # incomplete: someone removed a jar
                path.rename(Path(temporary) / "damaged")
            built.rename(path)
    jars = _complete(path)
    if jars is None:
        raise error("JARS_NOT_RESOLVED", "the jars vanished while they were put in place")
    return jars


def delta_confs(report: Report = report_nothing) -> dict[str, str]:
    """What a Spark of this machine is told to have Delta, with few partitions: its defaults and
    Delta's are for clusters, and tables here have some kilobytes. Raises what `resolve` raises."""
    return {
        "spark.jars": ",".join(map(str, resolve(delta(), report))),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.shuffle.partitions": "2",
        "spark.databricks.delta.snapshotPartitions": "2",
    }


def _complete(path: Path) -> list[Path] | None:
    try:
        names = json.loads((path / _MARKER).read_text())
    except (OSError, ValueError):
        return None
    jars = [path / name for name in names]
    return jars if all(jar.is_file() for jar in jars) else None


@contextlib.contextmanager
def _locked(path: Path, report: Report) -> Iterator[int]:
    """Hold the lock of the jar cache. One for all sets: Ivy's own cache is not process-safe."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if not lock_within(descriptor, fcntl.LOCK_EX, 0):
            report("waiting for another process that is resolving jars")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)


def _build(jar_set: JarSet, work: Path, root: Path, lock: int, report: Report) -> Path:
    """Run Ivy, and lay out the finished directory below `work`."""
    request = work / "ivy.xml"
    request.write_text(ivy_request(jar_set))
    retrieved = work / "retrieved"
    log = root / f"{jar_set.name}-{jar_set.version}.ivy.log"
    _run_ivy(jar_set, request, retrieved, log, lock, report)
    spark_jars = [jar.name for jar in pyspark_jars().glob("*.jar")] if jar_set.beside_spark else []
    built = work / "built"
    built.mkdir()
    for jar in sorted(retrieved.glob("*/*.jar")):
        if not is_shipped(jar.parent.name, spark_jars):
            jar.rename(built / jar.name)
    names = sorted(jar.name for jar in built.iterdir())
    if not names:
        raise error("JARS_NOT_RESOLVED", "Ivy brought no jar", jars=jar_set.name, log=log)
    (built / _MARKER).write_text(json.dumps(names, indent=1))
    return built


def is_shipped(artifact: str, jar_names: Sequence[str]) -> bool:
    """Whether some version of an artifact is among jar file names."""
    named = re.compile(re.escape(artifact) + r"-\d.*\.jar")
    return any(named.fullmatch(name) for name in jar_names)


def pyspark_jars() -> Path:
    """The jar directory of the installed pyspark, else of SPARK_HOME; pyspark is not imported."""
    spec = importlib.util.find_spec("pyspark")
    homes = list(spec.submodule_search_locations or ()) if spec else []
    homes += [home for home in [os.environ.get("SPARK_HOME")] if home]
    for home in homes:
        if any((Path(home) / "jars").glob("ivy-*.jar")):
            return Path(home) / "jars"
    raise error("PYSPARK_NOT_FOUND", "no pyspark with an Ivy jar is installed")


def ivy_request(jar_set: JarSet) -> str:
    """The Ivy file that asks for a jar set."""
    lines = ['<ivy-module version="2.0">', '<info organisation="keyrange" module="jars"/>']
    lines += ['<configurations><conf name="default"/></configurations>', "<dependencies>"]
    for module in jar_set.modules:
        lines.append(
            f"<dependency org={quoteattr(module.organisation)} name={quoteattr(module.name)}"
            f' rev={quoteattr(module.revision)} force="true" conf="default->default"'
            f" transitive={quoteattr(str(module.transitive).lower())}>"
        )
        # Per dependency: an exclusion for the whole file would drop the modules asked for by name.
        lines += [
            f"<exclude org={quoteattr(organisation)} module={quoteattr(name)}/>"
            for organisation, name in jar_set.excluded
            if name != module.name
        ]
        lines.append("</dependency>")
    return "\n".join([*lines, "</dependencies>", "</ivy-module>", ""])


def _ivy_command(request: Path, retrieved: Path, ivy_home: Path) -> list[str]:
    ivy = sorted(pyspark_jars().glob("ivy-*.jar"))[-1]
    command = [str(java_executable()), f"-Divy.default.ivy.user.dir={ivy_home}", "-jar", str(ivy)]
    if settings := os.environ.get("KEYRANGE_IVY_SETTINGS"):
        if not Path(settings).is_file():
            raise invalid_options(f"KEYRANGE_IVY_SETTINGS: {settings} is not a file")
        command += ["-settings", settings]
    pattern = f"{retrieved}/[artifact]/[artifact]-[revision](-[classifier]).[ext]"
    command += ["-cache", str(ivy_home / "cache"), "-ivy", str(request), "-confs", "default"]
    # Bundles are jars whose packaging Maven calls something else.
    return [*command, "-types", "jar", "bundle", "-retrieve", pattern]


def _run_ivy(
    jar_set: JarSet, request: Path, retrieved: Path, log: Path, lock: int, report: Report
) -> None:
    command = _ivy_command(request, retrieved, cache_dir() / "ivy")
    title = f"resolving {jar_set.name} {jar_set.version}"
    report(f"{title} with Ivy")
    started = last_report = time.monotonic()
    with log.open("wb") as output:
        # The lock goes along: should this process be killed, Ivy still keeps the others out.
        ivy = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            pass_fds=[lock],
        )
        try:
            while (code := _wait(ivy)) is None:
                now = time.monotonic()
                if now - started > IVY_TIMEOUT_S:
                    raise error(
                        "JARS_NOT_RESOLVED", f"{title} took over {IVY_TIMEOUT_S} s", log=log
                    )
                if now - last_report >= _REPORT_EVERY_S:
                    last_report = now
                    found = log.read_text(errors="replace").count("\tfound ")
                    report(f"{title}: {found} modules found after {now - started:.0f} s")
        finally:
            if ivy.poll() is None:
                ivy.kill()
                ivy.wait()
    if code != 0:
        tail = " | ".join(_problems(log.read_text(errors="replace")))
        raise error("JARS_NOT_RESOLVED", f"{title} failed: {tail}", log=log)
    report(f"{title}: done in {time.monotonic() - started:.0f} s")


def _wait(process: subprocess.Popen[bytes]) -> int | None:
    try:
        return process.wait(timeout=0.5)
    except subprocess.TimeoutExpired:
        return None


def _problems(log: str) -> list[str]:
    """The lines that matter of Ivy's log, else its last ones."""
    lines = [line.strip(" \t:") for line in log.splitlines()]
    telling = [line for line in lines if re.search(r"UNRESOLVED|not found|FAILED|ERROR", line)]
    return (telling or [line for line in lines if line])[-3:]
