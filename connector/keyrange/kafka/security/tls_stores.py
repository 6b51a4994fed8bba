"""Trust stores and key stores for TLS: PEM, PKCS12 and JKS, as files or as text in the options.

A store is read when a connection is made, so one that was renewed is taken from then on. Private
keys stay in memory where the kernel has files in memory; elsewhere OpenSSL, which takes keys from
files only, is given a private one that is gone when it has been read.
"""

from __future__ import annotations

import base64
import contextlib
import os
import re
import ssl
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from keyrange.errors import KeyrangeError, error
from keyrange.kafka.security import jks
from keyrange.options.allowlist import NotAllowed, check_path, not_allowed
from keyrange.options.secrets import Secret
from keyrange.options.security_properties import TlsSettings
from keyrange.text.packages import install_line

_STORE_BYTES_MAX: Final = 16 << 20
_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_PEM_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.S)


def tls_context(settings: TlsSettings, prefix: str = "kafka.") -> ssl.SSLContext:
    """TLS 1.2 or newer; the server's certificate is always verified. `prefix` is that of the
    properties that `settings` are made of.

    Raises STORE_NOT_READ that names the property, SECRET_NOT_FOUND, PACKAGE_NOT_FOUND.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = _VERSIONS[settings.ssl_enabled_protocols[0]]
    context.maximum_version = _VERSIONS[settings.ssl_enabled_protocols[-1]]
    context.check_hostname = settings.ssl_check_hostname
    if settings.ssl_truststore_location or settings.ssl_truststore_certificates:
        _trust(context, settings, prefix)
    else:
        context.load_default_certs()
    if settings.has_certificate:
        _identify(context, settings, prefix)
    return context


def _trust(context: ssl.SSLContext, settings: TlsSettings, prefix: str) -> None:
    """Trust what the store holds, and no one else; as in Java, also where it is no root."""
    name = f"{prefix}ssl.truststore.location"
    if settings.ssl_truststore_location:
        kind, content = _opened(
            settings.ssl_truststore_location, settings.ssl_truststore_type, name
        )
        if kind == "PEM":
            certificates = _pem_certificates(content.decode("utf-8", "replace"))
        else:
            store = _java_store(kind, content, settings.ssl_truststore_password, None, name)
            certificates = list(store.trusted)
    else:
        name = f"{prefix}ssl.truststore.certificates"
        certificates = _pem_certificates(settings.ssl_truststore_certificates.reveal())
    if not certificates:
        raise _not_read(name, "holds no certificate")
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    with _naming(name):
        context.load_verify_locations(cadata=b"".join(dict.fromkeys(certificates)))


def _identify(context: ssl.SSLContext, settings: TlsSettings, prefix: str) -> None:
    """The client's own certificate, for mutual TLS."""
    # A callable, because OpenSSL would ask the terminal for a password it misses.
    password = settings.ssl_key_password.reveal
    name = f"{prefix}ssl.keystore.location"
    if not settings.ssl_keystore_location:
        name = f"{prefix}ssl.keystore.key"
        with _naming(name):
            chain = _wrapped(settings.ssl_keystore_certificate_chain.reveal())
            key = _wrapped(settings.ssl_keystore_key.reveal())
        _load(context, chain + key, password, name)
        return
    location = settings.ssl_keystore_location
    kind, content = _opened(location, settings.ssl_keystore_type, name)
    if kind == "PEM":
        if settings.ssl_key_location:
            _check(settings.ssl_key_location, f"{prefix}ssl.key.location")
        with _naming(name):
            context.load_cert_chain(location, settings.ssl_key_location or None, password)
        return
    store = _java_store(
        kind, content, settings.ssl_keystore_password, settings.ssl_key_password, name
    )
    if not store.key:
        raise _not_read(name, "holds no private key")
    chain = "".join(ssl.DER_cert_to_PEM_cert(each) for each in store.chain)
    _load(context, chain + _pem("PRIVATE KEY", store.key), password, name)


def _load(context: ssl.SSLContext, pem: str, password: Callable[[], str], name: str) -> None:
    with _naming(name), _private_file(pem.encode()) as path:
        context.load_cert_chain(path, None, password)


@contextlib.contextmanager
def _private_file(content: bytes) -> Iterator[str]:
    """A path that holds `content` for as long as the block runs, for this process only."""
    try:
        descriptor = os.memfd_create("keyrange", os.MFD_CLOEXEC)
    except (AttributeError, OSError):
        with tempfile.TemporaryDirectory(prefix="keyrange-") as directory:  # mode 0700
            path = Path(directory, "key.pem")
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(content)
            yield str(path)
        return
    with open(descriptor, "wb", buffering=0) as file:
        file.write(content)
        yield f"/proc/self/fd/{descriptor}"


