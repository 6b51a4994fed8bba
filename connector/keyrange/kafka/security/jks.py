"""The JKS key store, Java's own format before version 9: certificates, and keys under a password.

Big-endian: magic, version, count, then entries, each with a tag, an alias and a date; at the end a
SHA-1 digest over the password, a fixed phrase and all before it. A private key is hidden by a key
stream of SHA-1 over the password (Sun's "JavaSoft proprietary key protection algorithm").
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from io import BytesIO
from typing import Final

MAGIC: Final = b"\xfe\xed\xfe\xed"
_DIGEST_BYTES: Final = 20
_KEY_ENTRY: Final = 1
_TRUSTED_ENTRY: Final = 2
# AlgorithmIdentifier 1.3.6.1.4.1.42.2.17.1.1 with NULL parameters.
_PROTECTOR: Final = bytes.fromhex("300e060a2b060104012a021101010500")


@dataclass(frozen=True, slots=True)
class Contents:
    """All in DER: the first key (PKCS8) with its chain, and the certificates that are trusted.

    As in Java, a key's own certificate is trusted too.
    """

    key: bytes
    chain: tuple[bytes, ...]
    trusted: tuple[bytes, ...]


def _take(stream: BytesIO, count: int) -> bytes:
    taken = stream.read(count)
    if len(taken) < count:
        raise ValueError("the store ends too soon")
    return taken


def _number(stream: BytesIO, size: int = 4) -> int:
    return int.from_bytes(_take(stream, size))


def _text(stream: BytesIO) -> bytes:
    return _take(stream, _number(stream, 2))


def read(data: bytes, password: str, key_password: str) -> Contents:
    """Read a store. An empty password leaves its digest unchecked, as in Java.

    ValueError, without passwords, for wrong ones and for what is no such store.
    """
    body, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    if password:
        phrase = _password_bytes(password) + b"Mighty Aphrodite"
        if not hmac.compare_digest(hashlib.sha1(phrase + body).digest(), digest):
            raise ValueError("the password is wrong, or the store is damaged")
    stream = BytesIO(body)
    if _take(stream, 4) != MAGIC or (version := _number(stream)) not in (1, 2):
        raise ValueError("is no store of version 1 or 2")
    key = b""
    chain: tuple[bytes, ...] = ()
    trusted: list[bytes] = []
    for _ in range(_number(stream)):
        tag = _number(stream)
        _text(stream)  # alias
        _take(stream, 8)  # date
        if tag == _KEY_ENTRY:
            hidden = _take(stream, _number(stream))
            certificates = [_certificate(stream, version) for _ in range(_number(stream))]
            trusted += certificates[:1]
            if not key and key_password:
                key, chain = _uncover(hidden, key_password), tuple(certificates)
        elif tag == _TRUSTED_ENTRY:
            trusted.append(_certificate(stream, version))
        else:
            raise ValueError(f"holds an entry of the unknown kind {tag}")
    return Contents(key, chain, tuple(trusted))


def _certificate(stream: BytesIO, version: int) -> bytes:
    if version == 2 and _text(stream) != b"X.509":
        raise ValueError("holds a certificate that is not X.509")
    return _take(stream, _number(stream))


def _uncover(hidden: bytes, password: str) -> bytes:
    """The PKCS8 key of an EncryptedPrivateKeyInfo: salt (20 bytes), hidden key, digest (20)."""
    algorithm_at = hidden.find(_PROTECTOR, 0, 32)
    if algorithm_at < 0:
        raise ValueError("holds a key that is protected in an unknown way")
    octets = hidden[algorithm_at + len(_PROTECTOR) :]
    # An OCTET STRING to the end: tag, then a length of 1 byte, or 0x80 + n and n bytes.
    head = 2 + (octets[1] & 0x7F if octets[1] & 0x80 else 0) if len(octets) > 1 else 2
    protected = octets[head:]
    secret = _password_bytes(password)
    stream, covered = protected[:20], protected[20:-20]
    key = bytearray()
    for at in range(0, len(covered), 20):
        stream = hashlib.sha1(secret + stream).digest()
        key += bytes(a ^ b for a, b in zip(covered[at : at + 20], stream, strict=False))
    if not hmac.compare_digest(hashlib.sha1(secret + key).digest(), protected[-20:]):
        raise ValueError("the password of the key is wrong (kafka.ssl.key.password)")
    return bytes(key)


def _password_bytes(password: str) -> bytes:
    return password.encode("utf-16-be")
