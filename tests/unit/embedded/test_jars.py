"""Jar sets are whole or absent, resolved once, and their failures say what to do."""

from __future__ import annotations

import json
import multiprocessing
import stat
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from brokers.old_brokers import OldBroker
from keyrange.embedded import jars
from keyrange.embedded.settings import BrokerSettings
from keyrange.errors import InvalidError, KeyrangeError

# Stands in for `java`: answers -version, and as Ivy counts its runs and writes the jars of the set.
FAKE_JAVA = """#!{python}
import pathlib, sys, time
arguments = sys.argv[1:]
if arguments == ["-version"]:
    print('openjdk version "17.0.1" 2021-10-19', file=sys.stderr)
    sys.exit(0)
here = pathlib.Path(__file__).parent
with (here / "runs").open("a") as runs:
    runs.write(repr(arguments) + "\\n")
if (here / "fail").exists():
    print("\\t:: org.example#absent;1.0: not found")
    sys.exit(1)
pattern = arguments[arguments.index("-retrieve") + 1]
time.sleep(0.3)
for artifact, revision in [("wanted", "1.0"), ("py4j", "0.1")]:
    jar = pathlib.Path(pattern.replace("(-[classifier])", "").replace("[artifact]", artifact)
                       .replace("[revision]", revision).replace("[ext]", "jar"))
    jar.parent.mkdir(parents=True)
    jar.write_bytes(b"jar")
"""
WANTED = jars.JarSet("example", "1.0", (jars.JarModule("org.example", "wanted", "1.0"),))
BESIDE_SPARK = jars.JarSet("beside", "1.0", WANTED.modules, beside_spark=True)


