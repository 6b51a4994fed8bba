"""Requests to Kubernetes' API in the namespace `default`: as a kubelet, a controller and kubectl
send them."""

from __future__ import annotations

import json
import ssl
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote
from urllib.request import Request, urlopen

Object = dict[str, Any]
NAMESPACE = "default"
_GROUPS = {
    "rolebindings": "apis/rbac.authorization.k8s.io/v1",
    "roles": "apis/rbac.authorization.k8s.io/v1",
    "statefulsets": "apis/apps/v1",
}


class KubernetesClient:
    """`token` is a bearer's, and `trusted` has the server's certificate. What the server refuses
    raises HTTPError, which notes what it said."""

    def __init__(self, url: str, token: str = "", trusted: ssl.SSLContext | None = None) -> None:
        self.url, self._token, self._trusted = url, token, trusted

    def is_ready(self) -> bool:
        """Whether the server is up, with the namespace."""
        try:
            self._send("GET", "readyz")
            self._send("GET", f"api/v1/namespaces/{NAMESPACE}")
        except URLError:
            return False
        return True

    def list(self, plural: str, selector: str = "") -> list[Object]:
        answer = self._ask("GET", f"{_path(plural)}?labelSelector={quote(selector)}")
        items: list[Object] = answer["items"]
        return items

    def get(self, plural: str, name: str) -> Object | None:
        """None where there is no such object."""
        try:
            return self._ask("GET", f"{_path(plural)}/{name}")
        except HTTPError as failure:
            if failure.code == 404:
                return None
            raise

    def create(self, plural: str, document: Object, sub: str = "") -> Object:
        """`sub` is a subresource of an object that is there, such as `spark/token`. Fields that the
        API does not know are refused."""
        path = "/".join(filter(None, (_path(plural), sub)))
        return self._ask("POST", f"{path}?fieldValidation=Strict", document)

    def tell_status(self, plural: str, name: str, status: Object) -> None:
        """Put fields into an object's status; an object that is gone has none."""
        try:
            self._ask("PATCH", f"{_path(plural)}/{name}/status", {"status": status})
        except HTTPError as failure:
            if failure.code != 404:
                raise

    def change(self, plural: str, name: str, fields: Object) -> None:
        """Put fields into an object; a list takes the place of the one that is there."""
        self._ask("PATCH", f"{_path(plural)}/{name}", fields)

    def may(self, verb: str, resource: str) -> bool:
        """Whether the server lets the bearer do something with all objects of a kind."""
        attributes = {"namespace": NAMESPACE, "verb": verb, "resource": resource}
        prefix, _, rest = _GROUPS.get(resource, "").partition("/")
        if prefix:
            attributes["group"] = rest.partition("/")[0]
        group = "authorization.k8s.io/v1"
        review = {"apiVersion": group, "kind": "SelfSubjectAccessReview"}
        spec = {"spec": {"resourceAttributes": attributes}}
        answer = self._ask("POST", f"apis/{group}/selfsubjectaccessreviews", review | spec)
        return bool(answer["status"]["allowed"])

    def delete(self, plural: str, name: str) -> None:
        self._ask("DELETE", f"{_path(plural)}/{name}")

    def _ask(self, method: str, path: str, document: Object | None = None) -> Object:
        found: Object = json.loads(self._send(method, path, document))
        return found

    def _send(self, method: str, path: str, document: Object | None = None) -> bytes:
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        headers = {"Content-Type": kind, "Accept": "application/json"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        body = None if document is None else json.dumps(document).encode()
        request = Request(f"{self.url}/{path}", body, headers, method=method)
        try:
            with urlopen(request, timeout=60, context=self._trusted) as answer:
                text: bytes = answer.read()
                return text
        except HTTPError as failure:
            failure.add_note(failure.read().decode(errors="replace"))
            raise


def _path(plural: str) -> str:
    return f"{_GROUPS.get(plural, 'api/v1')}/namespaces/{NAMESPACE}/{plural}"
