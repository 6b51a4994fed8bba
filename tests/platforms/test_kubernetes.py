"""Kubernetes: what conf/members says is held against the API's schemas, and Spark's own client
against an API that checks them and runs the executors' pods."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from brokers import Topics
from keyrange.embedded.process import HOST
from keyrange.members.executor_names import NameSettings, Surroundings, find_name
from keyrange.members.model.assignment import Assignment
from kubelet import kubelet, let_in
from kubernetes_api import KubernetesApi, check, kubernetes_api
from pinned_cluster import Feeder, PinnedCluster, PinnedRun, pinned_cluster
from worker_python import WORKER_PYTHON

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


@pytest.mark.parametrize("name", [path.name for path in sorted(MEMBERS.glob("*.yaml"))])
def test_a_manifest_fits_the_schemas(name: str) -> None:
    document = yaml.safe_load((MEMBERS / name).read_text())
    check(document)
    document["spec"].setdefault("template", document)["spec"]["securityContext"] = {"fsgroup": 1}
    with pytest.raises(ValueError, match="fsgroup"):
        check(document)


@by_root
@pytest.mark.parametrize("from_file", [False, True], ids=["slot.directory", "member.name.file"])
def test_sparks_user_keeps_its_name_on_a_volume_of_roots(from_file: bool) -> None:
    """With the template's fsGroup; without it the volume cannot be used, and the error says so."""
    template = yaml.safe_load((MEMBERS / "kubernetes-spark-pod.yaml").read_text())
    group = template["spec"]["securityContext"]["fsGroup"]
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        volume = Path(directory)
        volume.chmod(0o755)
        where = {"file": str(volume / "name")} if from_file else {"slot_directory": str(volume)}
        settings = NameSettings("orders", policy="static", **where)

        def name_in(pod: str) -> str:
            around = Surroundings({"KUBERNETES_SERVICE_HOST": HOST}, pod, lambda: "ab")
            return as_sparks_user(group, lambda: find_name(settings, around).name)

        assert "NO_STATIC_MEMBER_INFO_SET" in name_in("pod-1")
        names = []
        for pod in ("pod-1", "pod-2"):
            let_in(volume, group)
            names.append(name_in(pod))
    assert names == ["orders-ab" if from_file else "orders-pod-1-0"] * 2


def as_sparks_user(group: int, call: Callable[[], str]) -> str:
    """What a call says to user 185 of group root, who runs Spark's image, with a group more."""
    reader, writer = os.pipe()
    process = os.fork()
    if process == 0:
        try:
            os.setgroups([group])
            os.setgid(0)
            os.setuid(185)
            said = call()
        except BaseException as failure:
            said = repr(failure)
        os.write(writer, said.encode())
        os._exit(0)
    os.close(writer)
    os.waitpid(process, 0)
    with os.fdopen(reader) as text:
        return text.read()


@pytest.fixture
def api() -> Iterator[KubernetesApi]:
    with kubernetes_api() as started:
        yield started


def driver_pod(api: KubernetesApi) -> dict[str, str]:
    """The pod that the driver runs in, as spark-submit makes it; the confs that say so."""
    api.store.put(
        "pods",
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": DRIVER, "namespace": "default", "labels": {}},
            "spec": {"containers": [{"name": "spark-kubernetes-driver"}]},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
        },
    )
    return {"spark.kubernetes.driver.pod.name": DRIVER, "spark.kubernetes.namespace": "default"}


def settled(run: PinnedRun, api: KubernetesApi) -> Assignment:
    try:
        return run.settle(2)
    finally:
        print(api.refused, [(m, p) for m, p, _ in api.asked])


