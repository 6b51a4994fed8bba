"""A key distribution centre on loopback, of Debian's krb5-kdc, and what tests do to it."""

from __future__ import annotations

import os
import re
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from brokers.logins import KERBEROS
from brokers.real_broker import wait_until
from keyrange.embedded.orphan_cleanup import OrphanCleanup
from keyrange.embedded.process import HOST, free_ports, is_free

REALM = "KEYRANGE.TEST"
SERVICE = f"kafka/{HOST}"
# Of short tickets. Shorter ones would end while a slow machine still logs in with them.
TICKET_S = 10.0
_FAKETIME = f"/usr/lib/{os.uname().machine}-linux-gnu/faketime/libfaketime.so.1"
_KRB5 = """\
[libdefaults]
  default_realm = {realm}
  dns_lookup_kdc = false
  dns_lookup_realm = false
  dns_canonicalize_hostname = false
  rdns = false
[realms]
  {realm} = {{
    kdc = {host}:{port}
  }}
"""
_KDC = """\
[kdcdefaults]
  kdc_listen = {host}:{port}
  kdc_tcp_listen = {host}:{port}
[realms]
  {realm} = {{
    database_name = {home}/principals
    key_stash_file = {home}/stash
    supported_enctypes = aes256-cts-hmac-sha1-96:normal
  }}
[logging]
  kdc = FILE:{home}/kdc.log
"""


def with_clock(ahead: str) -> dict[str, str]:
    """The environment of a process whose clock is ahead, as in "+20m"; libfaketime's."""
    return {"LD_PRELOAD": _FAKETIME, "FAKETIME": ahead, "FAKETIME_DONT_FAKE_MONOTONIC": "1"}


class Kdc:
    """A realm with a KDC that runs while it is entered; files are in `home`."""

    def __init__(self, home: Path) -> None:
        self.home, self.conf, self._log = home, home / "krb5.conf", home / "kdc.log"
        [self.port] = free_ports(1)
        self.environment = {
            "KRB5_CONFIG": str(self.conf),
            "KRB5_KDC_PROFILE": str(home / "kdc.conf"),
            "KRB5CCNAME": f"FILE:{home}/nobody",
        }
        self._process: subprocess.Popen[bytes] | None = None
        self._cleanup: OrphanCleanup | None = None

    def __enter__(self) -> Self:
        at = {"home": self.home, "host": HOST, "port": self.port, "realm": REALM}
        self.conf.write_text(_KRB5.format(**at))
        (self.home / "kdc.conf").write_text(_KDC.format(**at))
        self._run("kdb5_util", "create", "-s", "-r", REALM, "-P", "of no worth")
        self._cleanup = OrphanCleanup(None)
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()
        assert self._cleanup is not None
        self._cleanup.close()

    def start(self, ahead: str = "") -> None:
        """Run, with a clock that is ahead."""
        clock = with_clock(ahead) if ahead else {}
        self._process = subprocess.Popen(
            ["krb5kdc", "-n"],
            env={**os.environ, **self.environment, **clock},
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        assert self._cleanup is not None
        self._cleanup.watch(self._process.pid)
        wait_until(lambda: not is_free(self.port))

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            assert self._cleanup is not None
            self._cleanup.forget(self._process.pid)
            self._process.wait()
            self._process = None

    def add(self, principal: str, life: str = "1h") -> Path:
        """A principal whose tickets live so long; its key tab."""
        self.admin("addprinc", "-randkey", "-maxlife", life, principal)
        return self.export(principal)

    def export(self, principal: str) -> Path:
        """A key tab with new keys of a principal: what older ones hold is of no use from now on."""
        path = self.home / f"{principal.replace('/', '-')}-{os.urandom(4).hex()}.keytab"
        self.admin("ktadd", "-k", str(path), principal)
        return path

    def admin(self, *query: str) -> None:
        self._run("kadmin.local", *query)

    def kinit(self, principal: str, key_tab: Path, cache: Path) -> None:
        self._run("kinit", "-k", "-t", str(key_tab), "-c", f"FILE:{cache}", principal)

    def logins(self, principal: str) -> int:
        """How often it was given a ticket for its key."""
        granted = rf"AS_REQ.*ISSUE.*, {principal}@{REALM} for krbtgt/"
        return len(re.findall(granted, self._log.read_text(errors="replace")))

    def _run(self, *command: str) -> None:
        environment = {**os.environ, **self.environment}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def by_key_tab(key_tab: Path, principal: str, service: str = "kafka") -> str:
    """A JAAS entry, as the guide has it."""
    return (
        f'{KERBEROS}useKeyTab=true keyTab="{key_tab}" principal="{principal}@{REALM}" '
        f'serviceName="{service}";'
    )


def by_cache(cache: Path | None = None, more: str = "") -> str:
    """Without a path: the default one of the process that connects."""
    given = f'ticketCache="{cache}" ' if cache else ""
    return f'{KERBEROS}useTicketCache=true {given}{more} serviceName="kafka";'


@contextmanager
def repeated(action: Callable[[], None], every_s: float) -> Iterator[None]:
    """Do something over and over beside what is done meanwhile."""
    ended, failures = threading.Event(), list[BaseException]()

    def run() -> None:
        try:
            while not ended.wait(every_s):
                action()
        except BaseException as failure:
            failures.append(failure)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
    assert not failures, failures
