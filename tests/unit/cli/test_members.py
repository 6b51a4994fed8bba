"""`keyrange members` on tables as drivers leave them behind, and the owner of a key."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from commands.commanding import document, refusal, run, text
from keyrange.cli.members import commands as members
from keyrange.cli.members.document import events, natural, owner
from keyrange.errors import KeyrangeError
from keyrange.members.model.assignment import Owned
from keyrange.members.table.assignment_admin import open_members, write_command
from keyrange.model.key_ranges import SPACE, KeyRange, hash_of
from keyrange.model.offsets import TopicPartition
from samples.member_samples import (
    NOW_MS,
    PARTITIONS,
    append_all,
    assignment,
    command,
    member,
    owned,
    stored,
    table_at,
)

GOLDEN = Path(__file__).parents[2] / "golden"
LATER_MS = NOW_MS + 95_000
WHY = ("--why", "the rack burnt")
FIRST, SECOND, THIRD = PARTITIONS
# Three slots on three partitions, of which orders-2 is gone, and then two.
AFTER = assignment(
    2,
    {
        FIRST: owned("orders-0"),
        SECOND: owned("orders-1"),
        THIRD: (
            Owned(KeyRange(0, 2**62), "orders-0"),
            Owned(KeyRange(2**62, SPACE.until_hash), "orders-1"),
        ),
    },
)
LOST = member("orders-2", "ABSENT", NOW_MS + 2_000, seen_ms=NOW_MS + 1_900)
HERE = [member("orders-0"), member("orders-1", host="", executor="")]
JOINING = member(
    "dynamic-7f3a", "JOINING", NOW_MS + 5_000, is_static=False, host="10.0.0.9", executor="9"
)
ROWS = [
    stored(1, 0, members=[member(each, "JOINING") for each in ("orders-0", "orders-1")]),
    stored(2, 1, members=[*HERE, member("orders-2")], reason="joined: orders-0, orders-1"),
    stored(3, 1, members=[*HERE, LOST], reason="members changed"),
    stored(4, 2, members=HERE, assignment=AFTER, reason="lost: orders-2"),
    stored(
        5,
        2,
        members=[*HERE, JOINING],
        assignment=AFTER,
        commands_until=1,
        membership={"version": 1, "forced": False, "members": {}, "dueInMs": 300_000},
    ),
]


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    table = table_at(tmp_path / "members")
    append_all(table, ROWS)
    table.append_command(command(at_ms=NOW_MS + 3_500, who="bob", why="late shift"))
    table.append_command(command("remove", "orders-1"))
    monkeypatch.setattr(members, "now", lambda: LATER_MS)
    return tmp_path / "members"


def golden(name: str, found: str, path: Path) -> None:
    """What was printed is what the file holds; KEYRANGE_GOLDEN=write makes it so."""
    lines = [line.rstrip() for line in found.replace(str(path), "TABLE").splitlines()]
    file = GOLDEN / name
    if os.environ.get("KEYRANGE_GOLDEN") == "write":
        file.write_text("\n".join(lines) + "\n")
    assert lines == file.read_text().splitlines()


def test_the_screen_of_list(path: Path) -> None:
    golden("members-list.txt", text("members", "list", path), path)


def test_the_document_of_list(path: Path) -> None:
    found = document("members", "list", path)
    golden("members-list.json", json.dumps(found, indent=1), path)


def test_a_reassignment_that_is_overdue_comes_with_the_next_batch(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(members, "now", lambda: NOW_MS + 5_000 + 300_000 + 65_000)

    assert document("members", "list", path)["next"]["in_ms"] == -65_000
    shown = "since 1 min, with the next batch, or when its heirs are ready: dynamic-7f3a joining"
    assert shown in text("members", "list", path)


def test_a_driver_that_waits_for_nothing_says_so(tmp_path: Path) -> None:
    append_all(table_at(tmp_path / "members"), ROWS[:1])

    assert document("members", "list", tmp_path / "members")["next"] is None
    assert "\n  next" not in text("members", "list", tmp_path / "members")


def test_the_screen_of_history(path: Path) -> None:
    golden("members-history.txt", text("members", "history", path), path)


def test_the_document_of_history(path: Path) -> None:
    found = document("members", "history", path)
    golden("members-history.json", json.dumps(found, indent=1), path)


def test_shares_are_of_the_space_of_all_partitions(path: Path) -> None:
    found = {each["name"]: each for each in document("members", "list", path)["members"]}
    assert {name: each["share"] for name, each in found.items()} == {
        "orders-0": 0.5,
        "orders-1": 0.5,
        "dynamic-7f3a": 0.0,
    }
    assert (found["orders-0"]["ranges"], found["orders-0"]["partitions"]) == (2, 2)


def test_what_others_wrote_cannot_move_the_cursor(path: Path) -> None:
    odd = member("orders-0", host="a\x1b[2Jb")
    table_at(path).append(stored(6, 2, members=[odd], assignment=AFTER, reason="c\x1b[31m\nd"))
    for noun in ("list", "history"):
        shown = text("members", noun, path)
        assert "\x1b" not in shown
        assert r"c\u001b[31m d" in shown


def test_one_partition_or_topic_may_be_chosen(path: Path) -> None:
    found = document("members", "list", path, "--topic", "flights", "--partition", 2)
    [partition] = found["partitions"]
    assert partition["ranges"] == [
        {"range": [0, 2**62 - 1], "slot": "orders-0"},
        {"range": [2**62, 2**63 - 1], "slot": "orders-1"},
    ]
    assert document("members", "list", path, "--topic", "other")["partitions"] == []
    assert "orders-2 " not in text("members", "list", path, "--partitions", 0)
    assert "and 2 partitions" in text("members", "list", path, "--partitions", 1)
    assert run("members", "list", path, "--partition", 1).exit_code == 2


def test_a_slot_that_nobody_has_is_shown(path: Path) -> None:
    table_at(path).append(stored(6, 3, members=HERE))
    rows = {each["name"]: each for each in document("members", "list", path)["members"]}
    assert rows["orders-2"]["state"] == "unknown"
    assert rows["orders-2"]["last_seen"] is None
    assert rows["orders-2"]["share"] == pytest.approx(1 / 3, abs=1e-6)
    assert "orders-2" in text("members", "list", path)


def test_before_the_first_assignment_there_are_members_only(tmp_path: Path) -> None:
    table_at(tmp_path / "t").append(ROWS[0])
    found = document("members", "list", tmp_path / "t")
    assert (found["epoch"], found["partitions"], len(found["members"])) == (0, [], 2)
    assert "none yet" in text("members", "list", tmp_path / "t")


def test_history_may_begin_later(path: Path) -> None:
    found = document("members", "history", path, "--limit", 1)
    # What was asked for before the row that is shown is left out.
    assert [each.get("seq", each.get("number")) for each in found] == [2, 5]
    since = document("members", "history", path, "--since", "2026-05-28T20:26:44Z")
    assert [each["kind"] for each in since] == ["command", "members", "assignment"]
    assert document("members", "history", path, "--since", "1s") == []
    assert text("members", "history", path, "--since", "1s") == "nothing\n"


def test_an_event_says_what_changed() -> None:
    found = events(ROWS, [])
    assert [each["kind"] for each in found] == [
        *("members", "assignment", "members", "assignment", "members")
    ]
    assert [each["moved"] for each in found] == [None, 0.333333, None, None, None]
    assert found[0]["changed"] == [{"name": "dynamic-7f3a", "state": "JOINING", "was": None}]
    assert found[1]["left"] == ["orders-2"]


@pytest.mark.parametrize(
    "given",
    [
        ("rebalance", ()),
        ("scale", (3,)),
        ("remove", ("orders-1",)),
        ("remove", ("dynamic-7f3a",)),
    ],
)
def test_nothing_is_written_without_confirm(path: Path, given: tuple[str, Any]) -> None:
    action, names = given
    before = sorted(path.glob("_delta_log/*"))
    result = run("members", action, path, *names, *WHY)
    assert result.exit_code == 0, result.exception
    assert "nothing was written: --confirm does it" in result.stderr
    assert "1 min ago" in result.stderr
    assert document("members", action, path, *names, *WHY)["written"] is None
    assert sorted(path.glob("_delta_log/*")) == before


def test_a_command_says_who_and_why(path: Path) -> None:
    args = ("members", "remove", path, "orders-1", *WHY, "--who", "ann", "--confirm")
    found = document(*args)
    assert found["written"] == 3
    [row] = found["members"]
    assert (row["name"], row["share"]) == ("orders-1", 0.5)
    [asked] = table_at(path).commands(2)
    assert (asked.action, asked.name, asked.who, asked.why) == (
        *("remove", "orders-1", "ann", "the rack burnt"),
    )
    assert (asked.group, asked.at_ms) == ("orders", LATER_MS)
    result = run("members", "rebalance", path, *WHY, "--confirm")
    assert "written as command 4; the driver takes it before its next batch" in result.stderr
    assert table_at(path).commands(3)[0].who
    assert table_at(path).last() == ROWS[-1]
    waiting = document("members", "list", path)["waiting"]
    assert [each["number"] for each in waiting] == [2, 3, 4]


def test_how_many_there_are_to_be_is_asked_for_and_shown(path: Path) -> None:
    found = document("members", "scale", path, 4, *WHY, "--who", "ann", "--confirm")
    assert found["written"] == 3
    [asked] = table_at(path).commands(2)
    assert (asked.action, asked.name, asked.members) == ("scale", "", 4)
    assert "waiting: scale 4, by ann: the rack burnt" in run("members", "list", path).stdout
    last = table_at(path).last()
    assert last is not None
    membership = {**last.membership, "expected": 4}
    table_at(path).append(replace(last, seq=last.seq + 1, membership=membership))
    assert document("members", "list", path)["expected"] == 4
    assert "4 members, 3 are there" in run("members", "list", path).stdout


def test_text_that_is_no_utf8_does_not_stop_a_command(path: Path) -> None:
    result = run("members", "rebalance", path, "--why", "caf\udce9", "--confirm")
    assert result.exit_code == 0, result.exception
    assert table_at(path).commands(2)[0].why == "caf?"


def test_who_is_not_known_cannot_be_removed(path: Path) -> None:
    for confirm in ((), ("--confirm",)):
        said = refusal("members", "remove", path, "orders-9", *WHY, *confirm)
        assert "holds no member orders-9; its members are: dynamic-7f3a, orders-0, orders-1" in said
    opened = open_members(str(path), {})
    with pytest.raises(KeyrangeError, match="holds no member orders-9"):
        write_command(opened, "remove", "orders-9", "ann", "gone", LATER_MS)
    assert len(table_at(path).commands()) == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ("rebalance", "TABLE"),
        ("remove", "TABLE", *WHY),
        ("scale", "TABLE", "0", *WHY),
        ("scale", "TABLE", *WHY),
        ("list",),
        ("list", "TABLE", "--live"),
        ("history", "TABLE", "--limit", "0"),
        ("history", "TABLE", "--since", "yesterday"),
    ],
    ids=" ".join,
)
def test_a_wrong_command_line_ends_with_2(path: Path, arguments: tuple[str, ...]) -> None:
    given = [str(path) if each == "TABLE" else each for each in arguments]
    result = run("members", *given)
    assert result.exit_code == 2
    assert result.stdout == ""


@pytest.mark.parametrize("noun", ["list", "history", "rebalance"])
def test_where_there_is_no_table_nothing_is_made(tmp_path: Path, noun: str) -> None:
    why = WHY if noun == "rebalance" else ()
    said = refusal("members", noun, tmp_path / "none", *why)
    assert "there is no table of members at" in said
    assert not (tmp_path / "none").exists()


@pytest.mark.ordinary
def test_the_table_is_read_without_spark_and_without_kafka(path: Path) -> None:
    program = f"""
