"""Certificates for the brokers of the tests, made by the JDK's keytool.

Rule of this file: everything is made afresh for one broker, valid for loopback only, protected by a
well-known password: no key here may guard anything real.
"""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from keyrange.embedded.jars import java_executable
from keyrange.errors import error

PASSWORD = "keyrange"


@dataclass(frozen=True, slots=True)
class ClientFiles:
    """A client's own certificate and unencrypted private key, for mutual TLS."""

    certificate: Path
    key: Path


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """`keystore` is the broker's; clients trust `ca`. `truststore` and `client` with mutual TLS."""

    keystore: Path
    ca: Path
    truststore: Path | None = None
    client: ClientFiles | None = None


def make_tls(directory: Path, mutual: bool = False) -> TlsFiles:
    """Make the files for one cluster in a directory, about 2 s.

    The broker's certificate is self-signed, so it is its own CA. `mutual` needs the `openssl`
    command: keytool cannot give out a private key. Raises BROKER_NOT_STARTED when a tool fails.
    """
    directory.mkdir(parents=True, exist_ok=True)
    keystore, ca = directory / "broker.p12", directory / "ca.pem"
    if not ca.exists():
        _keytool("-genkeypair", "-alias", "broker", "-keyalg", "RSA", "-keysize", "2048",
                 "-validity", "3650", "-dname", "CN=localhost", "-ext", "bc:c=ca:true",
                 "-ext", "san=dns:localhost,ip:127.0.0.1", *_store(keystore))  # fmt: skip
        _keytool("-exportcert", "-rfc", "-alias", "broker", "-file", str(ca), *_store(keystore))
    if not mutual:
        return TlsFiles(keystore, ca)
    client = ClientFiles(directory / "client.pem", directory / "client.key")
    truststore = directory / "clients.p12"
    if not truststore.exists():
        openssl = shutil.which("openssl")
        if openssl is None:
            raise error("BROKER_NOT_STARTED", "mutual TLS needs the openssl command")
        _run(openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "3650",
             "-subj", "/CN=client", "-keyout", str(client.key),
             "-out", str(client.certificate))  # fmt: skip
        _keytool("-importcert", "-noprompt", "-alias", "client", "-file", str(client.certificate),
                 *_store(truststore))  # fmt: skip
    return TlsFiles(keystore, ca, truststore, client)


def _store(path: Path) -> list[str]:
    return ["-keystore", str(path), "-storetype", "PKCS12", "-storepass", PASSWORD]


def _keytool(*arguments: str) -> None:
    # A `java` on PATH may be a link out of its JDK, where keytool is not beside it.
    beside = java_executable().resolve().with_name("keytool")
    _run(str(beside) if beside.exists() else "keytool", *arguments)


def _run(*command: str) -> None:
    try:
        subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    except subprocess.CalledProcessError as cause:
        said = " | ".join((cause.stdout + cause.stderr).strip().splitlines()[-3:])
        raise error("BROKER_NOT_STARTED", f"{command[0]} failed: {said}") from cause
    except (OSError, subprocess.TimeoutExpired) as cause:
        raise error("BROKER_NOT_STARTED", f"{command[0]} did not run", cause=cause) from cause
