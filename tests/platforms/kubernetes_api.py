"""As much of Kubernetes' API as Spark's client asks for: objects that are created, changed, listed,
watched and deleted. It records what was asked of it, and refuses what the API's schemas refuse."""

from __future__ import annotations

import json
import queue
import re
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import kubernetes_validate
import yaml

from keyrange.embedded.process import HOST
from kubernetes_client import KubernetesClient, Object

# The range that the client of Spark 4.2 (fabric8 7.6) is made for, at both ends.
VERSIONS = ("1.33", "1.35")
_RESOURCE = re.compile(
    r"/(?:api|apis/(?P<group>[^/]+))/(?P<version>[^/]+)/namespaces/(?P<namespace>[^/]+)"
    r"/(?P<plural>[^/]+)(?:/(?P<name>[^/]+))?(?:/(?P<sub>[^/]+))?"
)
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_LISTS = {
    "configmaps": "ConfigMapList",
    "persistentvolumeclaims": "PersistentVolumeClaimList",
    "pods": "PodList",
    "services": "ServiceList",
    "statefulsets": "StatefulSetList",
}
Key = tuple[str, str]


def check(document: Object) -> None:
    """Raises ValueError where the API would refuse an object: by its schema or its name."""
    name = document.get("metadata", {}).get("name", "")
    if name and (len(name) > 253 or not _NAME.fullmatch(name)):
        raise ValueError(f"metadata.name: {name!r}")
    for version in VERSIONS:
        try:
            kubernetes_validate.validate(document, version, strict=True)
        except kubernetes_validate.ValidationError as failure:
            raise ValueError(f"{name}: {failure.message}") from None
    if document["kind"] == "StatefulSet":
        spec = document["spec"]
        claims = [each["metadata"]["name"] for each in spec.get("volumeClaimTemplates", [])]
        check_mounts(spec["template"]["spec"], claims)
    if document["kind"] == "Pod":
        check_mounts(document["spec"], [])


def check_mounts(spec: Object, claims: list[str]) -> None:
    """Each volume that a container mounts is one of the pod's."""
    known = {each["name"] for each in spec.get("volumes", [])} | set(claims)
    for container in spec["containers"]:
        for mount in container.get("volumeMounts", []):
            if mount["name"] not in known:
                raise ValueError(f"volumeMounts: not found: {mount['name']!r}")


def selects(selector: str, labels: Mapping[str, str]) -> bool:
    """Whether a selector takes labels: `a=b`, `a!=b`, `a in (b,c)`, `a notin (b)`, `a`."""
    for part in filter(None, re.split(r",(?![^(]*\))", selector)):
        if found := re.fullmatch(r"\s*(\S+)\s+(in|notin)\s+\((.*)\)\s*", part):
            among = labels.get(found[1]) in [each.strip() for each in found[3].split(",")]
            if among != (found[2] == "in"):
                return False
        elif "!=" in part:
            name, _, value = part.partition("!=")
            if labels.get(name) == value:
                return False
        else:
            name, equals, value = part.partition("=")
            if name not in labels or (equals and labels[name] != value.lstrip("=")):
                return False
    return True


