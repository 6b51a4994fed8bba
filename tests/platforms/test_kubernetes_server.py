"""Kubernetes' own API server: it takes what conf/members has, and a driver whose rights are those
of its role gets by with them, and with no fewer."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError

import pytest
import yaml

from brokers.real_broker import wait_until
from keyrange.embedded.process import HOST
from kubelet import kubelet
from kubernetes_client import Object
from kubernetes_runs import CLAIMS, MEMBERS, by_root, driver_pod, properties
from kubernetes_server import RIGHTS, ROLE, KubernetesServer, kubernetes_server
from spark.worker_python import WORKER_PYTHON

JOB = """
import time
from pyspark.sql import SparkSession

context = SparkSession.builder.getOrCreate().sparkContext
executors = context._jsc.sc().getExecutorMemoryStatus
until = time.monotonic() + 300
while executors().size() < 3:
    assert time.monotonic() < until
    time.sleep(0.2)
assert context.parallelize(range(100), 4).sum() == 4950
context.stop()
"""
# A verb and a resource.
Right = tuple[str, str]
# What a driver asks for when it has lost an executor.
OF_A_LOSS = ("delete", "pods")


def rules() -> list[Object]:
    """Those of the role in conf/members."""
    documents = yaml.safe_load_all(RIGHTS.read_text())
    return [rule for each in documents if each["kind"] == "Role" for rule in each["rules"]]


def rights(of: list[Object]) -> list[Right]:
    return [(verb, name) for rule in of for name in rule["resources"] for verb in rule["verbs"]]


def without(right: Right) -> list[Object]:
    """The rules, but for one verb of one resource."""
    return [
        rule | {"resources": [name], "verbs": verbs}
        for rule in rules()
        for name in rule["resources"]
        if (verbs := [verb for verb in rule["verbs"] if (verb, name) != right])
    ]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[KubernetesServer]:
    with kubernetes_server(tmp_path / "server") as started:
        yield started


@pytest.fixture(scope="module")
def driven(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubernetesServer]:
    """A server that drivers have asked for all that they need, from their start to their end, with
    either allocator. No executor was lost."""
    home = tmp_path_factory.mktemp("driven")
    job = home / "job.py"
    job.write_text(JOB)
    (home / "slots").mkdir()
    with kubernetes_server(home / "server") as started, kubelet(started.client, home / "kubelet"):
        confs = {**started.confs, **driver_pod(started), "spark.driver.host": HOST}
        confs[f"{CLAIMS}.mount.path"] = str(home / "slots")
        for file in ("kubernetes-spark.conf", "kubernetes-spark-volumes.conf"):
            submit(started, home, properties(file) | confs)
        print(sorted(asked(started)))
        yield started


def submit(server: KubernetesServer, home: Path, confs: dict[str, str]) -> None:
    """A driver, which has to end well."""
    command = [
        str(Path(sys.executable).parent / "spark-submit"),
        *("--master", f"k8s://{server.url}", "--deploy-mode", "client"),
        *(f"--conf={name}={value}" for name, value in confs.items()),
        str(home / "job.py"),
    ]
    environment = {**os.environ, "PYSPARK_PYTHON": WORKER_PYTHON}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, (server.refused, done.stderr[-3000:])


def asked(server: KubernetesServer) -> set[Right]:
    return {(each.verb, each.resource) for each in server.asked}


@pytest.mark.timeout(600)
def test_the_server_takes_a_consumer(server: KubernetesServer) -> None:
    document = yaml.safe_load((MEMBERS / "kubernetes-consumer.yaml").read_text())
    broken = yaml.safe_load((MEMBERS / "kubernetes-consumer.yaml").read_text())
    broken["spec"]["template"]["spec"]["containers"][0]["volumeMounts"][0]["name"] = "slots"
    with pytest.raises(HTTPError) as refused:
        server.client.create("statefulsets", broken)
    assert "volumeMounts" in refused.value.__notes__[0]
    server.client.create("statefulsets", document)


@by_root
@pytest.mark.timeout(1200)
def test_a_driver_gets_by_with_its_role(driven: KubernetesServer) -> None:
    """And there is nothing in the role that no driver asks for."""
    assert not driven.refused
    there = asked(driven) - {("create", "selfsubjectaccessreviews")}
    assert there | {OF_A_LOSS} == set(rights(rules()))


@by_root
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("right", rights(rules()), ids="-".join)
def test_a_driver_is_denied_what_its_role_leaves_out(
    driven: KubernetesServer, right: Right
) -> None:
    """Of all that drivers asked for the server denies one thing if the role has one right less: no
    other rule, and no role of Kubernetes' own, grants it too."""
    driver = driven.as_driver()
    wanted = sorted(set(rights(rules())) & (asked(driven) | {OF_A_LOSS}))

    def denied() -> list[Right]:
        return [each for each in wanted if not driver.may(*each)]

    assert right in wanted
    driven.client.change("roles", ROLE, {"rules": without(right)})
    try:
        wait_until(lambda: denied() == [right])
    finally:
        driven.client.change("roles", ROLE, {"rules": rules()})
    wait_until(lambda: denied() == [])
