"""Where an executor finds its name: the order of the sources, and what each of them keeps."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from keyrange.errors import InvalidError
from keyrange.members.executor_names import Name, NameSettings, Surroundings, find_name

SETTINGS = NameSettings("orders")


@pytest.fixture
def around(tmp_path: Path) -> Surroundings:
    """A host with a state directory of its own and nothing else in its environment."""
    return Surroundings({"XDG_STATE_HOME": str(tmp_path / "state")}, "h1", lambda: "abcd")


def with_environment(around: Surroundings, **variables: str) -> Surroundings:
    return replace(around, environment={**around.environment, **variables})


def test_the_sources_are_asked_in_this_order(around: Surroundings, tmp_path: Path) -> None:
    (tmp_path / "name").write_text("from-file\n")
    settings = NameSettings("orders", name="from-option", file=str(tmp_path / "name"))
    around = with_environment(
        around,
        METADATA_NAME="orders-consumer-2",
        SPARK_EXECUTOR_POD_NAME="spark-s-spark-0b1c-0-7",
        SPARK_EXECUTOR_ID="3",
    )
    found = [find_name(settings, around)]
    settings = replace(settings, name="")
    found.append(find_name(settings, around))
    around = with_environment(around, METADATA_NAME="")
    found.append(find_name(settings, around))
    around = with_environment(around, SPARK_EXECUTOR_POD_NAME="")
    found.append(find_name(settings, around))
    settings = replace(settings, file="")
    found.append(find_name(settings, around))
    assert [(each.name, each.source.split(":")[0]) for each in found] == [
        ("from-option", "option"),
        ("orders-consumer-2", "env"),
        ("orders-7", "pod"),
        ("from-file", "file"),
        ("orders-h1-0", "host"),
    ]
    assert all(each.is_static for each in found)


def test_a_variable_that_an_option_names_goes_before_the_usual_one(around: Surroundings) -> None:
    around = with_environment(around, METADATA_NAME="a", SLOT=" b ")
    assert find_name(replace(SETTINGS, variable="SLOT"), around) == Name("b", True, "env:SLOT")


@pytest.mark.parametrize("policy", ["auto", "static"])
def test_a_variable_that_an_option_names_has_to_be_there(around: Surroundings, policy: str) -> None:
    settings = replace(SETTINGS, variable="SLOT", policy=policy)
    with pytest.raises(InvalidError, match=r"NO_STATIC_MEMBER_INFO_SET.*SLOT"):
        find_name(settings, around)


def test_of_sparks_pods_only_the_ordinal_survives_the_application(around: Surroundings) -> None:
    for application in ("spark-0b1c", "spark-77aa"):
        pod = f"spark-s-{application}-0-4"
        assert find_name(SETTINGS, with_environment(around, METADATA_NAME=pod)).name == "orders-4"


def test_a_pod_that_never_comes_back_gives_no_name(around: Surroundings) -> None:
    around = with_environment(around, METADATA_NAME="orders-6d4f5b7c9-x2x7b")
    assert find_name(SETTINGS, around).name == "orders-h1-0"
    named = find_name(replace(SETTINGS, variable="METADATA_NAME"), around)
    assert named.name == "orders-6d4f5b7c9-x2x7b"


def test_an_executor_id_is_never_a_name(around: Surroundings) -> None:
    around = Surroundings(
        {"SPARK_EXECUTOR_ID": "3", "SPARK_EXECUTOR_POD_NAME": "orders-exec-3"}, "h1", lambda: "ab"
    )
    assert find_name(SETTINGS, around) == Name("orders-dynamic-ab", False, "dynamic")


def test_static_is_refused_where_nothing_survives(around: Surroundings) -> None:
    around = Surroundings({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "h1", lambda: "ab")
    with pytest.raises(InvalidError, match="NO_STATIC_MEMBER_INFO_SET") as raised:
        find_name(replace(SETTINGS, policy="static"), around)
    for source in ("METADATA_NAME", "SPARK_EXECUTOR_POD_NAME", "member.name.file", "slot.dir"):
        assert source in str(raised.value)


def test_dynamic_asks_no_source(around: Surroundings) -> None:
    settings = replace(SETTINGS, policy="dynamic", name="orders-0")
    assert find_name(settings, around) == Name("orders-dynamic-abcd", False, "dynamic")


def test_a_name_that_kafka_does_not_take_is_refused(around: Surroundings) -> None:
    with pytest.raises(InvalidError, match=r"INVALID_MEMBER_NAME.*source=env:METADATA_NAME"):
        find_name(SETTINGS, with_environment(around, METADATA_NAME="a b"))


def test_a_name_file_is_written_once_and_read_ever_after(
    around: Surroundings, tmp_path: Path
) -> None:
    settings = replace(SETTINGS, file=str(tmp_path / "name"))
    assert find_name(settings, around).name == "orders-abcd"
    later = replace(around, random=lambda: "other")
    assert find_name(settings, later) == Name("orders-abcd", True, f"file:{tmp_path / 'name'}")
    assert [path.name for path in tmp_path.iterdir()] == ["name"]


def test_an_empty_name_file_is_written_anew(around: Surroundings, tmp_path: Path) -> None:
    (tmp_path / "name").touch()
    settings = replace(SETTINGS, file=str(tmp_path / "name"))
    assert find_name(settings, around).name == "orders-abcd"
    assert (tmp_path / "name").read_text() == "orders-abcd\n"


@pytest.mark.parametrize("policy", ["auto", "static"])
def test_a_name_file_that_cannot_be_kept_is_refused(
    around: Surroundings, tmp_path: Path, policy: str
) -> None:
    settings = replace(SETTINGS, file=str(tmp_path / "missing" / "name"), policy=policy)
    with pytest.raises(InvalidError, match=r"NO_STATIC_MEMBER_INFO_SET.*file="):
        find_name(settings, around)


def test_each_holder_on_a_host_has_the_lowest_free_slot(around: Surroundings) -> None:
    held = [find_name(SETTINGS, around) for _ in range(3)]
    other_group = find_name(NameSettings("clicks"), around)
    assert [each.name for each in held] == ["orders-h1-0", "orders-h1-1", "orders-h1-2"]
    assert other_group.name == "clicks-h1-0"
    os.close(held[1].lock)
    again = find_name(SETTINGS, around)
    assert again.name == "orders-h1-1"
    for each in (held[0], held[2], other_group, again):
        os.close(each.lock)


def test_a_slot_is_free_when_its_holder_is_killed(around: Surroundings, tmp_path: Path) -> None:
    code = (
        "from keyrange.members.executor_names import *\n"
        f"env = {dict(around.environment)!r}\n"
        "print(find_name(NameSettings('orders'), Surroundings(env, 'h1')).name, flush=True)\n"
        "input()"
    )
    command = [sys.executable, "-c", code]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    holder = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "orders-h1-0\n"
    second = find_name(SETTINGS, around)
    holder.kill()
    holder.communicate()
    first = find_name(SETTINGS, around)
    assert (second.name, first.name) == ("orders-h1-1", "orders-h1-0")
    for each in (first, second):
        os.close(each.lock)


def test_a_named_slot_directory_keeps_the_hosts_name(around: Surroundings, tmp_path: Path) -> None:
    """A pod on a host's volume has another address each time, and the same disk."""
    settings = replace(SETTINGS, slot_directory=str(tmp_path / "slots"))
    pods = [
        Surroundings({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, host, lambda: "ab")
        for host in ("pod-a", "pod-b")
    ]
    for pod in pods:
        found = find_name(settings, pod)
        assert found.name == "orders-pod-a-0"
        os.close(found.lock)


def test_a_slot_directory_of_others_is_not_used(around: Surroundings, tmp_path: Path) -> None:
    own = tmp_path / "slots" / f"keyrange-{os.getuid()}"
    own.mkdir(parents=True)
    own.chmod(0o777)
    settings = replace(SETTINGS, slot_directory=str(tmp_path / "slots"))
    assert not find_name(settings, around).is_static
    with pytest.raises(InvalidError, match="not a private directory"):
        find_name(replace(settings, policy="static"), around)


def test_a_user_without_a_home_has_no_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container that runs as a user which its files of users do not have."""

    def unknown(uid: int) -> None:
        raise KeyError(uid)

    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr("pwd.getpwuid", unknown)
    with pytest.raises(InvalidError, match="this user has no home, and XDG_STATE_HOME is not set"):
        find_name(replace(SETTINGS, policy="static"), Surroundings({}, "h1", lambda: "abcd"))