class Store:
    """Objects by their plural and name, in one namespace. `changed` is told of each change."""

    def __init__(self) -> None:
        self.objects: dict[Key, Object] = {}
        self.lock = threading.RLock()
        self.changed: list[Callable[[str, str, Object], None]] = []
        self._version = 1

    def list(self, plural: str, selector: str = "", field: str = "") -> list[Object]:
        name = field.partition("metadata.name=")[2]
        with self.lock:
            return [
                each
                for (kind, key), each in list(self.objects.items())
                if kind == plural
                and (not name or key == name)
                and selects(selector, each["metadata"].get("labels", {}))
            ]

    def get(self, plural: str, name: str) -> Object | None:
        return self.objects.get((plural, name))

    def put(self, plural: str, document: Object, event: str = "") -> Object:
        """Create or replace an object."""
        with self.lock:
            meta = document["metadata"]
            key = (plural, meta["name"])
            event = event or ("MODIFIED" if key in self.objects else "ADDED")
            self._version += 1
            meta.setdefault("uid", str(uuid.uuid4()))
            meta.setdefault("creationTimestamp", datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"))
            meta["resourceVersion"] = str(self._version)
            self.objects[key] = document
        self._tell(event, plural, document)
        return document

    def delete(self, plural: str, name: str) -> Object | None:
        with self.lock:
            gone = self.objects.pop((plural, name), None)
        if gone is not None:
            self._tell("DELETED", plural, gone)
        return gone

    @property
    def version(self) -> str:
        return str(self._version)

    def _tell(self, event: str, plural: str, document: Object) -> None:
        for each in list(self.changed):
            each(event, plural, json.loads(json.dumps(document)))


class KubernetesApi:
    """The server. `asked` holds method, path and body of each request that changed something, and
    `refused` what was wrong with those that it did not take."""

    def __init__(self) -> None:
        self.store = Store()
        self.asked: list[tuple[str, str, Object]] = []
        self.refused: list[str] = []
        self.stopped = threading.Event()
        handler = type("Handler", (_Handler,), {"api": self})
        self.server = ThreadingHTTPServer((HOST, 0), handler)
        self.server.daemon_threads = True

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.server.server_address[1]}"

    @property
    def client(self) -> KubernetesClient:
        return KubernetesClient(self.url)

    @property
    def confs(self) -> dict[str, str]:
        """Spark's, for a driver's requests."""
        return {}

    def created(self, kind: str) -> list[Object]:
        """The objects of a kind as they were sent, in order."""
        return [
            body
            for method, _, body in self.asked
            if method in ("POST", "PATCH") and body.get("kind") == kind
        ]


