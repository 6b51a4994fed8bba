"""`keyrange members list --live` at a real coordinator."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from commands.commanding import document, run
from commands.documents import read_document
from keyrange.embedded.broker import EmbeddedBroker
from queries.executors import Start, named, setup_at
from samples.checkpoints import make_checkpoint, plan_batch
from samples.member_samples import NOW_MS, append_all, member, stored, table_at


def test_who_the_coordinator_knows_is_told_from_who_is_gone(
    broker: EmbeddedBroker, executor: Start, tmp_path: Path
) -> None:
    setup = setup_at(broker, "orders-0", executor="7", cores=3.0)
    unknown = named(replace(setup, executor="8"), "orders-9")
    for each in (setup, unknown):
        one = executor()
        one.start(each)
        one.until(each, "STABLE")
    row = stored(
        1, members=[member("orders-0"), member("orders-1")], member_group=setup.member_group
    )
    append_all(table_at(tmp_path / "members"), [row])
    make_checkpoint(tmp_path / "cp")
    plan_batch(tmp_path / "cp", 0, NOW_MS, {"0": 1})
    servers = ("--bootstrap-servers", broker.bootstrap_servers)
    found = document("members", "list", tmp_path / "members", "--live", *servers)
    rows = {each["name"]: each for each in found["members"]}
    assert found["live"]["members"] == 2
    assert {name: each["live"] for name, each in rows.items()} == {
        "orders-0": True,
        "orders-1": False,
        "orders-2": False,
        "orders-9": True,
    }
    assert (rows["orders-0"]["executor"], rows["orders-9"]["executor"]) == ("7", "8")
    assert (rows["orders-9"]["cores"], rows["orders-9"]["state"]) == (3.0, "unknown")
    assert rows["orders-0"]["host"] != "10.0.0.0"

    watched = ("watch", tmp_path / "cp", "--once", "--members", tmp_path / "members")
    shown = read_document(run(*watched, "--output", "json", *servers).stdout)
    assert shown["members"]["there"] == 2
    assert [each["name"] for each in shown["members"]["away"]] == ["orders-1", "orders-2"]
