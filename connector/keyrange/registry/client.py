"""Confluent's REST API of a schema registry, as far as readers and writers of records need it.

All addresses of the registry are one registry: what does not answer at one is asked of the next.
That a schema is not known is an answer of the registry too; it counts if no address knows it.
Errors name the server and what it said, never what logs in, which the path of an address may be
too; nor do the local values of their tracebacks.
"""

from __future__ import annotations

import base64
import http.client
import json
import re
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import IO, Any, Final, TypeVar
from urllib.parse import quote, unquote, urlsplit

from keyrange.errors import KeyrangeError, error
from keyrange.kafka.security.http_requests import opener
from keyrange.kafka.security.tls_stores import tls_context
from keyrange.options.registry import SHOWN_PREFIX, RegistrySettings
from keyrange.options.secrets import UnseenBytes, UnseenText
from keyrange.registry.registered_schemas import (
    Reference,
    RegisteredSchema,
    SchemaDocument,
    SchemaId,
    read_document,
    read_id,
    with_references,
)
from keyrange.text.masking import server_of, without

_Read = TypeVar("_Read")

_ANSWER_BYTES_MAX: Final = 16 << 20
_ACCEPT: Final = "application/vnd.schemaregistry.v1+json, application/json"
_SENT: Final = "application/vnd.schemaregistry.v1+json"
# RFC 6750, 2.1. Anything else could end the header's line.
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*", re.ASCII)
_DENIES: Final = frozenset((401, 403, 407))
_PASSES: Final = frozenset((408, 425, 429, *range(500, 600)))
# Confluent's error codes: no such subject, version, schema.
_UNKNOWN: Final = frozenset((40401, 40402, 40403))
# Of a schema that is registered: it is not compatible with others, or no valid one.
_REFUSES: Final = frozenset((409, 422))
_PAUSE_S: Final = 0.25
_PAUSE_MAX_S: Final = 4.0
# An answer that says in what schemas differ takes some lines.
_SAID_MAX: Final = 500
# Shorter parts of a path are names, as /apis/ccompat/v7.
_TOKEN_MIN: Final = 8


class UnknownToRegistry(LookupError):
    """The registry answers, and has no such schema, subject or version."""


class UnknownReference(UnknownToRegistry):
    """It has the schema, and not one that this refers to."""


class _Failed(Exception):
    """An address gave no answer that can be used. `passes`: it may be asked again."""

    def __init__(self, why: str, passes: bool, pause_s: float = 0.0) -> None:
        super().__init__(why)
        self.passes = passes
        self.pause_s = pause_s


