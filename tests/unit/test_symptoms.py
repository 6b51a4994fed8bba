"""Spark's own symptoms: what the page says that Spark prints is what this Spark prints."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import uuid
import zipfile
from pathlib import Path

import pyspark
import pytest

from keyrange.cli.error_reference import markdown
from keyrange.embedded import jars
from keyrange.errors import CATALOGUE
from keyrange.errors.symptoms import SYMPTOMS

HOME = Path(pyspark.__file__).parent
PRINTED = [line for symptom in SYMPTOMS for line in symptom.printed]
NAMED = [line for line in PRINTED if line.startswith("[")]


def in_jar(jar: str, member: str) -> bytes:
    [path] = (HOME / "jars").glob(f"{jar}_2.13-*.jar")
    with zipfile.ZipFile(path) as opened:
        return opened.read(member)


def templates() -> dict[str, str]:
    """The messages of Spark's conditions, of the JVM and of pyspark."""
    jvm = json.loads(in_jar("spark-common-utils", "error/error-conditions.json"))
    python = json.loads((HOME / "errors" / "error-conditions.json").read_text())
    return {name: "\n".join(row["message"]) for name, row in (jvm | python).items()}


@pytest.mark.parametrize("line", NAMED, ids=lambda line: line[1:].partition("]")[0])
def test_a_message_with_a_condition_is_sparks(line: str) -> None:
    name, _, said = line[1:].partition("] ")
    # On the page stands its first line.
    template = re.escape(templates()[name].splitlines()[0])
    assert re.fullmatch(re.sub("<[a-zA-Z_]+>", ".+", template), said)


@pytest.mark.parametrize(
    ("line", "member"),
    [
        ("Python worker failed to connect back.", "PythonWorkerFactory"),
        (
            "Python worker exited unexpectedly (crashed)",
            "BasePythonRunner$ReaderIterator$$anonfun$1",
        ),
    ],
)
def test_a_message_without_one_is_in_sparks_classes(line: str, member: str) -> None:
    assert f"org.apache.spark.SparkException: {line}" in PRINTED
    assert line.encode() in in_jar("spark-core", f"org/apache/spark/api/python/{member}.class")


def test_a_path_that_yarn_has_is_too_long_for_a_socket(tmp_path: Path) -> None:
    [symptom] = [each for each in SYMPTOMS if "socket" in each.name]
    container = "usercache/me/appcache/application_1795573428844_0001/container_1795573428844_0001"
    path = tmp_path / container / "tmp" / f".{uuid.uuid4()}.sock"
    with socket.socket(socket.AF_UNIX) as listener, pytest.raises(OSError) as raised:
        listener.bind(str(path))
    assert symptom.printed == (f"OSError: {raised.value}",)
    confs = (Path(__file__).parents[2] / "conf" / "spark-defaults.conf").read_text()
    assert "\nspark.python.unix.domain.socket.dir  /tmp\n" in confs


@pytest.mark.parametrize(
    ("java", "said"),
    [
        ({}, "JAVA_HOME is not set"),
        ({"JAVA_HOME": "/none"}, "/bin/java: No such file or directory"),
    ],
)
def test_what_spark_says_without_java(tmp_path: Path, java: dict[str, str], said: str) -> None:
    assert any(line.endswith(said) for line in PRINTED)
    for name in ("bash", "dirname"):
        (tmp_path / name).symlink_to(str(shutil.which(name)))
    command = [str(shutil.which("bash")), str(HOME / "bin" / "spark-class"), "Main"]
    environment = {"SPARK_HOME": str(HOME), "PATH": str(tmp_path), **java}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert said in ended.stderr
    assert ended.returncode != 0


def test_the_java_that_runs_sparks_launcher() -> None:
    name = "org/apache/spark/launcher/Main"
    version = int.from_bytes(in_jar("spark-launcher", f"{name}.class")[6:8], "big")
    assert version == 44 + jars.JAVA_VERSION_MIN
    assert any(name in line and f"class file version {version}.0" in line for line in PRINTED)


def test_what_an_older_pyspark_lacks_is_what_keyrange_imports() -> None:
    [line] = [each for each in PRINTED if "'pyspark." in each]
    module = line.split("'")[1]
    stream = Path(__file__).parents[2] / "connector" / "keyrange" / "source" / "stream.py"
    assert f"from {module} import" in stream.read_text()


def test_the_jar_of_delta_is_the_one_that_is_tested() -> None:
    [symptom] = [each for each in SYMPTOMS if "Delta" in each.name]
    [module] = jars.delta().modules
    assert f"--packages {module.organisation}:{module.name}:{module.revision}`" in symptom.remedy
    confs = (Path(__file__).parents[2] / "conf" / "spark-defaults.conf").read_text()
    classes = [re.split("[ :]+", line.rstrip("."))[-1] for line in symptom.printed[1:]]
    assert len(classes) == 2
    assert all(each in confs for each in classes)


def test_the_page_begins_with_them() -> None:
    page = markdown()
    first = page.index("\n## Conditions\n")
    for symptom in SYMPTOMS:
        shown = "\n".join(
            ("", f"### {symptom.name}", "", "```text", *symptom.printed, "```", "", symptom.cause)
        )
        assert 0 < page.find(shown) < first
        assert f"\n- What to do: {symptom.remedy}\n" in page[:first]
    assert min(page.index(f"\n### {name}\n") for name in CATALOGUE) > first


def test_symptoms_read_as_sentences() -> None:
    assert len({symptom.name for symptom in SYMPTOMS}) == len(SYMPTOMS)
    for symptom in SYMPTOMS:
        assert symptom.printed
        assert symptom.cause.endswith(".")
        assert symptom.remedy.endswith(".")