def _check(location: str, name: str) -> None:
    """Here too: in an executor a path may lead elsewhere, and a reference says it only now."""
    try:
        check_path(location)
    except NotAllowed as failure:
        raise not_allowed(name, failure) from None


def _opened(location: str, given: str, name: str) -> tuple[str, bytes]:
    """A store behind its kind: PEM, PKCS12 or JKS by its first bytes; a type that was given has to
    be the same."""
    _check(location, name)
    try:
        with open(location, "rb") as file:
            content = file.read(_STORE_BYTES_MAX + 1)
    except (OSError, ValueError) as failure:
        reason = getattr(failure, "strerror", "") or str(failure)
        raise _not_read(name, f"{location} cannot be read: {reason}") from None
    if len(content) > _STORE_BYTES_MAX:
        raise _not_read(name, f"{location} has more than {_STORE_BYTES_MAX} bytes")
    if content.startswith(b"\xce\xce\xce\xce"):
        raise _not_read(
            name,
            f"{location} is a JCEKS store; convert it: keytool -importkeystore -srckeystore "
            f"{location} -destkeystore {location}.p12 -deststoretype PKCS12",
        )
    if content.startswith(jks.MAGIC):
        found = "JKS"
    elif b"-----BEGIN " in content:
        found = "PEM"
    elif content.startswith(b"\x30"):
        found = "PKCS12"
    else:
        raise _not_read(name, f"{location} is neither PEM nor PKCS12 nor JKS")
    # Java, too, reads PKCS12 as JKS and the reverse (keystore.type.compat).
    if given and (given == "PEM") != (found == "PEM"):
        raise _not_read(name, f"{location} is of type {found}, and {given} was given")
    return found, content


def _java_store(
    kind: str, content: bytes, password: Secret, key_password: Secret | None, name: str
) -> jks.Contents:
    """`key_password` None: the key is not wanted; empty: it is the store's."""
    store = password.reveal()
    try:
        if kind == "PKCS12":
            return _pkcs12(content, store)
        key = "" if key_password is None else key_password.reveal() or store
        return jks.read(content, store, key)
    except ValueError as failure:
        raise _not_read(name, f"({kind}): {failure}") from None


def _pkcs12(content: bytes, password: str) -> jks.Contents:
    """A chain's other certificates are trusted with the rest: the format does not part them."""
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.serialization import pkcs12
    except ImportError as failure:
        raise error(
            "PACKAGE_NOT_FOUND",
            "PKCS12 stores need the Python package cryptography "
            f"({install_line('stores')}): {failure}",
        ) from None
    try:
        held = pkcs12.load_pkcs12(content, password.encode() or None)
    except UnsupportedAlgorithm as failure:
        raise ValueError(f"is encrypted in an unknown way: {failure}") from None
    others = [each.certificate for each in held.additional_certs]
    chain = [held.cert.certificate] if held.cert else []
    trusted = chain + others
    # The chain in its order, the key's own certificate first: servers may refuse another one.
    while chain and (
        issuer := next((each for each in others if each.subject == chain[-1].issuer), None)
    ):
        others.remove(issuer)
        chain.append(issuer)
    der = serialization.Encoding.DER
    key = held.key and held.key.private_bytes(
        der, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return jks.Contents(
        key or b"",
        tuple(each.public_bytes(der) for each in chain),
        tuple(each.public_bytes(der) for each in trusted),
    )


def _pem_certificates(text: str) -> list[bytes]:
    """The certificates of a PEM text, in DER, whatever stands around them."""
    try:
        return [
            base64.b64decode("".join(body.split()), validate=True)
            for label, body in _PEM_BLOCK.findall(text)
            if label in ("CERTIFICATE", "X509 CERTIFICATE", "TRUSTED CERTIFICATE")
        ]
    except ValueError:
        return []


def _wrapped(text: str) -> str:
    """PEM with its line breaks: in properties it is often written in one line."""
    blocks = []
    for label, body in _PEM_BLOCK.findall(text):
        if ":" in body:  # the headers of a key encrypted in OpenSSL's old way
            return text
        blocks.append(_pem(label, base64.b64decode("".join(body.split()))))
    return "".join(blocks) or text


def _pem(label: str, der: bytes) -> str:
    text = base64.b64encode(der).decode()
    lines = "\n".join(text[at : at + 64] for at in range(0, len(text), 64))
    return f"-----BEGIN {label}-----\n{lines}\n-----END {label}-----\n"


@contextlib.contextmanager
def _naming(name: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as failure:  # ssl.SSLError is an OSError
        reason = getattr(failure, "reason", None) or failure
        raise _not_read(name, f"cannot be used: {reason}") from None


def _not_read(name: str, why: str) -> KeyrangeError:
    return error("STORE_NOT_READ", f"{name} {why}")