import sys
sys.modules["pyspark"] = sys.modules["kafka"] = None
sys.argv = ["keyrange", "members", "list", {str(path)!r}]
from keyrange.cli.main import main
main()
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "orders-0" in done.stdout


def partition_of(key: str) -> int:
    found = document("ranges", "owner", "--key", key, "--partitions", 3, "--ranges", 1)
    number: int = found["partition"]
    return number


@pytest.mark.ordinary
def test_the_owner_of_a_key_is_named_with_slot_host_and_executor(path: Path) -> None:
    keys = [f"key-{number}" for number in range(40)]
    seen = set()
    for key in keys:
        found = document("ranges", "owner", "--key", key, "--topic", "flights", "--members", path)
        partition, key_hash = partition_of(key), hash_of(key.encode())
        slot = AFTER.owner_of(TopicPartition("flights", partition), key_hash)
        assert (found["partition"], found["hash"]) == (partition, key_hash)
        assert (found["slot"], found["epoch"], found["state"]) == (slot, 2, "ASSIGNED")
        assert found["host"] == ("10.0.0.0" if slot == "orders-0" else None)
        assert found["executor"] == ("0" if slot == "orders-0" else None)
        lo, hi = found["bounds"]
        assert lo <= key_hash <= hi
        seen.add((partition, slot))
    assert len(seen) == 4


