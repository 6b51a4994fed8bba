"""`keyrange doctor`: every failure is one paragraph of its table, whatever it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from commands import commanding
from commands.documents import read_document
from keyrange.cli import doctor
from keyrange.errors import CATALOGUE, error


def run(*arguments: object) -> tuple[int, dict[str, dict[str, str]]]:
    result = commanding.run("doctor", "--output", "json", *arguments)
    assert isinstance(result.exception, SystemExit | None), result.exception
    return result.exit_code, {each["check"]: each for each in read_document(result.stdout)}


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> type[Any]:
    """A cluster that fails with what a test sets, and keeps the settings that it was given."""

    class Cluster:
        failure: Exception = RuntimeError()
        settings: Any = None

        def __init__(self, settings: Any) -> None:
            Cluster.settings = settings

        def describe(self, topics: list[str]) -> Any:
            raise Cluster.failure

        def close(self) -> None:
            pass

    monkeypatch.setattr("keyrange.kafka.cluster.Cluster", Cluster)
    return Cluster


def test_any_failure_of_a_cluster_is_a_finding(cluster: type[Any]) -> None:
    cluster.failure = RuntimeError("one\n  two" + "x" * 1_000)
    code, findings = run("--bootstrap-servers", "h:1")
    assert code == 1
    assert findings["cluster"]["state"] == "failed"
    assert findings["cluster"]["detail"].startswith("RuntimeError: one two")
    assert len(findings["cluster"]["detail"]) == 500
    assert findings["Python"]["state"] == "ok"


def test_an_error_of_the_catalogue_is_shown_whole(cluster: type[Any]) -> None:
    cluster.failure = error("BROKER_UNREACHABLE", "nobody answers")
    _, findings = run("--bootstrap-servers", "h:1")
    assert findings["cluster"]["detail"] == str(cluster.failure)


def test_wrong_options_are_a_finding_beside_the_others() -> None:
    code, findings = run("--bootstrap-servers", "h:1", "--option", "kafka.nope=1")
    assert code == 1
    assert "[INVALID_OPTIONS] option 'kafka.nope'" in findings["cluster"]["detail"]


def test_a_broken_installation_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*ignored: object) -> str:
        raise ImportError("libfoo.so.1 is missing")

    monkeypatch.setattr(doctor, "_kernels", broken)
    monkeypatch.setattr("keyrange.embedded.jars.cache_dir", broken)
    monkeypatch.setattr("keyrange.embedded.jars.java_executable", broken)
    monkeypatch.setattr("pkgutil.iter_modules", broken)
    code, findings = run()
    failed = {name for name, each in findings.items() if each["state"] == "failed"}
    assert code == 1
    assert failed == {"kernels", "jars", "Java", 'format("keyrange")'}
    assert findings["kernels"]["detail"] == "ImportError: libfoo.so.1 is missing"


def test_values_come_from_files(cluster: type[Any], tmp_path: Path) -> None:
    (tmp_path / "id").write_text("from-a-file\n")
    run("--bootstrap-servers", "h:1", "--option", f"kafka.client.id=@{tmp_path / 'id'}")
    assert cluster.settings.client_id == "from-a-file"


def test_a_file_that_is_not_there_is_refused_before_anything_is_looked_at(tmp_path: Path) -> None:
    said = commanding.refusal("doctor", "--option", f"a=@{tmp_path / 'none'}")
    assert "[INVALID_OPTIONS] --option a: the value begins with @ and so names a file" in said


def test_an_option_that_the_source_does_not_have_is_a_finding_without_a_cluster_too() -> None:
    code, findings = run("--option", "kafka.nope=1")
    assert code == 1
    assert "[INVALID_OPTIONS] option 'kafka.nope'" in findings["options"]["detail"]


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        ('openjdk version "11.0.2" 2019-01-15', "java is version 11, too old"),
        (None, "JAVA_HOME is not set and PATH holds no java"),
    ],
)
def test_a_java_that_is_old_and_none_at_all_are_named_with_what_mends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str | None, cause: str
) -> None:
    """By doctor, and by who would start a broker with it."""
    if said is not None:
        java = tmp_path / "java"
        java.write_text(f"#!/bin/sh\necho '{said}' >&2\n")
        java.chmod(0o755)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path}")
    # Of a broker that runs already nothing would be started.
    monkeypatch.setenv("KEYRANGE_CACHE", str(tmp_path / "cache"))
    code, found = run()
    detail = found["Java"]["detail"]
    assert (code, found["Java"]["state"]) == (1, "failed")
    assert detail.startswith(f"[JAVA_NOT_FOUND] {cause}")
    assert detail.endswith(f"To mend it: {CATALOGUE['JAVA_NOT_FOUND'].remedy}.")
    assert commanding.refusal("broker", "start") == detail


@pytest.mark.parametrize(("spark", "says"), [(None, ""), ("4.2.1", ""), ("4.3.0", "for Spark 4.2")])
def test_jars_of_delta_are_held_against_the_spark_that_is_there(
    monkeypatch: pytest.MonkeyPatch, spark: str | None, says: str
) -> None:
    """The command line alone has none."""

    def version(package: str) -> str:
        if spark is None:
            raise doctor.PackageNotFoundError(package)
        return spark

    monkeypatch.setattr(doctor, "version", version)
    found = {each["check"].partition(" ")[2][:5]: each for each in doctor._jars()}
    assert doctor.FAILED not in {each["state"] for each in found.values()}
    assert says in found["delta"]["detail"]
    assert "for Spark" not in found["kafka"]["detail"]
    assert says or "for Spark" not in found["delta"]["detail"]
