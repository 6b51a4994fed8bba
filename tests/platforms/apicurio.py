"""Apicurio's schema registry on loopback, with a database in memory. ci/registry.sh fetches it."""

from __future__ import annotations

import os
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from brokers.real_broker import wait_until
from keyrange.embedded.process import HOST, free_ports

HOME = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "keyrange" / "apicurio"


@contextmanager
def apicurio(logs: Path) -> Iterator[str]:
    """The address below which it answers as Confluent's registry does."""
    jar = next(HOME.glob("*-runner.jar"), None)
    if jar is None:
        pytest.skip("there is no Apicurio: ci/registry.sh fetches it")
    (port,) = free_ports(1)
    url = f"http://{HOST}:{port}/apis/ccompat/v7"
    options = [f"-Dquarkus.http.host={HOST}", f"-Dquarkus.http.port={port}", "-Xmx512m"]
    log = logs / "apicurio.log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            ["java", "-XX:TieredStopAtLevel=1", *options, "-jar", str(jar)],
            stdout=file,
            stderr=file,
            cwd=logs,
        )
    try:
        wait_until(lambda: process.poll() is not None or _answers(url))
        assert process.poll() is None, log.read_text()[-2_000:]
        yield url
    finally:
        process.kill()
        process.wait()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/subjects", timeout=10) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
