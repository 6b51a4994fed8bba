"""Tickets for GSSAPI: where MIT's library looks for them, and what to say where it has none.

The library asks the KDC while the client side of the mechanism is made, before the broker hears of
it. Its own words name neither the file nor the option, so each cause that people meet is explained.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Mapping
from typing import Any, Final

from keyrange.errors import KeyrangeError, error
from keyrange.kafka.messages import sasl_clients
from keyrange.options.allowlist import NotAllowed, check_path, not_allowed
from keyrange.options.jaas import file_of

# MIT's codes of errors, as gssapi has them: without a sign.
_KRB5: Final = -1765328384 + 2**32
_NO_SERVER: Final = _KRB5 + 7
_OLD_KEYS: Final = frozenset((_KRB5 + 24, _KRB5 + 31))
_EXPIRED: Final = _KRB5 + 32
_WRONG_TIMES: Final = frozenset((_KRB5 + 33, _KRB5 + 37))
_NO_KDC: Final = frozenset((_KRB5 + 154, _KRB5 + 156))
_NO_TICKETS: Final = frozenset((_KRB5 + 141, _KRB5 + 195))


# Of the caches in this process's memory: one that was given up is not taken again.
_generation = 0


def new_client(login: Mapping[str, str], host: str, config: Mapping[str, Any]) -> Any:
    """The client side of the mechanism for a broker of that host; `login` has the names of
    Krb5LoginModule's options.

    Raises NO_KERBEROS_TICKET, KDC_UNREACHABLE where the same may succeed later, SECRET_NOT_FOUND
    for a key tab that cannot be read, OPTION_NOT_ALLOWED.
    """
    global _generation
    store = ticket_store(login)
    try:
        return sasl_clients.new_client("GSSAPI", {**config, "ticket_store": store})
    except Exception as failure:
        if _code(failure) != _EXPIRED or "client_keytab" not in store:
            raise _no_ticket(failure, login, host) from None
    # The library has tried the key tab in vain, or not yet again, and does not say so: it hands out
    # what it has. With nothing at hand it says why.
    _generation += 1
    store["ccache"] = _in_memory(login)
    try:
        return sasl_clients.new_client("GSSAPI", {**config, "ticket_store": store})
    except Exception as failure:
        raise _no_ticket(failure, login, host) from None


def ticket_store(login: Mapping[str, str]) -> dict[str, str]:
    """MIT's credential store for the options of Krb5LoginModule; empty: the process's defaults.

    As in Java, a key tab counts with useKeyTab, and a ticket cache beside it with useTicketCache.
    Raises SECRET_NOT_FOUND for a key tab that cannot be read, OPTION_NOT_ALLOWED.
    """
    store: dict[str, str] = {}
    for name in ("ticketCache", "keyTab"):
        try:
            if name in login:
                check_path(file_of(login[name]))
        except NotAllowed as failure:
            raise not_allowed("kafka.sasl.jaas.config", failure) from None
    if login.get("ticketCache"):
        store["ccache"] = login["ticketCache"]
    if _is_true(login, "useKeyTab"):
        if key_tab := login.get("keyTab"):
            if not os.access(key_tab.removeprefix("FILE:"), os.R_OK):
                # Kerberos itself would speak of a ticket cache that nobody asked for.
                raise error(
                    "SECRET_NOT_FOUND",
                    f"keyTab {key_tab} cannot be read in the process that connects",
                )
            store["client_keytab"] = key_tab
        if not _is_true(login, "useTicketCache"):
            # A cache of this process's memory, so that a stranger's ticket is not taken.
            store["ccache"] = _in_memory(login)
    return store


def _in_memory(login: Mapping[str, str]) -> str:
    who = f"{login.get('keyTab', '')} {login.get('principal', '')}"
    return f"MEMORY:keyrange-{hashlib.sha256(who.encode()).hexdigest()[:16]}-{_generation}"


def _code(failure: Exception) -> int | None:
    return getattr(failure, "min_code", None)


def _no_ticket(failure: Exception, login: Mapping[str, str], host: str) -> KeyrangeError:
    code = _code(failure)
    # It begins with the major status, which says as much as that something failed.
    said = re.sub(r".*Minor \(\d+\): ", "", str(failure)) or type(failure).__name__
    hint = _hint(code, login, host)
    context = {"principal": login["principal"]} if login.get("principal") else {}
    return error(
        "KDC_UNREACHABLE" if code in _NO_KDC else "NO_KERBEROS_TICKET",
        f"no ticket for {login['serviceName']}/{host} was had: {said}{hint and '; ' + hint}",
        **context,
    )


def refused() -> str:
    """What to say where a broker refuses a ticket: it keeps the reason to itself."""
    return f"a broker refuses a ticket whose key its key tab does not hold; {_clocks()}"


def _clocks() -> str:
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return (
        f"Kerberos needs clocks that agree within minutes, and this machine's says {now}: set "
        "those of this machine, the KDC and the broker by one source"
    )


def _hint(code: int | None, login: Mapping[str, str], host: str) -> str:
    key_tab = login.get("keyTab", "") if _is_true(login, "useKeyTab") else ""
    cache = login.get("ticketCache") or "the default ticket cache"
    if code == _NO_SERVER:
        return (
            "its first part is serviceName, its second the host that the broker advertises, "
            f"{host}; dns_canonicalize_hostname and rdns of krb5.conf may replace that"
        )
    if code in _WRONG_TIMES:
        return _clocks()
    if key_tab and code in _OLD_KEYS:
        return f"the keys in {key_tab} are not the principal's of today: export them anew"
    if code == _EXPIRED:
        return (
            f"renew the ticket in {cache} where this process runs, or log in with a key tab "
            "(useKeyTab=true), which brings new tickets by itself"
        )
    if key_tab and code in _NO_TICKETS:
        principal = login.get("principal") or "any principal"
        return f"{key_tab} holds no key of {principal}; klist -k shows what it holds"
    if code in _NO_TICKETS:
        return f"{cache} holds no ticket where this process runs: kinit puts it there"
    return ""


def _is_true(login: Mapping[str, str], name: str) -> bool:
    return login.get(name, "").lower() == "true"
