"""Runs the executors' pods of a Kubernetes API as processes of this machine: each with a host
name, an address of the loopback interface and the variables of its own, and with the volumes that
it claims where it mounts them. A pod that claims a volume that nobody made waits for it.

It stands for the controller of stateful sets too. Pods are given volumes as Kubernetes does that:
with `fsGroup` everything on one is let in by its group, again for each pod. A claim that asks for
ReadWriteOncePod is used by one pod at a time.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from keyrange.embedded import jars
from kubernetes_client import KubernetesClient, Object

_MAIN = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
_CHECK_S = 0.1


class Kubelet:
    def __init__(self, client: KubernetesClient, home: Path) -> None:
        self.client, self.home = client, home
        self._numbers = itertools.count(1)
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._addresses: dict[str, str] = {}
        # The uid of the pod that uses a claim.
        self._users: dict[str, str] = {}
        self.failure: Exception | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._follow)

    def _follow(self) -> None:
        try:
            while not self._stopped.wait(_CHECK_S):
                self.step()
        except Exception as failure:
            self.failure = failure

    def step(self) -> None:
        """Make what is like what is asked for."""
        for each in self.client.list("statefulsets"):
            self._scale(each)
        pods = self.client.list("pods", "spark-role=executor")
        for uid in set(self._running) - {each["metadata"]["uid"] for each in pods}:
            self._kill(self._running.pop(uid))
        for pod in pods:
            uid = pod["metadata"]["uid"]
            process = self._running.get(uid)
            if uid not in self._addresses:
                self._place(pod)
            elif process is not None and process.poll() is not None:
                self._ended(pod, process.returncode)

    def _scale(self, of: Object) -> None:
        """Pods and claims as a stateful set has them; claims stay."""
        name, spec = of["metadata"]["name"], of["spec"]
        pods = {each["metadata"]["name"] for each in self.client.list("pods")}
        for number in range(spec["replicas"]):
            pod_name = f"{name}-{number}"
            if pod_name in pods:
                continue
            pod = json.loads(json.dumps(spec["template"]))
            pod |= {"apiVersion": "v1", "kind": "Pod"}
            pod["metadata"]["name"] = pod_name
            # Spark's template has one that is not valid, as no number is in its place.
            pod["spec"]["hostname"] = pod_name
            for template in spec.get("volumeClaimTemplates", []):
                volume = template["metadata"]["name"]
                claim = json.loads(json.dumps(template))
                claim |= {"apiVersion": "v1", "kind": "PersistentVolumeClaim"}
                claim["metadata"]["name"] = f"{volume}-{pod_name}"
                if self.client.get("persistentvolumeclaims", f"{volume}-{pod_name}") is None:
                    self.client.create("persistentvolumeclaims", claim)
                source = {"claimName": f"{volume}-{pod_name}"}
                pod["spec"].setdefault("volumes", []).append(
                    {"name": volume, "persistentVolumeClaim": source}
                )
            self.client.create("pods", pod)
        for pod_name in pods:
            set_name, _, number = pod_name.rpartition("-")
            if set_name == name and int(number) >= spec["replicas"]:
                self.client.delete("pods", pod_name)

    def _place(self, pod: Object) -> None:
        mounts = self._mounts(pod)
        if mounts is not None:
            self._addresses[pod["metadata"]["uid"]] = f"127.0.1.{next(self._numbers)}"
            self._run(pod, mounts)

    def _mounts(self, pod: Object) -> list[tuple[Path, str]] | None:
        """Directories for the paths at which a pod has volumes; None where it waits for one."""
        claims = {
            each["name"]: each["persistentVolumeClaim"]["claimName"]
            for each in pod["spec"].get("volumes", [])
            if "persistentVolumeClaim" in each
        }
        group = pod["spec"].get("securityContext", {}).get("fsGroup")
        found = []
        for mount in pod["spec"]["containers"][0].get("volumeMounts", []):
            claim = claims.get(mount["name"])
            if claim is None:
                continue
            if not self._may_use(claim, pod["metadata"]["uid"]):
                return None
            directory = self.home / "volumes" / claim
            directory.mkdir(parents=True, exist_ok=True)
            if group is not None:
                let_in(directory, group)
            found.append((directory, mount["mountPath"]))
        return found

    def _may_use(self, name: str, uid: str) -> bool:
        claim = self.client.get("persistentvolumeclaims", name)
        if claim is None:
            return False
        is_for_one = "ReadWriteOncePod" in claim["spec"]["accessModes"]
        if is_for_one and self._users.get(name) in set(self._running) - {uid}:
            return False
        self._users[name] = uid
        return True

    def _run(self, pod: Object, mounts: list[tuple[Path, str]]) -> None:
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        address = self._addresses[uid]
        container = pod["spec"]["containers"][0]
        given = {
            each["name"]: each.get("value", "") or _field(each, name, address)
            for each in container.get("env", [])
        }
        environment = {**os.environ, **given, "KUBERNETES_SERVICE_HOST": "127.0.0.1"}
        for variable in ("METADATA_NAME", "SPARK_EXECUTOR_POD_NAME"):
            if variable not in given:
                environment.pop(variable, None)
        local = self.home / "local" / name
        local.mkdir(parents=True, exist_ok=True)
        # Nobody here resolves the names of pods.
        environment |= {"SPARK_LOCAL_DIRS": str(local), "SPARK_LOCAL_IP": address}
        command = ["unshare", "--mount", "--uts", "--propagation", "private", "sh", "-ec"]
        command += [
            'hostname "$1"; shift; while [ "$1" != -- ]; do mount --bind "$1" "$2"; '
            'shift 2; done; shift; exec "$@"'
        ]
        command += ["pod", name]
        command += [str(part) for mount in mounts for part in mount]
        with (self.home / f"{name}.log").open("ab") as log:
            self._running[uid] = subprocess.Popen(
                [*command, "--", *_backend(environment)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=local,
                env=environment,
                start_new_session=True,
            )
        restarts = pod.get("status", {}).get("containerStatuses", [{}])[0].get("restartCount", -1)
        state = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
        self._tell(pod, "Running", state, restarts + 1, address)

    def _ended(self, pod: Object, code: int) -> None:
        uid = pod["metadata"]["uid"]
        del self._running[uid]
        if pod["spec"].get("restartPolicy") == "Always":
            mounts = self._mounts(pod)
            assert mounts is not None
            self._run(pod, mounts)
            return
        state = {"terminated": {"exitCode": code if code >= 0 else 128 - code, "reason": "Error"}}
        self._tell(pod, "Succeeded" if code == 0 else "Failed", state, 0, self._addresses[uid])

    def _tell(self, pod: Object, phase: str, state: Object, restarts: int, address: str) -> None:
        ready = phase == "Running"
        container = {"ready": ready, "restartCount": restarts, "state": state}
        container |= {name: pod["spec"]["containers"][0][name] for name in ("name", "image")}
        container["imageID"] = ""
        status = {
            "phase": phase,
            "podIP": address,
            "podIPs": [{"ip": address}],
            "conditions": [{"type": "Ready", "status": str(ready)}],
            "containerStatuses": [container],
        }
        self.client.tell_status("pods", pod["metadata"]["name"], status)

    def _kill(self, process: subprocess.Popen[bytes]) -> None:
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
        process.wait(120)

    def __enter__(self) -> Kubelet:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()
        for process in self._running.values():
            self._kill(process)
        if self.failure is not None:
            raise self.failure


def _field(variable: Object, name: str, address: str) -> str:
    path = variable.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath", "")
    return {"metadata.name": name, "status.podIP": address}.get(path, "")


def _backend(environment: dict[str, str]) -> list[str]:
    """What the entry point of Spark's image does for `executor`."""
    options = [value for name, value in environment.items() if name.startswith("SPARK_JAVA_OPT_")]
    memory = environment["SPARK_EXECUTOR_MEMORY"]
    return [
        str(jars.java_executable()),
        *options,
        f"-Xms{memory}",
        f"-Xmx{memory}",
        *("-cp", f"{jars.pyspark_jars()}/*", _MAIN),
        *("--driver-url", environment["SPARK_DRIVER_URL"]),
        *("--executor-id", environment["SPARK_EXECUTOR_ID"]),
        *("--cores", environment["SPARK_EXECUTOR_CORES"]),
        *("--app-id", environment["SPARK_APPLICATION_ID"]),
        *("--hostname", environment["SPARK_EXECUTOR_POD_IP"]),
        *("--resourceProfileId", environment["SPARK_RESOURCE_PROFILE_ID"]),
        *("--podName", environment["SPARK_EXECUTOR_POD_NAME"]),
    ]


def let_in(directory: Path, group: int) -> None:
    """What Kubernetes does to a volume for an fsGroup: the group owns all that is on it, and may
    read and write it."""
    for path in _everything(directory):
        status = path.lstat()
        os.chown(path, -1, group, follow_symlinks=False)
        if path.is_symlink():
            continue
        path.chmod((status.st_mode & 0o7777) | (0o2770 if path.is_dir() else 0o660))


def _everything(directory: Path) -> Iterator[Path]:
    yield directory
    yield from directory.rglob("*")


@contextmanager
def kubelet(client: KubernetesClient, home: Path) -> Iterator[Kubelet]:
    home.mkdir()
    with Kubelet(client, home) as running:
        yield running
