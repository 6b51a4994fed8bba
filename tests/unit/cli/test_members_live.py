"""`keyrange members list --live`: what the broker says beside what the driver wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from commands.commanding import text
from commands.documents import read_document
from keyrange.cli.members import document as members_opening
from keyrange.cli.members.document import live_member
from keyrange.kafka.cluster import Cluster
from keyrange.members import coordinator_client
from keyrange.members.coordinator_client import GroupView
from keyrange.members.model.group_messages import Peer
from keyrange.members.model.join_metadata import MemberMetadata
from samples.member_samples import member, stored, table_at

SERVERS = ("--bootstrap-servers", "h:1")


def view(name: str | None, metadata: MemberMetadata | bytes, member_id: str = "id") -> Any:
    said = metadata if isinstance(metadata, bytes) else metadata.to_bytes()
    return Peer(member_id, name, said, "10.9.9.9")


def asked(monkeypatch: pytest.MonkeyPatch, *views: Any) -> list[str]:
    """Lets a coordinator answer with these; the groups that it is asked for."""
    groups: list[str] = []

    def describe(cluster: Cluster, group: str) -> GroupView:
        groups.append(group)
        return GroupView("Stable", views)

    monkeypatch.setattr(coordinator_client, "describe_members", describe)
    return groups


def run(path: Path, *arguments: str) -> str:
    return text("members", "list", path, "--live", *SERVERS, *arguments)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    members = [member("orders-0"), member("orders-1"), member("orders-2", "ABSENT")]
    table_at(tmp_path / "members").append(stored(1, members=members))
    return tmp_path / "members"


def test_who_is_there_is_seen_now_and_where_it_is_now(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = asked(
        monkeypatch,
        view("orders-0", MemberMetadata("orders-0", "10.0.0.7", "17", 4.0)),
        view("orders-2", MemberMetadata("orders-2")),
        view(None, MemberMetadata("app-7-3", "10.0.0.8", "18")),
    )
    # Also with what the query has and no batch read takes.
    own = ("--option", "slot.directory=/s", "--option", "subscribePattern=o.*")
    found = read_document(run(path, *own, "--output", "json"))
    assert groups == ["orders.members"]
    assert found["live"] == {"state": "Stable", "members": 3}
    rows = {each["slot"]: each for each in found["members"]}
    assert list(rows) == ["app-7-3", "orders-0", "orders-1", "orders-2"]
    assert [each["live"] for each in rows.values()] == [True, True, False, True]
    assert (rows["orders-0"]["host"], rows["orders-0"]["executor"]) == ("10.0.0.7", "17")
    # What it does not say of itself is as the driver wrote it, or as the coordinator sees it.
    assert (rows["orders-2"]["host"], rows["orders-2"]["executor"]) == ("10.9.9.9", "2")
    assert (rows["orders-1"]["host"], rows["orders-1"]["last_seen_ms_ago"] > 0) == ("10.0.0.1", 1)
    assert [rows[each]["last_seen_ms_ago"] for each in ("orders-0", "orders-2")] == [0, 0]
    stranger = rows["app-7-3"]
    assert (stranger["name"], stranger["static"], stranger["state"]) == ("id", False, "unknown")
    assert stranger["share"] == 0


def test_the_screen_says_who_is_not_there(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked(monkeypatch, view("orders-0", MemberMetadata("orders-0")))
    shown = run(path)
    assert "broker" in shown
    assert "Stable, 1 members" in shown
    lines = {line.split()[0]: line for line in shown.splitlines() if line.startswith("orders-")}
    assert "now" in lines["orders-0"]
    assert "assigned, not at the broker" in lines["orders-1"]
    assert "absent, not at the broker" in lines["orders-2"]


def test_what_is_none_of_keyranges_has_its_ids_only() -> None:
    for metadata in (b"", b"\x00\x03other", b"[]", b'{"v":1}'):
        found = live_member(view(None, metadata, "consumer-1-abc"))
        assert (found.name, found.is_static) == ("consumer-1-abc", False)
        assert found.told == MemberMetadata("consumer-1-abc", host="10.9.9.9")


def test_the_group_is_named_after_the_query_where_the_row_names_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    groups = asked(monkeypatch)
    found = members_opening.ask({"kafka.bootstrap.servers": "h:1"}, stored(1, member_group=""))
    assert found == GroupView("Stable", ())
    assert groups == ["orders.members"]
