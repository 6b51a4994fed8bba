"""Kubernetes' own API server: it takes what conf/members has, and a driver whose rights are those
of its role gets by with them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError

import pytest
import yaml

from keyrange.embedded.process import HOST
from kubelet import kubelet
from kubernetes_client import Object
from kubernetes_runs import CLAIMS, MEMBERS, by_root, driver_pod, properties
from kubernetes_server import KubernetesServer, kubernetes_server
from worker_python import WORKER_PYTHON

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


@pytest.fixture
def server(tmp_path: Path) -> Iterator[KubernetesServer]:
    with kubernetes_server(tmp_path / "server") as started:
        yield started


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
def test_a_driver_gets_by_with_its_role(server: KubernetesServer, tmp_path: Path) -> None:
    """From its start to its end, with either allocator; and there is nothing in the role that no
    driver asks for."""
    job = tmp_path / "job.py"
    job.write_text(JOB)
    (tmp_path / "slots").mkdir()
    confs = {**server.confs, **driver_pod(server), "spark.driver.host": HOST}
    with kubelet(server.client, tmp_path / "kubelet"):
        for file in ("kubernetes-spark.conf", "kubernetes-spark-volumes.conf"):
            given = properties(file) | confs | {f"{CLAIMS}.mount.path": str(tmp_path / "slots")}
            submitted = subprocess.run(
                [
                    str(Path(sys.executable).parent / "spark-submit"),
                    *("--master", f"k8s://{server.url}", "--deploy-mode", "client"),
                    *(f"--conf={name}={value}" for name, value in given.items()),
                    str(job),
                ],
                capture_output=True,
                text=True,
                env={**os.environ, "PYSPARK_PYTHON": WORKER_PYTHON},
                check=False,
            )
            print(file, sorted({(each.resource, each.verb) for each in server.asked}))
            assert submitted.returncode == 0, (server.refused, submitted.stderr[-3000:])
            assert not server.refused
    asked = {(each.resource, each.verb) for each in server.asked}
    # No executor was lost here.
    assert asked | {("pods", "delete")} == granted(server)


def granted(server: KubernetesServer) -> set[tuple[str, str]]:
    rules: list[Object] = [rule for role in server.client.list("roles") for rule in role["rules"]]
    return {
        (resource, verb)
        for rule in rules
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