class RegistryClient:
    """Asks one registry. Every call raises REGISTRY_UNREACHABLE, REGISTRY_ANSWER_UNFIT,
    REGISTRY_DENIED, REGISTRY_TLS_FAILED, what reading stores and secrets raises, and
    UnknownToRegistry."""

    def __init__(
        self, settings: RegistrySettings, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._settings = settings
        self._sleep = sleep
        # The one that answered last is asked first.
        self._urls = [UnseenText(url) for url in settings.urls]

    def schema(self, id: SchemaId) -> RegisteredSchema:
        """A schema by its number or GUID, with all that it refers to."""
        kind = "ids" if isinstance(id, int) else "guids"
        return self._complete(f"/schemas/{kind}/{quote(str(id), safe='')}", id)

    def latest(self, subject: str) -> RegisteredSchema:
        """The latest schema of a subject."""
        return self._complete(f"/subjects/{quote(subject, safe='')}/versions/latest")

    def version(self, subject: str, version: int) -> SchemaDocument:
        """A version of a subject, also one that was deleted since: schemas may refer to it."""
        path = f"/subjects/{quote(subject, safe='')}/versions/{version}?deleted=true"
        return self._ask(path, read_document)

    def id_in(self, subject: str, type: str, text: str) -> int:
        """The number of a schema that a subject has."""
        return self._ask(f"/subjects/{quote(subject, safe='')}", read_id, _body_of(type, text))

    def register(self, subject: str, type: str, text: str) -> int:
        """Its number, of a schema that the subject has then. Also raises
        REGISTRY_SCHEMA_REFUSED."""
        path = f"/subjects/{quote(subject, safe='')}/versions"
        return self._ask(path, read_id, _body_of(type, text))

    def _complete(self, path: str, asked: SchemaId | None = None) -> RegisteredSchema:
        """`asked`: the schema's id, where that is known before the answer."""
        document = self._ask(path, read_document)
        id = document.id if asked is None else asked

        def fetch(reference: Reference) -> SchemaDocument:
            try:
                return self.version(reference.subject, reference.version)
            except UnknownToRegistry as failure:
                raise UnknownReference(f"{failure}, which {path} refers to") from None

        try:
            schema = with_references(document, fetch)
        except ValueError as failure:
            raise self._unfit(f"schema {id} cannot be used: {failure}", path) from None
        return RegisteredSchema(id, document.type, schema)

    def _ask(
        self, path: str, read: Callable[[Mapping[str, Any]], _Read], body: bytes | None = None
    ) -> _Read:
        """What `read` makes of the answer, ValueError where it is none; a `body` is posted."""
        failure = _Failed("it was not asked", False)
        for again in range(self._settings.tries):
            if again:
                pause_s = min(_PAUSE_S * 2 ** (again - 1), _PAUSE_MAX_S)
                self._sleep(min(max(pause_s, failure.pause_s), _PAUSE_MAX_S))
            passes, unknown = False, ""
            for url in tuple(self._urls):
                try:
                    found = self._asked(url, path, read, body)
                except UnknownToRegistry as said:
                    unknown = str(said)
                except _Failed as failed:
                    failure, passes = failed, passes or failed.passes
                else:
                    self._urls.remove(url)
                    self._urls.insert(0, url)
                    return found
            # An address that is away may know it.
            if unknown and (not passes or again + 1 == self._settings.tries):
                raise UnknownToRegistry(unknown)
            if not passes:
                break
        if not failure.passes:
            raise self._unfit(str(failure), path)
        raise error(
            "REGISTRY_UNREACHABLE",
            f"the schema registry gave no answer in {self._settings.tries} tries: {failure}",
            registry=self._servers(),
            path=path,
        )

    def _servers(self) -> str:
        return " ".join(map(server_of, self._urls))

    def _unfit(self, why: str, path: str) -> KeyrangeError:
        return error("REGISTRY_ANSWER_UNFIT", why, registry=self._servers(), path=path)

    def _asked(
        self,
        url: str,
        path: str,
        read: Callable[[Mapping[str, Any]], _Read],
        body: bytes | None,
    ) -> _Read:
        """The answer of one address. Raises _Failed, UnknownToRegistry, and what does not pass."""
        settings = self._settings
        headers = _headers(settings) | ({"Content-Type": _SENT} if body is not None else {})
        request = urllib.request.Request(f"{url}{path}", body, headers)
        directory = opener(url, lambda: tls_context(settings.tls, SHOWN_PREFIX))
        try:
            with directory.open(request, timeout=settings.request_timeout_ms / 1000) as answer:
                said = _body(answer)
        except urllib.error.HTTPError as failure:
            with failure:
                raise _refused(failure, url, _secrets(settings, headers)) from None
        except (OSError, http.client.HTTPException) as failure:
            raise _broken(failure, url, _secrets(settings, headers)) from None
        try:
            document = json.loads(said)
            if not isinstance(document, dict):
                raise ValueError("it is no object")
            return read(document)
        except (ValueError, RecursionError) as failure:
            # The text of json's own errors quotes nothing of what was read.
            text = f"{server_of(url)} answered with what is no JSON of a schema: {failure}"
            raise _Failed(text, False) from None


def _headers(settings: RegistrySettings) -> dict[str, str]:
    """Raises SECRET_NOT_FOUND, INVALID_OPTIONS."""
    found = {"Accept": _ACCEPT}
    if settings.user:
        pair = UnseenBytes(f"{settings.user.reveal()}:{settings.password.reveal()}".encode())
        found["Authorization"] = UnseenText("Basic " + base64.b64encode(pair).decode())
    elif settings.token:
        token = UnseenText(settings.token.reveal().strip())
        if not _TOKEN.fullmatch(token):
            raise error("INVALID_OPTIONS", "option 'schemaRegistry.token' must hold a bearer token")
        found["Authorization"] = UnseenText(f"Bearer {token}")
    return found


def _body_of(type: str, text: str) -> bytes:
    """A schema as a registry takes it."""
    return json.dumps({"schema": text, "schemaType": type}).encode()


def _body(answer: Any) -> bytes:
    body: bytes = answer.read(_ANSWER_BYTES_MAX + 1)
    if len(body) > _ANSWER_BYTES_MAX:
        raise _Failed(f"an answer has more than {_ANSWER_BYTES_MAX} bytes", False)
    if answer.length:
        raise http.client.IncompleteRead(b"", answer.length)
    return body


def _secrets(settings: RegistrySettings, headers: Mapping[str, str]) -> list[str]:
    """What a registry that quotes a request would show."""
    given = (settings.user, settings.password, settings.token)
    sent = headers.get("Authorization", "").partition(" ")[2]
    paths = [path for url in settings.urls for path in _parts(urlsplit(url).path)]
    return [sent, *paths, *(each.reveal().strip() for each in given if each)]


def _parts(path: str) -> Iterator[UnseenText]:
    """A path, and its parts of some length, as they are sent and as they are meant."""
    for each in (path, *(part for part in path.split("/") if len(part) >= _TOKEN_MIN)):
        yield UnseenText(each)
        yield UnseenText(unquote(each))


def _refused(failure: urllib.error.HTTPError, url: str, secrets: Iterable[str]) -> Exception:
    """What the status of an answer means."""
    code, said = _explanation(failure)
    said = without(said, secrets)[:_SAID_MAX]
    text = f"{server_of(url)} answered with HTTP status {failure.code}{said and ': ' + said}"
    if failure.code in _DENIES:
        return error("REGISTRY_DENIED", text)
    if failure.code in _REFUSES:
        return error("REGISTRY_SCHEMA_REFUSED", text)
    if failure.code == 404 and code in _UNKNOWN:
        return UnknownToRegistry(text)
    if failure.code in _PASSES:
        return _Failed(text, True, _retry_after_s(failure))
    if failure.code == 404:
        text += ", without the error code of a schema registry"
    return _Failed(text, False)


def _explanation(body: IO[bytes]) -> tuple[int, str]:
    """`error_code` of the registry's errors, and `message` as far as it is printable."""
    try:
        document = json.loads(body.read(_ANSWER_BYTES_MAX))
        code, said = document.get("error_code"), str(document.get("message", ""))
    except (OSError, ValueError, AttributeError, RecursionError, http.client.HTTPException):
        return 0, ""
    return code if type(code) is int else 0, "".join(each for each in said if each.isprintable())


def _retry_after_s(failure: urllib.error.HTTPError) -> float:
    given = failure.headers.get("Retry-After", "")
    return float(given) if given.isdecimal() and len(given) < 6 else 0.0


def _broken(failure: Exception, url: str, secrets: Iterable[str]) -> Exception:
    """What it means that a connection was not made, or broke."""
    reason = getattr(failure, "reason", None)
    cause = reason if isinstance(reason, OSError) else failure
    if isinstance(cause, ssl.SSLCertVerificationError):
        text = f"the registry's certificate: {cause.verify_message}"
        return error("REGISTRY_TLS_FAILED", text, registry=server_of(url))
    if isinstance(cause, ssl.SSLError) and not isinstance(
        cause, ssl.SSLEOFError | ssl.SSLZeroReturnError
    ):
        text = f"TLS could not be agreed on: {cause.reason or cause}"
        return error("REGISTRY_TLS_FAILED", text, registry=server_of(url))
    if isinstance(cause, TimeoutError):
        return _Failed(f"{server_of(url)} did not answer in time", True)
    said = without(str(cause), secrets) or type(cause).__name__
    return _Failed(f"{server_of(url)}: {said}", True)
