"""A resource manager and two node managers, each of them on a host of its own: with a host name of
its own, and a `slot.directory` of its own under the same path."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

import psutil

from brokers.real_broker import wait_until
from keyrange.embedded import jars
from keyrange.embedded.process import HOST, free_ports
from queries.ingesting import cmdline

# The Hadoop of Spark 4.2's own client.
HADOOP_VERSION = "3.5.0"
MASTER = "master"
NODES = ("node1", "node2")
_MAIN = "org.apache.hadoop.yarn.server"


@dataclass(frozen=True)
class YarnCluster:
    """`home/conf` is HADOOP_CONF_DIR; `nodes` are the node managers' processes by host name."""

    home: Path
    nodes: dict[str, int]
    java_options: str

    @property
    def environment(self) -> dict[str, str]:
        """Of who submits."""
        return {
            "HADOOP_CONF_DIR": str(self.home / "conf"),
            "JAVA_TOOL_OPTIONS": self.java_options,
        }

    @property
    def confs(self) -> dict[str, str]:
        """Spark's, as far as they belong to this cluster and not to the job."""
        return {
            "spark.yarn.jars": f"local:{jars.pyspark_jars()}/*",
            "spark.yarn.stagingDir": f"file:{self.home}/staging",
            "spark.yarn.am.memory": "512m",
            "spark.yarn.appMasterEnv.SPARK_LOCAL_IP": HOST,
            "spark.executor.memory": "512m",
            "spark.executor.memoryOverhead": "768m",
            "spark.executor.instances": "2",
        }

    def processes(self, text: str) -> list[psutil.Process]:
        """The containers' JVMs that have a text in their command line, the oldest first."""
        found = []
        for node in self.nodes.values():
            for process in psutil.Process(node).children(recursive=True):
                program, *rest = cmdline(process) or [""]
                if Path(program).name == "java" and any(text in each for each in rest):
                    found.append(process)
        return sorted(found, key=lambda each: each.create_time())

    def text(self) -> str:
        """What the managers and the containers have written."""
        paths = sorted(self.home.glob("*.log")) + sorted(self.home.glob("logs-*/*/*/*"))
        return "\n".join(f"== {path}\n{path.read_text(errors='replace')}" for path in paths)


def yarn_jars() -> list[Path]:
    """Hadoop's servers, and Spark's own client of them with what logs."""
    modules = (
        jars.JarModule("org.apache.hadoop", "hadoop-client-minicluster", HADOOP_VERSION, False),
        # Beside the servers in their one jar, which leaves it to others.
        jars.JarModule("org.bouncycastle", "bcpkix-jdk18on", "1.78.1"),
    )
    servers = jars.resolve(jars.JarSet("hadoop-minicluster", HADOOP_VERSION, modules))
    spark = jars.pyspark_jars()
    beside = ("hadoop-client-*", "slf4j-api-*", "jcl-over-slf4j-*", "log4j-*")
    return [*servers, *(path for each in beside for path in sorted(spark.glob(f"{each}.jar")))]


@contextmanager
def yarn_cluster(home: Path, slots: Path) -> Iterator[YarnCluster]:
    """`slots` is a path at which each host has a directory to itself, `slots` with its name."""
    home.mkdir()
    addresses = [HOST, *(f"127.0.0.{10 + number}" for number, _ in enumerate(NODES, 1))]
    hosts = home / "hosts"
    lines = [f"{ip} {name}\n" for ip, name in zip(addresses, (MASTER, *NODES), strict=True)]
    hosts.write_text(f"{HOST} localhost {socket.gethostname()}\n" + "".join(lines))
    options = f"{os.environ['JAVA_TOOL_OPTIONS']} -Djdk.net.hosts.file={hosts}"
    _write_conf(home / "conf", free_ports(5))
    slots.mkdir(mode=0o755, exist_ok=True)
    started: dict[str, subprocess.Popen[bytes]] = {}
    try:
        started[MASTER] = _start(
            home, options, MASTER, [], f"{_MAIN}.resourcemanager.ResourceManager"
        )
        for name in NODES:
            own = slots.with_name(f"{slots.name}-{name}")
            own.mkdir(exist_ok=True)
            host = ["unshare", "--mount", "--uts", "--propagation", "private", "sh", "-c"]
            host += ['hostname "$1" && mount --bind "$2" "$3" && shift 3 && exec "$@"']
            host += ["host", name, str(own), str(slots)]
            started[name] = _start(home, options, name, host, f"{_MAIN}.nodemanager.NodeManager")
        log = home / f"{MASTER}.log"

        def registered() -> bool:
            for name, process in started.items():
                assert process.poll() is None, (home / f"{name}.log").read_text()[-3000:]
            return all(f"{name}:" in _registered(log) for name in NODES)

        wait_until(registered)
        yield YarnCluster(home, {name: started[name].pid for name in NODES}, options)
    finally:
        for process in reversed(started.values()):
            _end(process)


