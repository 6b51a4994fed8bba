"""`keyrange volumes show`, with scripted brokers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from brokers.scripted_admin import GB, HOST, ScriptedBrokers, Told, scripted_brokers
from commands.commanding import run
from commands.documents import read_document
from keyrange.cli.volumes.commands import bar


@pytest.fixture
def brokers() -> Iterator[ScriptedBrokers]:
    with scripted_brokers(2) as started:
        started.told[1] = Told((("/a", 100 * GB, 5 * GB, 0), ("/b", 1024 * GB, 1023 * GB, 0)))
        yield started


def show(brokers: ScriptedBrokers, *arguments: str, code: int = 0) -> Any:
    servers = ",".join(f"{HOST}:{port}" for port in brokers.ports.values())
    usual = ["volumes", "show", "--every", "10ms", "--bootstrap-servers", servers]
    result = run(*usual, *arguments)
    assert result.exit_code == code, (result.output, result.exception)
    return result


def test_each_volume_has_a_line(brokers: ScriptedBrokers) -> None:
    result = show(brokers, "--option", "min.available.ratio=0.1")
    lines = result.stdout.splitlines()
    assert lines[0].startswith("throttle factor 0, since 2")
    assert lines[1].startswith("because broker 1 /a has 5.00 GiB of 100 GiB available; min.")
    assert [" ".join(line.split()) for line in lines[2:]] == [
        "broker log dir used available of free full in",
        "1 /a [###########################|#..] 5.00 GiB 100 GiB 5.0% at the limit",
        "1 /b [#..........................|...] 1023 GiB 1.00 TiB 99.9%",
        "2 /data [###############............|...] 50.0 GiB 100 GiB 50.0%",
    ]
    assert result.stderr == ""


def test_without_a_limit_there_is_no_factor(brokers: ScriptedBrokers) -> None:
    found = read_document(show(brokers, "--output", "json").stdout)
    assert (found["factor"], found["limit"], found["brokers"]) == (None, "", [1, 2])
    assert [each["violated"] for each in found["volumes"]] == [None, None, None]


def test_json_has_everything(brokers: ScriptedBrokers) -> None:
    limit = f"min.available.bytes={5 * GB}"
    found = read_document(show(brokers, "--output", "json", "--option", limit).stdout)
    first = found["volumes"][0]
    assert (found["factor"]["value"], found["factor"]["fallback"]) == (0.0, False)
    assert found["factor"]["since"] <= found["at"]
    assert (first["broker"], first["log_dir"], first["violated"]) == (1, "/a", True)
    assert (first["used_bytes"], first["available_bytes"]) == (95 * GB, 5 * GB)
    assert (first["available_ratio"], first["limit_ratio"]) == (0.05, 0.05)


def test_a_volume_for_which_a_query_is_held_back_still_is_told(brokers: ScriptedBrokers) -> None:
    """A command that looks afresh does not know that it was at the limit."""
    brokers.told[1] = Told((("/a", 100 * GB, 11 * GB, 0),))
    usual = ("--option", "min.available.ratio=0.1")
    lines = show(brokers, *usual).stdout.splitlines()
    assert lines[0].startswith("throttle factor 1, since 2")
    assert lines[1] == (
        "because no volume is at the limit, but broker 1 /a has not recovered: it has 11.0 GiB of "
        "100 GiB available, and 12.0 GiB are needed: who is held back waits; min.available.ratio "
        "is 0.1"
    )
    assert lines[3].endswith("11.0%           not recovered")
    found = read_document(show(brokers, "--output", "json", *usual).stdout)
    assert found["factor"]["recovered"] is False
    assert [each["recovered"] for each in found["volumes"]] == [False, True]


def test_each_volume_has_its_own_limit(brokers: ScriptedBrokers) -> None:
    limits = "min.available.ratio=0.01;2:/d*=0.6"
    found = read_document(show(brokers, "--output", "json", "--option", limits).stdout)
    assert [each["limit_ratio"] for each in found["volumes"]] == [0.01, 0.01, 0.6]
    assert [each["violated"] for each in found["volumes"]] == [False, False, True]
    assert found["factor"]["why"].endswith("min.available.ratio of 2:/d* is 0.6")


def test_what_grows_is_full_some_time(brokers: ScriptedBrokers) -> None:
    """Of 50 GB a check takes one: between two checks, 10 ms at the least lie."""
    left = [50 * GB]

    def describe() -> None:
        left[0] -= GB
        brokers.told[2] = Told((("/data", 100 * GB, left[0], 0),))

    brokers.on_metadata = describe
    found = read_document(show(brokers, "--output", "json").stdout)
    by_place = {(each["broker"], each["log_dir"]): each for each in found["volumes"]}
    assert by_place[1, "/a"]["time_to_full_ms"] is None
    assert by_place[2, "/data"]["time_to_full_ms"] >= 10 * 48


def test_what_was_not_observed_is_said(brokers: ScriptedBrokers) -> None:
    brokers.told[2] = Told((), error_code=31)
    result = show(brokers, "--option", "min.available.ratio=0.1", code=1)
    assert result.stderr == (
        "not observed: broker 2: CLUSTER_AUTHORIZATION_FAILED: "
        "the principal needs DESCRIBE on the cluster\n"
    )
    brokers.told[1] = Told((), error_code=31)
    assert show(brokers, code=1).stdout == "no volume was observed\n"


def test_a_check_that_failed_does_not_count_where_a_later_one_was_whole(
    brokers: ScriptedBrokers,
) -> None:
    brokers.told[2] = Told((), error_code=31)
    looked: list[int] = []

    def describe() -> None:
        looked.append(1)
        if len(looked) > 2:
            brokers.told[2] = Told()

    brokers.on_metadata = describe
    assert show(brokers, "--checks", "4").stderr == ""
    assert len(looked) > 3


def test_what_is_wrong_with_the_options_is_said() -> None:
    result = run("volumes", "show", "--option", "min.available.ratio=2")
    assert result.exit_code == 1
    assert "kafka.admin.bootstrap.servers" in str(result.exception)
    assert "min.available.ratio" in str(result.exception)


@pytest.mark.parametrize(
    ("used", "kept", "expected"),
    [
        (0.0, None, ".........."),
        (0.001, None, "#........."),
        (0.5, None, "#####....."),
        (0.999, None, "#########."),
        (1.0, None, "##########"),
        (0.5, 0.1, "#####....|."),
        (1.0, 0.0, "##########|"),
        (0.0, 1.0, "|.........."),
    ],
)
def test_bars(used: float, kept: float | None, expected: str) -> None:
    assert bar(used, kept, 10) == expected