@by_root
@pytest.mark.timeout(1800)
def test_a_stateful_set_keeps_names_and_volumes(
    topics: Topics, tmp_path: Path, api: KubernetesApi
) -> None:
    """A container that ends, and a pod that is deleted: both come back under the same ordinal, with
    the same volume, and no key range moves."""
    topic = topics.create_topic("stateful", PARTITIONS)
    slots = tmp_path / "slots"
    confs = properties("kubernetes-spark.conf") | driver_pod(api)
    confs[f"{CLAIMS}.mount.path"] = str(slots)
    with (
        kubelet(api, tmp_path / "kubelet"),
        pinned_cluster(topics, tmp_path, api.master, confs, [os.getpid()]) as cluster,
    ):
        with Feeder(topics, topic, PARTITIONS) as feeder:
            run = cluster.start("stateful", topic, memberNames="static")
            before = settled(run, api)
            assert set(before.slots) == {f"{topic}-0", f"{topic}-1"}

            with replaced(cluster, run, before):
                cluster.kill_executor(cluster.executors()[0])

            [stateful] = api.store.list("statefulsets")
            with replaced(cluster, run, before):
                api.store.delete("pods", f"{stateful['metadata']['name']}-1")
        run.check(feeder.sent)
    assert not api.refused
    claims = [each["metadata"]["name"] for each in api.store.list("persistentvolumeclaims")]
    name = stateful["metadata"]["name"]
    assert claims == [f"slot-{name}-0", f"slot-{name}-1"]
    for claim in claims:
        assert list((tmp_path / "kubelet" / "volumes" / claim).glob("keyrange-*/*/slot.json"))


@contextmanager
def replaced(cluster: PinnedCluster, run: PinnedRun, before: Assignment) -> Iterator[None]:
    """One executor ends and another comes in its place; then all have what they had."""
    old = {each.pid for each in cluster.executors()}
    yield

    def came() -> bool:
        pids = {each.pid for each in cluster.executors()}
        return len(pids) == len(old) and len(pids - old) == 1

    run.wait(came)
    run.more_batches()
    assert run.settle(2) == before


@by_root
@pytest.mark.timeout(1800)
def test_pods_one_by_one_hand_their_volumes_on(
    topics: Topics, tmp_path: Path, api: KubernetesApi
) -> None:
    topic = topics.create_topic("volumes", PARTITIONS)
    slots = tmp_path / "slots"
    confs = properties("kubernetes-spark-volumes.conf") | driver_pod(api)
    confs[f"{CLAIMS}.mount.path"] = str(slots)
    with (
        kubelet(api, tmp_path / "kubelet"),
        pinned_cluster(topics, tmp_path, api.master, confs, [os.getpid()]) as cluster,
    ):
        with Feeder(topics, topic, PARTITIONS) as feeder:
            file = {"member.name.file": str(slots / "name")}
            run = cluster.start("volumes", topic, memberNames="static", **file)
            before = settled(run, api)
            pods = {each["metadata"]["name"] for each in api.created("Pod")}
            with replaced(cluster, run, before):
                cluster.kill_executor(cluster.executors()[0])
            [new] = {each["metadata"]["name"] for each in api.created("Pod")} - pods
        run.check(feeder.sent)
    assert not api.refused
    assert len(api.created("PersistentVolumeClaim")) == 2
    assert new.endswith("-exec-3")


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ["kubernetes-spark.conf", "kubernetes-spark-volumes.conf"])
def test_a_driver_is_submitted_with_what_executors_need(api: KubernetesApi, name: str) -> None:
    """In cluster mode: the driver's pod, and with it the template and the confs of executors."""
    confs = {
        "spark.kubernetes.container.image": "registry.example/spark-keyrange:1",
        "spark.kubernetes.submission.waitAppCompletion": "false",
    }
    submitted = subprocess.run(
        [
            str(Path(sys.executable).parent / "spark-submit"),
            *("--master", api.master, "--deploy-mode", "cluster"),
            *("--properties-file", f"conf/members/{name}"),
            *(f"--conf={key}={value}" for key, value in confs.items()),
            *("local:///opt/jobs/ingest.py", "--topic", "orders"),
        ],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYSPARK_PYTHON": WORKER_PYTHON},
        check=False,
    )
    assert submitted.returncode == 0, submitted.stderr[-3000:]
    assert not api.refused
    [driver] = api.created("Pod")
    maps = {each["metadata"]["name"]: each.get("data", {}) for each in api.created("ConfigMap")}
    [template] = [each for key, each in maps.items() if "podspec" in key]
    spec = yaml.safe_load(next(iter(template.values())))["spec"]
    assert spec["securityContext"] == {"fsGroup": 185}
    [given] = [each["spark.properties"] for each in maps.values() if "spark.properties" in each]
    assert f"{CLAIMS}.options.claimName=OnDemand" in given
    arguments = driver["spec"]["containers"][0]["args"]
    assert arguments[0] == "driver"
    assert "local:///opt/jobs/ingest.py" in arguments, arguments
