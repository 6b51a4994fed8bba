"""An S3 server on loopback, in a process of its own. It counts its calls, and can make them fail.

    with S3Server() as server:
        os.environ |= server.environment          # what clients in this process need
        server.set_faults(delay_ms=100, throttled=0.1)
        server.calls()                            # what was called since

moto answers, one call at a time, so that a conditional put is atomic: moto looks and puts in two
steps. Faults come by a seed, each to its share of the calls:

- `throttled`: 503 SlowDown, and nothing was done.
- `failing`: 500 InternalError, and nothing was done.
- `lost`: the call was done, and its answer is 500 InternalError.
- `denied`: 403 AccessDenied, and nothing was done.
- `expired`: 400 ExpiredToken with the token, as Amazon's has it, and nothing was done.
- `elsewhere`: 301 PermanentRedirect, as to a client of another region, and nothing was done.
- `reset`: the connection is reset, and nothing was done.

`matching` limits these to calls whose "KIND KEY" it is found in, `times` to so many in all. Calls
of one kind of a key that fail `most` times running are let through, as a client gives up after some
tries.
"""

from __future__ import annotations

import base64
import json
import random
import re
import socket
import struct
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any, Final, NamedTuple, Self

BUCKET: Final = "lake"
_CONTROL: Final = "/-/"
# By the name of a fault.
_ANSWERS: Final = {
    "throttled": ("SlowDown", "503 Slow Down"),
    "failing": ("InternalError", "500 Internal Server Error"),
    "lost": ("InternalError", "500 Internal Server Error"),
    "denied": ("AccessDenied", "403 Forbidden"),
    "expired": ("ExpiredToken", "400 Bad Request"),
    "elsewhere": ("PermanentRedirect", "301 Moved Permanently"),
    "reset": ("", ""),
}
# As long as Amazon's: a client that has no room for an answer loses it.
_ERROR: Final = (
    '<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{0}</Code>'
    "<Message>We encountered an internal error. Please try again.</Message>"
    f"{{1}}<RequestId>{'R' * 16}</RequestId><HostId>{'H' * 76}</HostId></Error>"
)


@dataclass
class Faults:
    delay_ms: float = 0
    throttled: float = 0
    failing: float = 0
    lost: float = 0
    denied: float = 0
    expired: float = 0
    elsewhere: float = 0
    reset: float = 0
    matching: str = ""
    times: int = 1 << 30
    most: int = 2
    seed: int = 0


class Call(NamedTuple):
    """`conditional`: whether it may not write over what is there."""

    kind: str
    key: str
    client: str
    conditional: bool


