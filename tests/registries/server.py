"""A schema registry on loopback that answers as Confluent's does, with faults on demand."""

from __future__ import annotations

import base64
import hashlib
import json
import ssl
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

_JSON = "application/vnd.schemaregistry.v1+json"
_SLOW_S = 0.05

Document = dict[str, Any]


class Refused(Exception):
    """HTTP status, error code, message."""


@dataclass
class Stored:
    id: int
    document: Document

    @property
    def guid(self) -> str:
        text = json.dumps(self.document, sort_keys=True).encode()
        return str(uuid.UUID(bytes=hashlib.md5(text).digest()))


@dataclass
class Registry:
    """`requests` are the paths that were asked for, in order. `faults` are consumed one a request
    before it is answered: a status, or reset, half, drip, hang, html, list, huge, none.
    """

    url: str = ""
    base: str = ""
    login: str = ""
    requests: list[str] = field(default_factory=list)
    faults: list[int | str] = field(default_factory=list)
    pace: Callable[[], None] = lambda: None
    schemas: dict[int, Document] = field(default_factory=dict)
    subjects: dict[str, list[Stored]] = field(default_factory=dict)
    deleted: set[tuple[str, int]] = field(default_factory=set)

    def register(
        self, subject: str, text: str, kind: str = "AVRO", references: list[Document] | None = None
    ) -> int:
        """The schema's id; of the same schema the same."""
        document: Document = {"schema": text}
        if kind != "AVRO":
            document["schemaType"] = kind
        if references:
            document["references"] = references
        same = (id for id, each in self.schemas.items() if each == document)
        id = next(same, len(self.schemas) + 1)
        self.schemas[id] = document
        versions = self.subjects.setdefault(subject, [])
        if id not in [each.id for each in versions]:
            versions.append(Stored(id, document))
        return id

    def guid(self, id: int) -> str:
        return Stored(id, self.schemas[id]).guid

    def answer(self, method: str, path: str, body: Document) -> Any:
        whole = urlsplit(path)
        if not whole.path.startswith(f"{self.base}/"):
            raise Refused(404, 404, "HTTP 404 Not Found")
        parts = [unquote(each) for each in whole.path[len(self.base) + 1 :].split("/")]
        match method, parts:
            case "GET", ["schemas", "ids", number]:
                if not number.isdecimal() or int(number) not in self.schemas:
                    raise Refused(404, 40403, f"Schema {number} not found")
                return self.schemas[int(number)] | {"guid": self.guid(int(number))}
            case "GET", ["schemas", "guids", guid]:
                for id, document in self.schemas.items():
                    if self.guid(id) == guid:
                        return document
                raise Refused(404, 40403, f"Schema {guid} not found")
            case "GET", ["subjects"]:
                return list(self.subjects)
            case "GET", ["subjects", subject, "versions", number]:
                return self._version(subject, number, "deleted=true" in whole.query)
            case "POST", ["subjects", subject, "versions"]:
                kind = body.get("schemaType") or "AVRO"
                id = self.register(subject, body["schema"], kind, body.get("references"))
                return {"id": id, "guid": self.guid(id)}
            case "POST", ["subjects", subject]:
                for at, each in enumerate(self.subjects.get(subject, ()), 1):
                    if each.document["schema"] == body["schema"]:
                        return self._named(subject, at, each)
                raise Refused(404, 40403, "Schema not found")
        raise Refused(404, 404, "HTTP 404 Not Found")

    def _version(self, subject: str, number: str, deleted: bool) -> Document:
        versions = self.subjects.get(subject, [])
        there = [
            at for at in range(1, len(versions) + 1) if deleted or (subject, at) not in self.deleted
        ]
        if not there:
            raise Refused(404, 40401, f"Subject '{subject}' not found.")
        if number != "latest" and int(number) not in there:
            raise Refused(404, 40402, f"Version {number} not found.")
        at = there[-1] if number == "latest" else int(number)
        return self._named(subject, at, versions[at - 1])

    def _named(self, subject: str, version: int, stored: Stored) -> Document:
        told = {"subject": subject, "version": version, "id": stored.id, "guid": stored.guid}
        return told | stored.document


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


class _Handler(BaseHTTPRequestHandler):
    registry: Registry

    def do_GET(self) -> None:
        registry = self.registry
        registry.requests.append(self.path)
        registry.pace()
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else {}
        if registry.faults and (fault := registry.faults.pop(0)) != "none":
            self._fail(fault)
            return
        if registry.login and self.headers.get("Authorization") != registry.login:
            self._send(401, {"error_code": 401, "message": "Unauthorized"})
            return
        try:
            self._send(200, registry.answer(self.command, self.path, body))
        except Refused as failure:
            status, code, message = failure.args
            self._send(status, {"error_code": code, "message": message})

    do_POST = do_GET

    def _fail(self, fault: int | str) -> None:
        if isinstance(fault, int):
            named = {"Location": "/elsewhere"} if fault in (301, 302, 307) else {}
            named |= {"Retry-After": "3"} if fault == 429 else {}
            self._send(fault, {"error_code": 50001, "message": "said by\nthe test"}, named)
        elif fault == "html":
            self._send(200, b"<html>a console</html>")
        elif fault == "list":
            self._send(200, ["a"])
        elif fault == "huge":
            self._send(200, {"schema": " " * (17 << 20)})
        elif fault == "hang":
            time.sleep(1)
        elif fault in ("half", "drip"):
            self.send_response(200)
            self.send_header("Content-Length", "100")
            self.end_headers()
            self.wfile.write(b'{"schema": ')
            for _ in range(40 if fault == "drip" else 0):
                time.sleep(_SLOW_S)
                self.wfile.write(b" ")

    def _send(self, status: int, content: Any, named: Mapping[str, str] | None = None) -> None:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", _JSON)
        self.send_header("Content-Length", str(len(body)))
        for name, value in (named or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that go away in the middle are what the tests are about."""


@contextmanager
def schema_registry(
    tls: ssl.SSLContext | None = None, base: str = "", login: str = ""
) -> Iterator[Registry]:
    registry = Registry(base=base, login=login)
    with served(registry, tls):
        yield registry


@contextmanager
def served(registry: Registry, tls: ssl.SSLContext | None = None) -> Iterator[None]:
    """While a registry answers: at the address that it had before, where it had one."""
    handler = type("Handler", (_Handler,), {"registry": registry})
    server = _Server(("127.0.0.1", urlsplit(registry.url).port or 0), handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    scheme, host = ("https", "localhost") if tls else ("http", "127.0.0.1")
    registry.url = f"{scheme}://{host}:{server.server_address[1]}{registry.base}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
