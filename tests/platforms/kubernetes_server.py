"""Kubernetes' own API server with its store, on this machine: it authorizes by roles, and admits
what the server of a cluster admits. There is no controller, no scheduler and no kubelet beside it.

ci/kubernetes.sh builds both programs.
"""

from __future__ import annotations

import json
import os
import secrets
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from brokers.real_broker import wait_until
from keyrange.embedded.process import HOST, free_ports
from kubernetes_client import NAMESPACE, KubernetesClient

PROGRAMS = (
    Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "keyrange" / "kubernetes"
)
RIGHTS = Path(__file__).parents[2] / "conf" / "members" / "kubernetes-rbac.yaml"
ACCOUNT, ROLE = "spark", "spark-driver"
# Enough to see who asked for what, and what the answer was.
_AUDIT = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived", "ResponseStarted"],
    "rules": [{"level": "Metadata"}],
}


class Asked(NamedTuple):
    """A request: a verb such as `deletecollection`, a resource such as `statefulsets/scale`, the
    HTTP status of the answer and why."""

    verb: str
    resource: str
    status: int
    message: str


@dataclass
class KubernetesServer:
    """`client` may do everything; a driver's requests are made as the service account of
    conf/members, with the rights that it has there."""

    url: str
    home: Path
    client: KubernetesClient

    @property
    def confs(self) -> dict[str, str]:
        """Spark's, for the requests of a driver in client mode."""
        token = self.home / "token"
        token.write_text(self._token())
        return {
            "spark.kubernetes.authenticate.oauthTokenFile": str(token),
            "spark.kubernetes.authenticate.caCertFile": str(self.home / "apiserver.crt"),
        }

    def as_driver(self) -> KubernetesClient:
        """A client with the rights that a driver has."""
        trusted = ssl.create_default_context(cafile=str(self.home / "apiserver.crt"))
        return KubernetesClient(self.url, self._token(), trusted)

    def _token(self) -> str:
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        given = self.client.create("serviceaccounts", request, f"{ACCOUNT}/token")
        return str(given["status"]["token"])

    @property
    def asked(self) -> list[Asked]:
        """What the account has asked for."""
        found = []
        name = f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}"
        for line in (self.home / "audit.log").read_text().splitlines():
            event = json.loads(line)
            if event["user"]["username"] == name and "objectRef" in event:
                of, answer = event["objectRef"], event.get("responseStatus", {})
                resource = "/".join(filter(None, (of["resource"], of.get("subresource"))))
                said = answer.get("message", "")
                found.append(Asked(event["verb"], resource, answer.get("code", 0), said))
        return found

    @property
    def refused(self) -> list[Asked]:
        """Of these what it was denied, or what was not valid."""
        return [each for each in self.asked if each.status in (400, 401, 403, 422)]


@contextmanager
def kubernetes_server(home: Path) -> Iterator[KubernetesServer]:
    programs = [PROGRAMS / name for name in ("etcd", "kube-apiserver")]
    if not all(path.exists() for path in programs):
        pytest.skip("there is no kube-apiserver: ci/kubernetes.sh builds it")
    home.mkdir()
    etcd_port, peer_port, port = free_ports(3)
    admin = secrets.token_hex(16)
    etcd = _etcd_options(home, etcd_port, peer_port)
    options = _server_options(home, etcd["advertise-client-urls"], port, admin)
    started: list[subprocess.Popen[bytes]] = []
    try:
        for program, given in zip(programs, (etcd, options), strict=True):
            started.append(_start(program, given, home))
        client = _client(home, f"https://{HOST}:{port}", admin, started)
        # The work of a controller that is not here: each pod is one of an account.
        document = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
        for each in (document, *yaml.safe_load_all(RIGHTS.read_text())):
            client.create(f"{each['kind'].lower()}s", each)
        yield KubernetesServer(client.url, home, client)
    finally:
        for process in reversed(started):
            process.kill()
            process.wait(120)


def _etcd_options(home: Path, port: int, peer_port: int) -> dict[str, str]:
    url = f"http://{HOST}:{port}"
    return {
        "data-dir": str(home / "etcd"),
        "listen-client-urls": url,
        "advertise-client-urls": url,
        "listen-peer-urls": f"http://{HOST}:{peer_port}",
        "unsafe-no-fsync": "true",
    }


def _server_options(home: Path, etcd: str, port: int, admin: str) -> dict[str, str]:
    (home / "tokens.csv").write_text(f'{admin},admin,admin,"system:masters"\n')
    (home / "audit.json").write_text(json.dumps(_AUDIT))
    _write_key(home / "accounts.pem")
    return {
        "etcd-servers": etcd,
        "bind-address": HOST,
        "advertise-address": HOST,
        "secure-port": str(port),
        "cert-dir": str(home),
        "authorization-mode": "RBAC",
        "token-auth-file": str(home / "tokens.csv"),
        "service-account-issuer": "https://kubernetes.default.svc",
        "service-account-key-file": str(home / "accounts.pem"),
        "service-account-signing-key-file": str(home / "accounts.pem"),
        "service-cluster-ip-range": "10.0.0.0/24",
        "endpoint-reconciler-type": "none",
        "audit-policy-file": str(home / "audit.json"),
        "audit-log-path": str(home / "audit.log"),
    }


def _client(
    home: Path, url: str, token: str, started: list[subprocess.Popen[bytes]]
) -> KubernetesClient:
    """As soon as the server answers; it has written its certificate by then."""
    certificate = home / "apiserver.crt"

    def client() -> KubernetesClient:
        return KubernetesClient(url, token, ssl.create_default_context(cafile=str(certificate)))

    def is_ready() -> bool:
        for process in started:
            assert process.poll() is None, _logs(home)
        return certificate.exists() and client().is_ready()

    wait_until(is_ready)
    return client()


def _logs(home: Path) -> str:
    return "\n".join(path.read_text()[-2000:] for path in home.glob("*.log"))


def _start(program: Path, options: dict[str, str], home: Path) -> subprocess.Popen[bytes]:
    with (home / f"{program.name}.log").open("wb") as log:
        return subprocess.Popen(
            [str(program), *(f"--{name}={value}" for name, value in options.items())],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def _write_key(path: Path) -> None:
    """A key that the tokens of service accounts are signed with."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
