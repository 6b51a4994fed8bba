"""Errors without what logs in: people write it into addresses, and servers quote it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import urlsplit

MASK: Final = "***"
# Scheme, authority, path and query. Schemes are short: the text may be long.
_ADDRESS: Final = re.compile(r"([A-Za-z0-9+.-]{1,20})://([^\s/?#]*)([^\s'\"),?#]*)(\?[^\s'\"),]*)?")
_HOST_AND_PORT: Final = re.compile(r"[^:@]*:[0-9]{1,5}|\[[^\]]*\](:[0-9]{1,5})?")
# Azure's: what stands before the account is a container.
_CONTAINERS: Final = frozenset({"abfs", "abfss", "wasb", "wasbs"})


def without_logins(text: str) -> str:
    """The text with the user and password, and the query, of each address in it masked: a query may
    be a signature that opens the storage (SAS)."""
    return _ADDRESS.sub(_masked, text) if "://" in text else text


def _masked(found: re.Match[str]) -> str:
    scheme, authority, path, query = found.groups()
    login, at, host = authority.rpartition("@")
    if at and (scheme.lower() not in _CONTAINERS or ":" in login):
        authority = f"{MASK}@{host}"
    elif ":" in authority and "@" in path and not _HOST_AND_PORT.fullmatch(authority):
        # A password with a slash, as Amazon makes them.
        authority, path = f"{MASK}@{path.rpartition('@')[2]}", ""
    if query and scheme != "file":
        query = f"?{MASK}"
    return f"{scheme}://{authority}{path}{query or ''}"


def server_of(url: str) -> str:
    """Scheme, host and port of an address. What else there is may hold what logs in."""
    scheme, authority, *rest = urlsplit(url)
    return f"{scheme}://{authority.rpartition('@')[2]}{'/' + MASK if any(rest) else ''}"


def without(text: str, secrets: Iterable[str]) -> str:
    """The text with these masked in it."""
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        text = text.replace(secret, MASK)
    return text
