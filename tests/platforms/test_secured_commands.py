"""The commands that ask a cluster, with Kerberos: by key tab and by ticket cache, and told what is
wrong with either; and with a password that is refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from brokers.logins import COUNT, create_numbers
from platforms.every_login import EveryLogin
from platforms.kdc import Kdc, by_cache, by_key_tab
from project.unseen import MARK
from samples.checkpoints import commit_batch, make_checkpoint, plan_batch
from samples.member_samples import append_all, stored, table_at


@pytest.fixture(scope="module")
def topic(every: EveryLogin) -> str:
    return create_numbers(every.topics, "commands")


@pytest.fixture(scope="module")
def commands(
    every: EveryLogin, topic: str, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[str]]:
    """A command line of each kind, and what it says of a cluster that answers."""
    home = tmp_path_factory.mktemp("query")
    checkpoint = make_checkpoint(home / "checkpoint")
    plan_batch(checkpoint, 0, 1_000, {"0": 100})
    commit_batch(checkpoint, 0)
    (checkpoint / "offsets" / "0").write_text(
        (checkpoint / "offsets" / "0").read_text().replace('"t"', f'"{topic}"')
    )
    members = home / "members"
    append_all(table_at(members), [stored(1)])
    return {
        str(COUNT - 100): [
            "watch",
            str(checkpoint),
            "--once",
            "--output",
            "json",
        ],
        '"records"': ["ranges", "plan", "--topic", topic, "--output", "json"],
        '"keyrange.records/': ["records", "--offset", f"{topic}-0:5", "--output", "json"],
        '"keyrange.members': ["members", "list", str(members), "--live", "--output", "json"],
        '"keyrange.volumes': ["volumes", "show", "--output", "json"],
        '"keyrange.doctor': ["doctor", "--topic", topic, "--output", "json"],
    }


def run(
    command: list[str], named: dict[str, str], home: Path, **environment: str
) -> subprocess.CompletedProcess[str]:
    """A command with a login, whose secrets are in a file."""
    (home / "jaas").write_text(named["sasl.jaas.config"])
    login = named | {"sasl.jaas.config": f"@{home}/jaas"}
    servers = login.pop("bootstrap.servers")
    prefix = "kafka.admin." if command[0] == "volumes" else "kafka."
    return subprocess.run(
        [
            *(sys.executable, "-P", "-m", "keyrange.cli.main", *command),
            *("--bootstrap-servers", servers),
            *(part for n, value in login.items() for part in ("--option", f"{prefix}{n}={value}")),
        ],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_commands_with_tickets(
    every: EveryLogin, commands: Mapping[str, list[str]], kdc: Kdc, reader: Path, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    for said, command in commands.items():
        done = run(command, every.with_ticket(by_key_tab(reader, "reader")), tmp_path)
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        assert said in done.stdout, (command, done.stdout)
        assert "[" not in done.stderr, (command, done.stderr)
    for said, command in list(commands.items())[:3]:
        kdc.kinit("reader", reader, cache)
        done = run(command, every.with_ticket(by_cache()), tmp_path, KRB5CCNAME=f"FILE:{cache}")
        assert said in done.stdout, (command, done.stdout, done.stderr)


def test_commands_that_are_refused(
    every: EveryLogin, commands: Mapping[str, list[str]], kdc: Kdc, tmp_path: Path
) -> None:
    """What it is and what mends it, in one paragraph, and exit code 1; `watch` says it in its
    document, beside what it has."""
    old, cache = kdc.add("brief", "2s"), tmp_path / "cache"
    kdc.kinit("brief", old, cache)
    kdc.export("brief")
    time.sleep(2.5)
    outdated = every.with_ticket(by_key_tab(old, "brief"))
    expired = every.with_ticket(by_cache(cache))
    refused = every.with_password("PLAIN", f"{MARK}-wrong")
    for command in commands.values():
        check_refusal(command, outdated, "[NO_KERBEROS_TICKET]", f"the keys in {old}", tmp_path)
    for command in list(commands.values())[:3]:
        check_refusal(command, expired, "[NO_KERBEROS_TICKET]", "Ticket expired", tmp_path)
        check_refusal(command, refused, "[SASL_AUTHENTICATION_FAILED]", "mechanism=PLAIN", tmp_path)


def check_refusal(
    command: list[str], named: dict[str, str], condition: str, cause: str, home: Path
) -> None:
    done = run(command, named, home)
    told = " ".join((done.stdout + done.stderr).split())
    assert condition in told, (command, told)
    assert cause in told, (command, told)
    assert MARK not in told
    assert "Traceback" not in told
    assert done.returncode == 1, (command, told)
    assert "To mend it" in told, (command, told)
    if command[0] == "watch":
        [failure] = json.loads(done.stdout)["failures"]
        assert failure["source"] == "broker"
        return
    if command[0] != "doctor":
        assert done.stdout == ""
        assert len(done.stderr.strip().splitlines()) == 1, (command, done.stderr)
