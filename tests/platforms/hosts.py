"""Hosts of their own on one machine: network namespaces that a switch connects.

    with Network("driver", "one", "two") as network:
        one, two = network["one"], network["two"]
        one.start(["python", ...])        # a process there; its files are those of this machine
        network.cut(one, two)             # nothing passes between these two any more, silently
        network.heal(one, two)
        network.cut_port(one, two, 9092)  # only what one sends to this port of two vanishes
        network.heal_port(one, two, 9092)
        network.slow(one, kbit=256)

A host has an address that this machine reaches, and the names of all others in its /etc/hosts, as
`NAME.hosts.example`. It has a /dev/shm of its own.
A cut shows as on a real network: packets vanish, and who sends them is told nothing.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Self

import psutil
import pytest

DOMAIN = "hosts.example"
# Of the range for measurements (RFC 2544), which no network uses.
_PREFIX = "198.18"
# Nobody on the switch has it.
_NOWHERE = "02:00:00:00:de:ad"
# A gateway that is none, and the routes of what goes there: by port, where `neigh` tells hosts.
_NOBODY = 250
_ASTRAY = "99"
_ETC = Path("/etc/netns")
_OWN_NAME = ("unshare", "--uts", "sh", "-c")


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (command, done.stderr)
    return done.stdout


def why_not() -> str:
    """Why this machine cannot have such hosts; "" where it can."""
    if os.geteuid() != 0:
        return "only root makes network namespaces"
    if shutil.which("ip") is None:
        return "there is no ip command (iproute2)"
    name = f"kr{uuid.uuid4().hex[:6]}"
    done = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    if done.returncode:
        return f"the kernel refuses a network namespace: {done.stderr.strip()}"
    _run("ip", "netns", "del", name)
    return ""


needs_hosts = pytest.mark.skipif(bool(why_not()), reason=why_not() or "it can")


class Host:
    """One namespace, with one address on the switch."""

    def __init__(self, network: Network, name: str, number: int) -> None:
        self.name, self.address = name, network.address(number)
        self.hostname = f"{name}.{DOMAIN}"
        self.namespace = f"{network.mark}-{name}"
        self.port = f"{network.mark}p{number}"
        self.started: list[subprocess.Popen[bytes]] = []

    def start(
        self, command: Sequence[str], binds: Mapping[Path, Path] | None = None, **popen: object
    ) -> subprocess.Popen[bytes]:
        """Start a process here; `binds` are directories that it sees in the place of others."""
        process = subprocess.Popen(
            [*self.prefix(binds), *command], **{"start_new_session": True, **popen}
        )
        self.started.append(process)
        return process

    def prefix(self, binds: Mapping[Path, Path] | None = None) -> list[str]:
        """What stands before a command that is to run here. The process that comes of it keeps the
        number of the first one."""
        # It calls itself by its own name: slots of a host are named by that.
        steps = [f"echo {self.hostname} >/proc/sys/kernel/hostname"]
        steps.append("mount -t tmpfs -o size=512m,mode=1777 tmpfs /dev/shm")
        for seen, own in (binds or {}).items():
            own.mkdir(parents=True, exist_ok=True)
            steps.append(f"mount --bind '{own}' '{seen}'")
        script = " && ".join([*steps, 'exec "$@"'])
        return [*("ip", "netns", "exec", self.namespace), *_OWN_NAME, script, "host"]

    def knocks(self, port: int) -> bool:
        """Whether a process here waits for the first answer of a TCP port."""
        state = ("-Htn", "state", "syn-sent", "dport", "=", f":{port}")
        return bool(_run("ip", "netns", "exec", self.namespace, "ss", *state).strip())

    def sent_bytes(self) -> int:
        """What has left this host so far."""
        path = f"/sys/class/net/{self.port}/statistics/rx_bytes"
        return int(_run("ip", "netns", "exec", self.namespace.split("-")[0], "cat", path))

    def end(self, process: subprocess.Popen[bytes]) -> None:
        """kill -9 of a process that was started here, with its children."""
        for pid in [process.pid, *_children(process.pid)]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait(120)
        self.started.remove(process)

    def kill(self) -> None:
        """The same of all that was started here."""
        for process in reversed(list(self.started)):
            self.end(process)


def _children(pid: int) -> list[int]:
    try:
        return [each.pid for each in psutil.Process(pid).children(recursive=True)]
    except psutil.Error:
        return []


class Network:
    """Hosts and the switch between them, a namespace too. This machine is at `console`."""

    def __init__(self, *names: str) -> None:
        self.mark = f"kr{uuid.uuid4().hex[:6]}"
        self._subnet = f"{_PREFIX}.{int(self.mark[2:4], 16)}"
        self.console = self.address(1)
        self._hosts = {name: Host(self, name, at) for at, name in enumerate(names, 11)}

    def address(self, number: int) -> str:
        return f"{self._subnet}.{number}"

    def __getitem__(self, name: str) -> Host:
        return self._hosts[name]

    def __enter__(self) -> Self:
        try:
            self._make()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _make(self) -> None:
        switch = self.mark
        _run("ip", "netns", "add", switch)
        _run("ip", "-n", switch, "link", "add", "switch", "type", "bridge")
        _run("ip", "-n", switch, "link", "set", "switch", "up")
        port = f"{self.mark}p1"
        _run("ip", "link", "add", f"{self.mark}c", "type", "veth", "peer", port, "netns", switch)
        self._plug(port)
        _run("ip", "address", "add", f"{self.console}/24", "dev", f"{self.mark}c")
        _run("ip", "link", "set", f"{self.mark}c", "up")
        lines = [f"{each.address} {each.hostname}" for each in self._hosts.values()]
        for host in self._hosts.values():
            self._add(host, lines)

    def _plug(self, port: str) -> None:
        _run("ip", "-n", self.mark, "link", "set", port, "master", "switch", "up")

    def _add(self, host: Host, lines: Sequence[str]) -> None:
        _run("ip", "netns", "add", host.namespace)
        of_host = ("ip", "-n", host.namespace)
        ends = ("type", "veth", "peer", host.port, "netns", self.mark)
        _run(*of_host, "link", "add", "eth0", *ends)
        self._plug(host.port)
        _run(*of_host, "address", "add", f"{host.address}/24", "dev", "eth0")
        for device in ("eth0", "lo"):
            _run(*of_host, "link", "set", device, "up")
        etc = _ETC / host.namespace
        etc.mkdir(parents=True)
        (etc / "hosts").write_text("\n".join(["127.0.0.1 localhost", *lines]) + "\n")

    def cut(self, one: Host, other: Host) -> None:
        """Nothing passes between two hosts any more."""
        for near, far in ((one, other), (other, one)):
            entry = (far.address, "lladdr", _NOWHERE, "dev", "eth0", "nud", "permanent")
            _run("ip", "-n", near.namespace, "neigh", "replace", *entry)

    def heal(self, one: Host, other: Host) -> None:
        for near, far in ((one, other), (other, one)):
            _run("ip", "-n", near.namespace, "neigh", "del", far.address, "dev", "eth0")

    def cut_port(self, near: Host, far: Host, port: int) -> None:
        """Nothing that one host sends to a TCP port of the other arrives any more."""
        of_host, nobody = ("ip", "-n", near.namespace), self.address(_NOBODY)
        entry = (nobody, "lladdr", _NOWHERE, "dev", "eth0", "nud", "permanent")
        _run(*of_host, "neigh", "replace", *entry)
        way = (far.address, "via", nobody, "dev", "eth0", "table", _ASTRAY)
        _run(*of_host, "route", "replace", *way)
        _run(*of_host, "rule", "add", *self._to_port(far, port))

    def heal_port(self, near: Host, far: Host, port: int) -> None:
        _run("ip", "-n", near.namespace, "rule", "del", *self._to_port(far, port))

    def _to_port(self, far: Host, port: int) -> tuple[str, ...]:
        return ("to", far.address, "ipproto", "tcp", "dport", str(port), "lookup", _ASTRAY)

    def slow(self, host: Host, kbit: int) -> None:
        """So many kbit/s pass from a host and as many to it; what waits for a second is dropped."""
        for device in self._ends(host):
            shape = ("tbf", "rate", f"{kbit}kbit", "burst", "4kb", "latency", "1s")
            _run("tc", "-n", *device, "root", *shape)

    def fast(self, host: Host) -> int:
        """No longer; how many packets had to wait."""
        waited = 0
        for namespace, *change, dev, name in self._ends(host):
            told = _run("tc", "-n", namespace, "-s", "qdisc", "show", dev, name)
            waited += sum(map(int, re.findall(r"overlimits (\d+)", told)))
            _run("tc", "-n", namespace, change[0], "del", dev, name, "root")
        return waited

    def _ends(self, host: Host) -> list[list[str]]:
        """Both ends of a host's cable, as tc adds something to them."""
        ends = ((host.namespace, "eth0"), (self.mark, host.port))
        return [[namespace, "qdisc", "replace", "dev", device] for namespace, device in ends]

    def cut_console(self, host: Host) -> None:
        """Nothing passes between a host and this machine any more."""
        entry = (host.address, "lladdr", _NOWHERE, "dev", f"{self.mark}c", "nud", "permanent")
        _run("ip", "neigh", "replace", *entry)

    def heal_console(self, host: Host) -> None:
        _run("ip", "neigh", "del", host.address, "dev", f"{self.mark}c")

    def unplug(self, host: Host) -> None:
        """Nothing passes between a host and anybody."""
        _run("ip", "-n", self.mark, "link", "set", host.port, "nomaster")

    def plug(self, host: Host) -> None:
        self._plug(host.port)

    def close(self) -> None:
        for host in self._hosts.values():
            host.kill()
        for namespace in [*(host.namespace for host in self._hosts.values()), self.mark]:
            subprocess.run(["ip", "netns", "del", namespace], capture_output=True, check=False)
            shutil.rmtree(_ETC / namespace, ignore_errors=True)
        subprocess.run(["ip", "link", "del", f"{self.mark}c"], capture_output=True, check=False)


def log_to(path: Path) -> IO[bytes]:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.open("ab")
