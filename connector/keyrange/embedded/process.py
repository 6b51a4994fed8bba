"""One Java process and the loopback ports it serves.

Rule of this file: nothing here knows what Kafka's configuration looks like; it starts a main class,
waits until a port really answers, and ends it.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from keyrange.embedded.jars import java_executable
from keyrange.embedded.orphan_cleanup import OrphanCleanup
from keyrange.errors import KeyrangeError, error

HOST = "127.0.0.1"
# Below the ports that systems hand out for outgoing connections: a client that keeps trying to
# reconnect to a dead broker on such a port may end up connected to itself, and hold the port.
_PORTS = range(20_000, 32_000)
_LOGGING = (
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss.SSS",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=info",
    # These print hundreds of lines of settings at every start.
    "-Dorg.slf4j.simpleLogger.log.org.apache.kafka.common.config=warn",
    "-Dorg.slf4j.simpleLogger.log.kafka.server.KafkaConfig=warn",
)
JVM_OPTIONS = ("-XX:+UseSerialGC", "-Djava.awt.headless=true")


def free_ports(count: int, taken: Sequence[int] = ()) -> list[int]:
    """Loopback ports that nobody listens on now, none of them in `taken`."""
    ports: list[int] = []
    while len(ports) < count:
        port = random.choice(_PORTS)
        if port not in ports and port not in taken and is_free(port):
            ports.append(port)
    return ports


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        # Like Kafka: connections of a broker that just died do not block its port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def answers_api_versions(port: int) -> bool:
    """Whether a Kafka broker answers an ApiVersions request on a PLAINTEXT port."""
    # What speaks Kafka takes long to load, and the broker begins meanwhile.
    from keyrange.kafka.connection import Connection
    from keyrange.options.kafka_properties import ClientSettings

    try:
        Connection.connect(HOST, port, ClientSettings(), timeout_ms=2_000).close()
    except KeyrangeError:
        return False
    return True


def run_java(jars: Sequence[Path], main_class: str, arguments: Sequence[str]) -> None:
    """Run a main class to its end. Raises BROKER_NOT_STARTED with what it printed last."""
    command = java_command(jars, main_class, arguments, heap_mb=256)
    done = subprocess.run(
        command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
    )
    if done.returncode != 0:
        said = " | ".join(telling_lines(done.stdout + done.stderr))
        raise error("BROKER_NOT_STARTED", f"{main_class} failed: {said}")


def telling_lines(log: str) -> list[str]:
    """The last lines of a log that tell of trouble, else its very last ones."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    # What is told as an aside may have such a word in it too.
    lines = [line for line in lines if not line.startswith("at ") and " INFO " not in line]
    telling = [line for line in lines if re.search(r" ERROR | FATAL |Exception|Error: ", line)]
    return (telling or lines)[-4:]


def java_command(
    jars: Sequence[Path],
    main_class: str,
    arguments: Sequence[str],
    heap_mb: int,
    jvm_options: Sequence[str] = (),
) -> list[str]:
    """The command line of a JVM with small heap and its log on stderr."""
    command = [str(java_executable()), f"-Xmx{heap_mb}m", *JVM_OPTIONS, *_LOGGING, *jvm_options]
    return [*command, "-cp", os.pathsep.join(map(str, jars)), main_class, *arguments]


@dataclass(eq=False)
class JavaProcess:
    """A Java server that can be started again and again; its output is appended to `log_path`.

    With a cleanup it dies with this process. `inherited` are open file descriptors to hand on.
    """

    name: str
    log_path: Path
    cleanup: OrphanCleanup | None = None
    inherited: tuple[int, ...] = ()
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)
    _log_start: int = field(default=0, init=False)

    @property
    def pid(self) -> int:
        """The process id. Raises BROKER_NOT_STARTED when it does not run."""
        if self._process is None:
            raise error("BROKER_NOT_STARTED", f"{self.name} is not running", log=self.log_path)
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def run(self, command: Sequence[str], ready: Callable[[], bool], timeout_s: float) -> None:
        """Start it, and return when `ready()` holds.

        Raises BROKER_NOT_STARTED with the end of the log when the process ends first, or it takes
        more than `timeout_s` seconds; nothing is left running then.
        """
        with self.log_path.open("ab") as log:
            self._log_start = log.tell()
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                pass_fds=self.inherited,
                # Ctrl-C is for the caller, who then ends the broker in order.
                start_new_session=True,
            )
        if self.cleanup is not None:
            self.cleanup.watch(self._process.pid)
        try:
            self._wait_until_ready(ready, timeout_s)
        except BaseException:
            self.kill()
            raise

    def _wait_until_ready(self, ready: Callable[[], bool], timeout_s: float) -> None:
        started = time.monotonic()
        while True:
            is_ready = ready()
            if not self.running:
                raise self._failure("ended instead of starting")
            if is_ready:
                return
            if time.monotonic() - started > timeout_s:
                raise self._failure(f"did not answer within {timeout_s:.0f} s")
            time.sleep(0.05)

    def printed(self) -> str:
        """What it has printed since it was started last."""
        try:
            return self.log_path.read_bytes()[self._log_start :].decode(errors="replace")
        except OSError:
            return ""

    def _failure(self, what: str) -> Exception:
        tail = " | ".join(telling_lines(self.printed()))
        return error("BROKER_NOT_STARTED", f"{self.name} {what}: {tail}", log=self.log_path)

    def stop(self, timeout_s: float = 30) -> None:
        """End it with SIGTERM, after `timeout_s` seconds SIGKILL. Fine when it is not running."""
        if self._process is not None and self.running:
            self._process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=timeout_s)
        self.kill()

    def kill(self) -> None:
        """End it with SIGKILL and reap it. Fine when it is not running."""
        if self._process is None:
            return
        if self.running:
            self._process.kill()
        if self.cleanup is not None:
            self.cleanup.forget(self._process.pid)
        self._process.wait()
        self._process = None
