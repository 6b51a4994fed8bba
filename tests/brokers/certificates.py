"""Certificates and Java stores for the tests of TLS: an authority, one below it, and two leaves.

The stores are keytool's, so that what is read is what Java writes.
"""

from __future__ import annotations

import datetime
import ipaddress
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import NameOID

STORE_PASSWORD, KEY_PASSWORD = "store-hunter2", "key-hunter2"


@dataclass(frozen=True)
class Identity:
    """A certificate with its key."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @property
    def pem(self) -> str:
        return self.certificate.public_bytes(Encoding.PEM).decode()

    def key_pem(self, password: str = "") -> str:
        protection = BestAvailableEncryption(password.encode()) if password else NoEncryption()
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, protection).decode()


_LOCAL = (x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1")))


def issue(
    name: str,
    issuer: Identity | None = None,
    authority: bool = False,
    names: Sequence[x509.GeneralName] = _LOCAL,
    begins: datetime.timedelta = datetime.timedelta(days=-1),
    ends: datetime.timedelta = datetime.timedelta(days=30),
) -> Identity:
    """A certificate for localhost, valid from `begins` to `ends` from now; self-signed without an
    issuer."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    built = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.certificate.subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + begins)
        .not_valid_after(now + ends)
        .add_extension(x509.BasicConstraints(authority, None), critical=True)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(issuer.key if issuer else key, hashes.SHA256())
    )
    return Identity(key, built)


@dataclass(frozen=True)
class Stores:
    """Files in `directory`: trust.jks, trust.p12 (the root), key.jks, key.p12 (the client)."""

    directory: Path
    root: Identity
    middle: Identity
    server: Identity
    client: Identity

    def path(self, name: str) -> str:
        return str(self.directory / name)


def make_stores(directory: Path) -> Stores:
    root = issue("root", authority=True)
    middle = issue("middle", root, authority=True)
    made = Stores(directory, root, middle, issue("server", middle), issue("client", middle))
    (directory / "root.pem").write_text(root.pem)
    for kind, ending in (("JKS", "jks"), ("PKCS12", "p12")):
        keytool("-importcert", "-noprompt", "-alias", "root", "-file", made.path("root.pem"),
                "-keystore", made.path(f"trust.{ending}"), "-storetype", kind,
                "-storepass", STORE_PASSWORD)  # fmt: skip
    (directory / "key.p12").write_bytes(
        pkcs12.serialize_key_and_certificates(
            b"client",
            made.client.key,
            made.client.certificate,
            [root.certificate, middle.certificate],
            BestAvailableEncryption(STORE_PASSWORD.encode()),
        )
    )
    for ending, kind, password in (("jks", "JKS", KEY_PASSWORD), ("java.p12", "PKCS12", "")):
        keytool("-importkeystore", "-srckeystore", made.path("key.p12"), "-srcstorepass",
                STORE_PASSWORD, "-destkeystore", made.path(f"key.{ending}"), "-deststoretype",
                kind, "-deststorepass", STORE_PASSWORD, "-srcalias", "client",
                "-destkeypass", password or STORE_PASSWORD)  # fmt: skip
    keytool("-genseckey", "-alias", "s", "-keyalg", "AES", "-keysize", "128", "-keystore",
            made.path("other.jceks"), "-storetype", "JCEKS", "-storepass", KEY_PASSWORD,
            "-keypass", KEY_PASSWORD)  # fmt: skip
    return made


def keytool(*arguments: str) -> None:
    command = ["keytool", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