class S3Server:
    """A server that ends with this process at the latest. Its buckets are empty at the start.
    `python` is one that has moto."""

    def __init__(self, python: str = sys.executable) -> None:
        self._python = python

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [self._python, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._process.stdout is not None
        self.endpoint = f"http://127.0.0.1:{int(self._process.stdout.readline())}"
        self._ask(f"/{BUCKET}", "PUT")
        self.calls()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)

    @property
    def environment(self) -> dict[str, str]:
        """What delta-rs and obstore read."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": "keyrange",
            "AWS_SECRET_ACCESS_KEY": "not-looked-at",
            "AWS_REGION": "us-east-1",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    @property
    def hadoop(self) -> dict[str, str]:
        """What Spark is told to reach it by s3a."""
        own = {
            "endpoint": self.endpoint,
            "endpoint.region": "us-east-1",
            "path.style.access": "true",
            "connection.ssl.enabled": "false",
            "access.key": "keyrange",
            "secret.key": "not-looked-at",
        }
        return {f"spark.hadoop.fs.s3a.{name}": value for name, value in own.items()}

    def set_faults(self, **faults: Any) -> None:
        """From now on; none where nothing is given."""
        self._ask(f"{_CONTROL}faults", "POST", json.dumps(asdict(Faults(**faults))).encode())

    def calls(self) -> list[Call]:
        """What was called since this was asked last."""
        return [Call(*each) for each in json.loads(self._ask(f"{_CONTROL}calls", "POST"))]

    def happened(self) -> dict[str, int]:
        """How many faults of each kind there were since `set_faults`."""
        return dict(json.loads(self._ask(f"{_CONTROL}happened", "POST")))

    def objects(self, prefix: str) -> dict[str, str]:
        """The keys that begin so, each with its tag: no call of a client, and never a fault."""
        return dict(json.loads(self._ask(f"{_CONTROL}objects", "POST", prefix.encode())))

    def content(self, key: str) -> bytes | None:
        """Of an object, likewise; None where it is not there."""
        found = json.loads(self._ask(f"{_CONTROL}content", "POST", key.encode()))
        return None if found is None else base64.b64decode(found)

    def _ask(self, path: str, method: str, data: bytes | None = None) -> bytes:
        request = urllib.request.Request(self.endpoint + path, data, method=method)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return bytes(answer.read())


def by_kind(calls: list[Call]) -> dict[str, int]:
    return dict(sorted(Counter(each.kind for each in calls).items()))


class _Wire:
    """What stands between clients and moto: counts, delays, faults, and one call at a time."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._one_at_a_time = threading.Lock()
        self._lock = threading.Lock()
        self._calls: list[Call] = []
        self._set(Faults())

    def _set(self, faults: Faults) -> None:
        self._faults, self._random = faults, random.Random(faults.seed)
        self._happened: Counter[str] = Counter()
        self._running: Counter[Call] = Counter()

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        path = environ["PATH_INFO"]
        if path.startswith(_CONTROL):
            return self._control(path.removeprefix(_CONTROL), environ, start_response)
        key = path.lstrip("/") + _prefix(environ)
        call = Call(_kind(environ), key, _client(environ), "HTTP_IF_NONE_MATCH" in environ)
        with self._lock:
            self._calls.append(call)
            delay_ms = self._faults.delay_ms if self._is_wanted(call) else 0
            fault = self._fault(call)
        if delay_ms:
            time.sleep(delay_ms / 1000)
        if fault == "reset":
            raise ConnectionResetError
        if fault not in (None, "lost"):
            return _refuse(environ, start_response, fault)
        with self._one_at_a_time:
            answer = self._answer(environ, start_response if fault is None else _ignore)
        return answer if fault is None else _refuse(environ, start_response, fault)

    def _answer(self, environ: dict[str, Any], start_response: Any) -> list[bytes]:
        parts = self._app(environ, start_response)
        try:
            return list(parts)
        finally:
            if hasattr(parts, "close"):
                parts.close()

    def _fault(self, call: Call) -> str | None:
        faults, drawn = self._faults, self._random.random()
        shares = {name: getattr(faults, name) for name in _ANSWERS}
        found, at = None, 0.0
        for name, share in shares.items():
            if found is None and at <= drawn < at + share:
                found = name
            at += share
        over = sum(self._happened.values()) >= faults.times or self._running[call] >= faults.most
        if found is None or not self._is_wanted(call) or over:
            self._running.pop(call, None)
            return None
        self._running[call] += 1
        self._happened[found] += 1
        return found

    def _is_wanted(self, call: Call) -> bool:
        return re.search(self._faults.matching, " ".join(call[:2])) is not None

    def _control(self, what: str, environ: dict[str, Any], start_response: Any) -> list[bytes]:
        found: Any = None
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        with self._lock, self._one_at_a_time:
            match what:
                case "faults":
                    self._set(Faults(**json.loads(body)))
                case "objects":
                    keys = _keys().items()
                    found = {k: v.etag for k, v in keys if k.startswith(body.decode())}
                case "content":
                    key = _keys().get(body.decode())
                    found = None if key is None else base64.b64encode(key.value).decode()
                case "calls":
                    found, self._calls = self._calls, []
                case "happened":
                    found = self._happened
        start_response("200 OK", [("Content-Type", "application/json")])
        return [json.dumps(found).encode()]


def _keys() -> Any:
    """moto's own: an object by its key."""
    from moto.core import DEFAULT_ACCOUNT_ID
    from moto.s3.models import s3_backends

    return s3_backends[DEFAULT_ACCOUNT_ID]["aws"].buckets[BUCKET].keys


def _kind(environ: dict[str, Any]) -> str:
    """As a bill names it: parts of an upload are puts, and so are copies."""
    method, query = environ["REQUEST_METHOD"], environ["QUERY_STRING"]
    of_a_bucket = "/" not in environ["PATH_INFO"].strip("/")
    if method == "GET" and of_a_bucket and ("list-type" in query or "prefix" in query):
        return "LIST"
    if method == "POST":
        return "DELETE" if "delete" in query else "PUT"
    return str(method)


def _prefix(environ: dict[str, Any]) -> str:
    found = re.search(r"(?:^|&)prefix=([^&]*)", environ["QUERY_STRING"])
    return f"/{urllib.request.unquote(found[1])}" if found else ""


def _client(environ: dict[str, Any]) -> str:
    agent = environ.get("HTTP_USER_AGENT", "")
    names = {"object_store": "delta-rs", "aws-sdk-java": "Spark"}
    return next((name for part, name in names.items() if part in agent), agent)


def _ignore(*_: Any) -> None:
    pass


def _refuse(environ: dict[str, Any], start_response: Any, fault: str) -> list[bytes]:
    code, status = _ANSWERS[fault]
    token = environ.get("HTTP_X_AMZ_SECURITY_TOKEN", "") if fault == "expired" else ""
    more = f"<Token-0>{token}</Token-0>" if token else ""
    body = _ERROR.format(code, more).encode()
    headers = [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))]
    start_response(status, headers)
    return [body]


def serve() -> None:
    """Serve until standard input ends, and say first on which port."""
    from moto.moto_server.werkzeug_app import (
        DomainDispatcherApplication,
        MotoRequestHandler,
        create_backend_app,
    )
    from werkzeug.serving import make_server

    class Handler(MotoRequestHandler):
        protocol_version = "HTTP/1.1"

        def log(self, *_: Any) -> None:
            pass

        def connection_dropped(self, *_: Any) -> None:
            # Closed so, and not shut down before, a connection is reset.
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.close_connection = True

    app = _Wire(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=Handler)
    server.shutdown_request = server.close_request  # type: ignore[method-assign]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_port, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    serve()