def _registered(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()
    return "\n".join(line for line in lines if "Node Transitioned from NEW to RUNNING" in line)


def _start(
    home: Path, options: str, name: str, prefix: Sequence[str], main: str
) -> subprocess.Popen[bytes]:
    classes = [home / "conf", *yarn_jars()]
    command = [str(jars.java_executable()), "-Xmx256m", f"-Dnode={name}"]
    command += [f"-Dlog4j2.configurationFile={home / 'conf' / 'log4j2.properties'}"]
    command += ["-cp", os.pathsep.join(map(str, classes)), main]
    java_home = str(jars.java_executable().resolve().parent.parent)
    with (home / f"{name}.log").open("ab") as log:
        return subprocess.Popen(
            [*prefix, *command],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=home,
            env={**os.environ, "JAVA_HOME": java_home, "JAVA_TOOL_OPTIONS": options},
            start_new_session=True,
        )


def _end(process: subprocess.Popen[bytes]) -> None:
    """kill -9 of a manager with all that it has started."""
    family = [process.pid]
    if process.poll() is None:
        family += [each.pid for each in psutil.Process(process.pid).children(recursive=True)]
    for pid in family:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait(120)


def _write_conf(conf: Path, ports: Sequence[int]) -> None:
    conf.mkdir()
    # What their web pages would be served from.
    for name in ("cluster", "node"):
        (conf / "webapps" / name).mkdir(parents=True)
    services = ("", ".scheduler", ".resource-tracker", ".admin", ".webapp")
    masters = {
        f"yarn.resourcemanager{service}.address": f"{HOST}:{port}"
        for service, port in zip(services, ports, strict=True)
    }
    home = conf.parent
    nodes = {
        f"yarn.nodemanager{service}.address": "${node}:0"
        for service in ("", ".localizer", ".webapp")
    }
    passed = "JAVA_HOME,JAVA_TOOL_OPTIONS,HADOOP_CONF_DIR"
    _write(
        conf / "yarn-site.xml",
        masters
        | nodes
        | {
            "yarn.resourcemanager.hostname": HOST,
            "yarn.nodemanager.hostname": "${node}",
            "yarn.nodemanager.local-dirs": f"{home}/local-${{node}}",
            "yarn.nodemanager.log-dirs": f"{home}/logs-${{node}}",
            # Two executors do not fit on one host.
            "yarn.nodemanager.resource.memory-mb": "2304",
            "yarn.nodemanager.resource.cpu-vcores": "4",
            "yarn.scheduler.minimum-allocation-mb": "128",
            "yarn.nodemanager.vmem-check-enabled": "false",
            "yarn.nodemanager.env-whitelist": passed,
            "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": "99",
            "yarn.nodemanager.delete.debug-delay-sec": "0",
        },
    )
    _write(conf / "core-site.xml", {"fs.defaultFS": "file:///", "hadoop.tmp.dir": f"{home}/tmp"})
    queue = "yarn.scheduler.capacity.root"
    _write(
        conf / "capacity-scheduler.xml",
        {
            f"{queue}.queues": "default",
            f"{queue}.default.capacity": "100",
            "yarn.scheduler.capacity.maximum-am-resource-percent": "1.0",
        },
    )
    (conf / "log4j2.properties").write_text(
        "rootLogger.level = info\nrootLogger.appenderRef.out.ref = out\n"
        "appender.out.type = Console\nappender.out.name = out\nappender.out.layout.type = "
        "PatternLayout\nappender.out.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex\n"
    )


def _write(path: Path, values: dict[str, str]) -> None:
    properties = "".join(
        f"<property><name>{name}</name><value>{escape(value)}</value></property>\n"
        for name, value in values.items()
    )
    path.write_text(f"<configuration>\n{properties}</configuration>\n")
