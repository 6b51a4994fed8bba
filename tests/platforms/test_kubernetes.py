"""Kubernetes: what conf/members says is held against the API's schemas, and Spark's own client
against an API that checks them and runs the executors' pods."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from brokers.real_broker import Topics
from keyrange.embedded.process import HOST
from keyrange.members.executor_names import NameSettings, Surroundings, find_name
from kubelet import let_in
from kubernetes_api import KubernetesApi, check, kubernetes_api
from kubernetes_runs import CLAIMS, MEMBERS, ROOT, Api, by_root, executors, names_of
from kubernetes_server import kubernetes_server
from spark.worker_python import WORKER_PYTHON

LEGACY = "spark.kubernetes.legacy.useReadWriteOnceAccessMode"


@pytest.mark.parametrize("name", [path.name for path in sorted(MEMBERS.glob("*.yaml"))])
def test_a_manifest_fits_the_schemas(name: str) -> None:
    documents = list(yaml.safe_load_all((MEMBERS / name).read_text()))
    for document in documents:
        check(document)
        document["metadata"] = {"nome": "keyrange"}
        with pytest.raises(ValueError, match="nome"):
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
def imitation() -> Iterator[KubernetesApi]:
    with kubernetes_api() as started:
        yield started


@pytest.fixture(params=["imitation", "server"])
def api(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Api]:
    """An imitation of the API, which is there at once, and Kubernetes' own server."""
    if request.param == "imitation":
        yield request.getfixturevalue("imitation")
        return
    with kubernetes_server(tmp_path / "server") as started:
        yield started


@by_root
@pytest.mark.timeout(1800)
def test_a_stateful_set_keeps_names_and_volumes(topics: Topics, tmp_path: Path, api: Api) -> None:
    """A container that ends, and a pod that is deleted: both come back under the same ordinal, with
    the same volume, and no key range moves."""
    with executors(topics, tmp_path, api, "kubernetes-spark.conf") as two:
        topic = two.run.topic
        assert set(two.before.slots) == {f"{topic}-0", f"{topic}-1"}
        two.kill_one()
        [name] = names_of(api, "statefulsets")
        with two.replaced():
            api.client.delete("pods", f"{name}-1")
        claims = names_of(api, "persistentvolumeclaims")
    assert claims == [f"slot-{name}-0", f"slot-{name}-1"]
    for claim in claims:
        assert list((tmp_path / "kubelet" / "volumes" / claim).glob("keyrange-*/*/slot.json"))


@by_root
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("mode", ["ReadWriteOncePod", "ReadWriteOnce"])
def test_pods_one_by_one_hand_their_volumes_on(
    topics: Topics, tmp_path: Path, api: Api, mode: str
) -> None:
    """Of either kind that one pod after the other may write to."""
    file = "kubernetes-spark-volumes.conf"
    # No younger volume is handed on.
    confs = {"spark.kubernetes.allocation.executor.timeout": "60s"}
    if mode == "ReadWriteOnce":
        confs[LEGACY] = "true"
    with executors(topics, tmp_path, api, file, confs, by_name_file=True) as two:
        claims = names_of(api, "persistentvolumeclaims")
        pods = names_of(api, "pods")
        two.kill_one()
        [new] = set(names_of(api, "pods")) - set(pods)
        assert names_of(api, "persistentvolumeclaims") == claims
        for claim in api.client.list("persistentvolumeclaims"):
            assert claim["spec"]["accessModes"] == [mode]
    assert len(claims) == 2
    assert new.endswith("-exec-3")


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ["kubernetes-spark.conf", "kubernetes-spark-volumes.conf"])
def test_a_driver_is_submitted_with_what_executors_need(
    imitation: KubernetesApi, name: str
) -> None:
    """In cluster mode: the driver's pod, and with it the template and the confs of executors."""
    confs = {
        "spark.kubernetes.container.image": "registry.example/spark-keyrange:1",
        "spark.kubernetes.submission.waitAppCompletion": "false",
    }
    submitted = subprocess.run(
        [
            str(Path(sys.executable).parent / "spark-submit"),
            *("--master", f"k8s://{imitation.url}", "--deploy-mode", "cluster"),
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
    assert not imitation.refused
    [driver] = imitation.created("Pod")
    maps = {
        each["metadata"]["name"]: each.get("data", {}) for each in imitation.created("ConfigMap")
    }
    [template] = [each for key, each in maps.items() if "podspec" in key]
    spec = yaml.safe_load(next(iter(template.values())))["spec"]
    assert spec["securityContext"] == {"fsGroup": 185}
    [given] = [each["spark.properties"] for each in maps.values() if "spark.properties" in each]
    assert f"{CLAIMS}.options.claimName=OnDemand" in given
    arguments = driver["spec"]["containers"][0]["args"]
    assert arguments[0] == "driver"
    assert "local:///opt/jobs/ingest.py" in arguments, arguments