def test_the_screen_of_an_owner(path: Path) -> None:
    shown = text("ranges", "owner", "--key", "a", "--topic", "flights", "--members", path)
    golden("ranges-owner-members.txt", shown, path)
    nobody = text("ranges", "owner", "--key", "null", "--topic", "flights", "--members", path)
    assert "that of each record's partition and hash" in nobody


def test_a_topic_that_the_members_do_not_own_is_named(path: Path) -> None:
    given = ("ranges", "owner", "--key", "a", "--members", path)
    said = refusal(*given, "--topic", "other")
    assert "the members own no topic other" in said
    assert "topics are: flights" in said
    assert run(*given, "--partitions", 3, "--ranges", 4).exit_code == 2


def test_of_a_partition_that_nobody_owns_no_slot_is_named() -> None:
    found = owner(ROWS[-1], TopicPartition("flights", 9), 5)
    assert found == {"slot": None, "host": None, "executor": None, "epoch": 2, "state": None}
    assert owner(ROWS[0], FIRST, 5)["slot"] is None
    assert owner(ROWS[-1], None, None)["slot"] is None


def test_names_with_numbers_stand_in_order() -> None:
    names = ["orders-10", "orders-9", "orders", "9", "orders-9-b", "10"]
    assert sorted(names, key=natural) == [
        *("9", "10", "orders", "orders-9", "orders-9-b", "orders-10")
    ]
