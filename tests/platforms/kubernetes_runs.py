"""Executors on Kubernetes by the confs of conf/members: where they run, and how tests hurt them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pytest

from brokers.real_broker import Topics
from faults.key_feeder import Feeder
from keyrange.members.model.assignment import Assignment
from kubelet import kubelet
from kubernetes_client import NAMESPACE, KubernetesClient
from queries.pinned_cluster import PinnedCluster, PinnedRun, pinned_cluster

ROOT = Path(__file__).parent.parent.parent
MEMBERS = ROOT / "conf" / "members"
PARTITIONS = 3
by_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes pods with unshare")
DRIVER = "keyrange-driver"
CLAIMS = "spark.kubernetes.executor.volumes.persistentVolumeClaim.slot"
LIMITS = {
    "spark.kubernetes.container.image": "registry.example/spark-keyrange:1",
    "spark.executor.memory": "512m",
    "spark.executor.instances": "2",
    "spark.kubernetes.executor.podTemplateFile": str(MEMBERS / "kubernetes-spark-pod.yaml"),
}


def properties(name: str) -> dict[str, str]:
    """The confs of a file of conf/members, with the paths of this machine."""
    lines = (MEMBERS / name).read_text().splitlines()
    pairs = (line.split(maxsplit=1) for line in lines if line and not line.startswith("#"))
    return dict(pairs) | LIMITS


class Api(Protocol):
    """Of Kubernetes. `client` may do everything, `confs` are Spark's for a driver's requests, and
    `refused` says which of them the API has not taken."""

    @property
    def url(self) -> str: ...
    @property
    def client(self) -> KubernetesClient: ...
    @property
    def confs(self) -> dict[str, str]: ...
    @property
    def refused(self) -> Sequence[object]: ...


def driver_pod(api: Api) -> dict[str, str]:
    """The pod that the driver runs in, as spark-submit makes it; the confs that say so."""
    container = {"name": "spark-kubernetes-driver", "image": "registry.example/spark-keyrange:1"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": DRIVER}}
    api.client.create("pods", pod | {"spec": {"containers": [container]}})
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    api.client.tell_status("pods", DRIVER, ready)
    return {"spark.kubernetes.driver.pod.name": DRIVER, "spark.kubernetes.namespace": NAMESPACE}


def names_of(api: Api, plural: str) -> list[str]:
    return sorted(each["metadata"]["name"] for each in api.client.list(plural))


@dataclass
class Executors:
    """Two executors that follow a topic, and what each of them had at first."""

    api: Api
    cluster: PinnedCluster
    run: PinnedRun
    before: Assignment

    @contextmanager
    def replaced(self) -> Iterator[None]:
        """One ends and another comes in its place; then all have what they had."""
        old = {each.pid for each in self.cluster.executors()}
        yield

        def came() -> bool:
            pids = {each.pid for each in self.cluster.executors()}
            return len(pids) == len(old) and len(pids - old) == 1

        self.run.wait(came)
        self.run.more_batches()
        assert self.run.settle(2) == self.before

    def kill_one(self) -> None:
        with self.replaced():
            self.cluster.kill_executor(self.cluster.executors()[0])


@contextmanager
def executors(
    topics: Topics,
    home: Path,
    api: Api,
    file: str,
    confs: Mapping[str, str] | None = None,
    by_name_file: bool = False,
) -> Iterator[Executors]:
    """Executors by the confs of a file of conf/members, until all that was sent is read; the API
    has refused nothing."""
    topic = topics.create_topic(file.removesuffix(".conf"), PARTITIONS)
    slots = home / "slots"
    given = {**properties(file), **(confs or {}), **api.confs, **driver_pod(api)}
    given[f"{CLAIMS}.mount.path"] = str(slots)
    options = {"memberNames": "static"}
    if by_name_file:
        options["member.name.file"] = str(slots / "name")
    with (
        kubelet(api.client, home / "kubelet"),
        pinned_cluster(topics, home, f"k8s://{api.url}", given, [os.getpid()]) as cluster,
    ):
        with Feeder(topics, topic, PARTITIONS) as feeder:
            run = cluster.start("query", topic, **options)
            try:
                before = run.settle(2)
            finally:
                print(api.refused)
            yield Executors(api, cluster, run, before)
        run.check(feeder.sent)
        assert not api.refused
