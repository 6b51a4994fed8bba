"""Azurite, which answers as Azure's blob storage does, on loopback and in memory. ci/azurite.sh
fetches it."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from pathlib import Path
from typing import Final

import pytest

from brokers.real_broker import wait_until
from keyrange.embedded.process import HOST, free_ports

CONTAINER: Final = "lake"
_HOME: Final = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "keyrange/azurite"
_SERVER: Final = _HOME / "node_modules/.bin/azurite-blob"
# The account of every Azurite, whose key stands in its documentation.
_ACCOUNT: Final = "devstoreaccount1"
_KEY: Final = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)
_VERSION: Final = "2021-08-06"


@contextmanager
def azurite(logs: Path) -> Iterator[dict[str, str]]:
    """A container, and the environment in which obstore and delta-rs find it."""
    if not _SERVER.exists():
        pytest.skip("there is no Azurite: ci/azurite.sh fetches it")
    (port,) = free_ports(1)
    url = f"http://{HOST}:{port}"
    command = [str(_SERVER), "--blobHost", HOST, "--blobPort", str(port), "--inMemoryPersistence"]
    log = logs / "azurite.log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            [*command, "--skipApiVersionCheck", "--silent"], stdout=file, stderr=file, cwd=logs
        )
    try:
        wait_until(lambda: process.poll() is not None or _made(url))
        assert process.poll() is None, log.read_text()[-2_000:]
        yield {
            "AZURE_STORAGE_USE_EMULATOR": "true",
            "AZURITE_BLOB_STORAGE_URL": url,
            "AZURE_STORAGE_ACCOUNT_NAME": _ACCOUNT,
            "AZURE_STORAGE_ACCOUNT_KEY": _KEY,
            "AZURE_ALLOW_HTTP": "true",
        }
    finally:
        process.kill()
        process.wait()


def _made(url: str) -> bool:
    """Whether the server has made the container: the client under test makes none."""
    own = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": _VERSION}
    said = "".join(f"{name}:{value}\n" for name, value in own.items())
    place = f"/{_ACCOUNT}/{_ACCOUNT}/{CONTAINER}\nrestype:container"
    # Of thirteen lines of headers none has a value.
    text = f"PUT{12 * chr(10)}{said}{place}".encode()
    digest = hmac.digest(base64.b64decode(_KEY), text, hashlib.sha256)
    own["Authorization"] = f"SharedKey {_ACCOUNT}:{base64.b64encode(digest).decode()}"
    made = f"{url}/{_ACCOUNT}/{CONTAINER}?restype=container"
    try:
        with urllib.request.urlopen(urllib.request.Request(made, headers=own, method="PUT")) as got:
            return bool(got.status == 201)
    except OSError:
        return False