@contextmanager
def kubernetes_api() -> Iterator[KubernetesApi]:
    api = KubernetesApi()
    thread = threading.Thread(target=api.server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield api
    finally:
        api.stopped.set()
        api.server.shutdown()
        api.server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    api: KubernetesApi
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def _answer(self, status: int, document: Object) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _fail(self, status: int, reason: str, message: str = "") -> None:
        document = {"apiVersion": "v1", "kind": "Status", "status": "Failure", "code": status}
        self._answer(status, document | {"reason": reason, "message": message or reason})

    def _resource(self) -> re.Match[str] | None:
        found = _RESOURCE.fullmatch(urlsplit(self.path).path)
        if found is None:
            self._fail(404, "NotFound", self.path)
        return found

    def _query(self, name: str) -> str:
        return parse_qs(urlsplit(self.path).query).get(name, [""])[0]

    def _body(self) -> Object:
        text = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        document: Object = yaml.safe_load(text) if text else {}
        self.api.asked.append((self.command, self.path, json.loads(json.dumps(document))))
        return document

    def do_GET(self) -> None:
        if urlsplit(self.path).path == "/version":
            self._answer(200, {"major": "1", "minor": "35", "gitVersion": "v1.35.0"})
        elif self.headers.get("Upgrade", "").lower() == "websocket":
            # The client then watches by a plain request.
            self._fail(503, "ServiceUnavailable")
        elif found := self._resource():
            self._get(found)

    def _get(self, found: re.Match[str]) -> None:
        plural, name, sub = found["plural"], found["name"], found["sub"]
        if self._query("watch") == "true":
            self._watch(plural, name)
        elif name is None:
            items = self.api.store.list(
                plural, self._query("labelSelector"), self._query("fieldSelector")
            )
            answer: Object = {"apiVersion": "v1", "kind": _LISTS[plural], "items": items}
            answer["metadata"] = {"resourceVersion": self.api.store.version}
            self._answer(200, answer)
        elif (document := self.api.store.get(plural, name)) is None:
            self._fail(404, "NotFound", f"{plural} {name}")
        else:
            self._answer(200, _scale(document) if sub == "scale" else document)

    def _watch(self, plural: str, name: str | None) -> None:
        selector = self._query("labelSelector")
        field = self._query("fieldSelector") or (f"metadata.name={name}" if name else "")
        wanted = field.partition("metadata.name=")[2]
        events: queue.Queue[tuple[str, Object]] = queue.Queue()

        def tell(event: str, kind: str, document: Object) -> None:
            meta = document["metadata"]
            is_named = not wanted or meta["name"] == wanted
            if kind == plural and is_named and selects(selector, meta.get("labels", {})):
                events.put((event, document))

        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.api.store.changed.append(tell)
        try:
            if not self._query("resourceVersion"):
                for each in self.api.store.list(plural, selector, field):
                    events.put(("ADDED", each))
            while not self.api.stopped.is_set():
                with suppress(queue.Empty):
                    event, document = events.get(timeout=0.1)
                    line = json.dumps({"type": event, "object": document}).encode() + b"\n"
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
                    self.wfile.flush()
        except OSError:
            pass  # The client is gone.
        finally:
            self.api.store.changed.remove(tell)
            self.close_connection = True

    def _taken(self, document: Object) -> bool:
        try:
            check(document)
        except ValueError as failure:
            self.api.refused.append(str(failure))
            self._fail(422, "Invalid", str(failure))
            return False
        return True

    def do_POST(self) -> None:
        document = self._body()
        if (found := self._resource()) is None:
            return
        name = document["metadata"].get("name")
        if self.api.store.get(found["plural"], name) is not None:
            self._fail(409, "AlreadyExists")
        elif self._taken(document):
            document["metadata"].setdefault("namespace", found["namespace"])
            if document["kind"] == "Pod":
                document["status"] = {"phase": "Pending"}
            self._answer(201, self.api.store.put(found["plural"], document))

    def do_PUT(self) -> None:
        document = self._body()
        if (found := self._resource()) is None:
            return
        before = self.api.store.get(found["plural"], found["name"])
        if before is None:
            self._fail(404, "NotFound")
        elif found["sub"] == "scale":
            before["spec"]["replicas"] = document["spec"]["replicas"]
            self._answer(200, _scale(self.api.store.put(found["plural"], before)))
        else:
            self._answer(200, self.api.store.put(found["plural"], document))

    def do_PATCH(self) -> None:
        patch = self._body()
        if (found := self._resource()) is None:
            return
        before = self.api.store.get(found["plural"], found["name"])
        if "apply-patch" in (self.headers.get("Content-Type") or ""):
            if self._taken(patch):
                patch["metadata"].setdefault("namespace", found["namespace"])
                self._answer(200, self.api.store.put(found["plural"], patch))
        elif before is None:
            self._fail(404, "NotFound")
        else:
            after = _patched(json.loads(json.dumps(before)), patch)
            stored = self.api.store.put(found["plural"], after)
            self._answer(200, _scale(stored) if found["sub"] == "scale" else stored)

    def do_DELETE(self) -> None:
        self._body()
        if (found := self._resource()) is None:
            return
        if found["name"] is None:
            for each in self.api.store.list(found["plural"], self._query("labelSelector")):
                self.api.store.delete(found["plural"], each["metadata"]["name"])
            self._answer(200, {"apiVersion": "v1", "kind": "Status", "status": "Success"})
        elif (gone := self.api.store.delete(found["plural"], found["name"])) is None:
            self._fail(404, "NotFound")
        else:
            self._answer(200, gone)


def _scale(document: Object) -> Object:
    meta = {
        name: document["metadata"][name] for name in ("name", "namespace", "uid", "resourceVersion")
    }
    replicas = document["spec"]["replicas"]
    return {
        "apiVersion": "autoscaling/v1",
        "kind": "Scale",
        "metadata": meta,
        "spec": {"replicas": replicas},
        "status": {"replicas": replicas},
    }


def _patched(document: Any, patch: Any) -> Any:
    """A merge patch, or where it is a list a JSON patch that adds, replaces and removes."""
    if not isinstance(patch, list):
        return _merged(document, patch)
    for step in patch:
        *way, last = [
            part.replace("~1", "/").replace("~0", "~") for part in step["path"].split("/")[1:]
        ]
        place = document
        for part in way:
            place = place[int(part)] if isinstance(place, list) else place.setdefault(part, {})
        if step["op"] == "remove":
            place.pop(last, None)
        else:
            place[last] = step["value"]
    return document


def _merged(document: Any, patch: Any) -> Any:
    if not isinstance(patch, dict) or not isinstance(document, dict):
        return patch
    for name, value in patch.items():
        if value is None:
            document.pop(name, None)
        else:
            document[name] = _merged(document.get(name, {}), value)
    return document