@pytest.fixture
def java_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    binaries = tmp_path / "jdk" / "bin"
    binaries.mkdir(parents=True)
    java = binaries / "java"
    java.write_text(FAKE_JAVA.format(python=sys.executable))
    java.chmod(java.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("JAVA_HOME", str(binaries.parent))
    monkeypatch.setenv("KEYRANGE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("KEYRANGE_IVY_SETTINGS", raising=False)
    return binaries


def runs(java_home: Path) -> list[str]:
    recorded = java_home / "runs"
    return recorded.read_text().splitlines() if recorded.exists() else []


def test_a_set_is_resolved_once_and_reported(java_home: Path) -> None:
    lines: list[str] = []
    first = jars.resolve(WANTED, lines.append)
    assert [jar.name for jar in first] == ["py4j-0.1.jar", "wanted-1.0.jar"]
    assert all(jar.read_bytes() == b"jar" for jar in first)
    assert lines[0] == "resolving example 1.0 with Ivy"
    assert lines[-1].startswith("resolving example 1.0: done in")
    assert jars.resolve(WANTED) == first
    assert len(runs(java_home)) == 1


def test_ivy_keeps_its_own_cache_below_ours(java_home: Path) -> None:
    jars.resolve(WANTED)
    [run] = runs(java_home)
    ivy = jars.cache_dir() / "ivy"
    assert f"'-Divy.default.ivy.user.dir={ivy}'" in run
    assert f"'-cache', '{ivy / 'cache'}'" in run
    assert "-settings" not in run


def test_what_spark_ships_is_left_out(java_home: Path) -> None:
    assert [jar.name for jar in jars.resolve(BESIDE_SPARK)] == ["wanted-1.0.jar"]


def test_a_set_that_lost_a_jar_is_resolved_again(java_home: Path) -> None:
    first = jars.resolve(WANTED)
    first[0].unlink()
    assert jars.resolve(WANTED) == first
    assert first[0].exists()
    assert len(runs(java_home)) == 2


def test_a_set_without_its_marker_does_not_count(java_home: Path) -> None:
    [first, _] = jars.resolve(WANTED)
    (first.parent / "complete.json").unlink()
    jars.resolve(WANTED)
    assert len(runs(java_home)) == 2
    assert json.loads((first.parent / "complete.json").read_text()) == [
        "py4j-0.1.jar",
        "wanted-1.0.jar",
    ]


def test_processes_at_the_same_time_resolve_once(java_home: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        results = pool.map(jars.resolve, [WANTED] * 4)
    assert all(result == results[0] and len(result) == 2 for result in results)
    assert len(runs(java_home)) == 1
    left = sorted(entry.name for entry in (jars.cache_dir() / "jars").iterdir())
    assert left == ["example-1.0", "example-1.0.ivy.log", "lock"]


def test_a_failure_names_the_module_and_the_log_and_leaves_nothing(java_home: Path) -> None:
    (java_home / "fail").touch()
    with pytest.raises(KeyrangeError) as caught:
        jars.resolve(WANTED)
    assert caught.value.condition.name == "JARS_NOT_RESOLVED"
    assert "org.example#absent;1.0: not found" in str(caught.value)
    log = jars.cache_dir() / "jars" / "example-1.0.ivy.log"
    assert str(log) in str(caught.value)
    assert "not found" in log.read_text()
    assert not (jars.cache_dir() / "jars" / "example-1.0").exists()
    (java_home / "fail").unlink()
    assert len(jars.resolve(WANTED)) == 2


def test_the_ivy_settings_of_the_user_are_handed_on(
    java_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tmp_path / "ivysettings.xml"
    monkeypatch.setenv("KEYRANGE_IVY_SETTINGS", str(settings))
    with pytest.raises(InvalidError, match=r"KEYRANGE_IVY_SETTINGS: .* is not a file"):
        jars.resolve(WANTED)
    settings.write_text("<ivysettings/>")
    jars.resolve(WANTED)
    assert f"'-settings', '{settings}'" in runs(java_home)[0]


def test_the_cache_directory_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEYRANGE_CACHE", "/own")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert jars.cache_dir() == Path("/own")
    monkeypatch.delenv("KEYRANGE_CACHE")
    assert jars.cache_dir() == Path("/xdg/keyrange")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert jars.cache_dir() == Path.home() / ".cache" / "keyrange"


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_292"', 8),
        ('openjdk version "21" 2023-09-19', 21),
        ("no such thing", 0),
    ],
)
def test_java_versions_are_read(text: str, version: int) -> None:
    assert jars.parse_java_version(text) == version


def test_no_java_and_an_old_java_are_refused(
    java_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert jars.java_executable() == java_home / "java"
    old = FAKE_JAVA.replace("17.0.1", "11.0.2").format(python=sys.executable)
    (java_home / "java").write_text(old)
    with pytest.raises(InvalidError, match="version 11, too old") as caught:
        jars.java_executable()
    assert caught.value.condition.name == "JAVA_NOT_FOUND"
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    with pytest.raises(InvalidError, match="java does not run"):
        jars.java_executable()
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InvalidError, match="PATH holds no java"):
        jars.java_executable()


def test_old_kafka_is_asked_for_in_scala_2_12_with_a_newer_zookeeper() -> None:
    old = OldBroker()
    names = {module.name: module.revision for module in old.jar_set().modules}
    old.close()
    assert names == {"kafka_2.12": "2.3.1", "slf4j-simple": "1.7.36", "zookeeper": "3.5.10"}
    assert [module.name for module in jars.kafka().modules] == ["kafka_2.13", "slf4j-simple"]


@pytest.mark.parametrize(
    ("version", "said"), [("4.3", "three numbers"), ("3.2.3", "older than 3.3")]
)
def test_versions_that_cannot_be_started_are_refused(version: str, said: str) -> None:
    with pytest.raises(InvalidError, match=said):
        BrokerSettings(version=version)


def test_an_exclusion_does_not_hit_the_module_asked_for_by_name() -> None:
    request = ElementTree.fromstring(jars.ivy_request(jars.spark_kafka()))
    [connector, provider] = request.iter("dependency")
    excluded = [each.get("module") for each in connector.iter("exclude")]
    assert excluded == [provider.get("name")] == ["spark-token-provider-kafka-0-10_2.13"]
    assert provider.get("rev") == "4.0.0"
    assert list(provider) == []


def test_shipped_artifacts_are_matched_by_whole_name() -> None:
    spark = ["commons-pool-1.5.4.jar", "jackson-core-2.21.2.jar", "scala-xml_2.13-2.4.0.jar"]
    assert jars.is_shipped("jackson-core", spark)
    assert jars.is_shipped("scala-xml_2.13", spark)
    assert not jars.is_shipped("commons-pool2", spark)
    assert not jars.is_shipped("jackson", spark)
