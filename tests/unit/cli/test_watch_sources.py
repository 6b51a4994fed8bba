"""The sources of `keyrange watch`: one that hangs or fails holds up no other."""

from __future__ import annotations

import json
import math
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from brokers.scripted_admin import HOST, scripted_brokers
from commands import commanding
from commands.documents import read_document
from keyrange.cli.volumes.commands import VolumeLooks
from keyrange.cli.watch.observers import (
    CommitsSource,
    Ends,
    EndsSource,
    Source,
    Where,
    checkpoint_source,
    read_members,
    read_told,
)
from keyrange.errors import CATALOGUE, KeyrangeError, error
from keyrange.individual_commits.model.batch_results import Failure
from keyrange.individual_commits.model.state_columns import columns_of
from keyrange.individual_commits.pending_errors import PendingErrors
from keyrange.members.coordinator_client import GroupView
from keyrange.model.offsets import TopicPartition
from keyrange.observing.progress_file import ProgressFile
from keyrange.storage.directory import Directory
from keyrange.work.model.outcome import Cause
from queries.scripted import ScriptedCluster
from samples.checkpoints import commit_batch, make_checkpoint, plan_batch
from samples.commit_samples import GROUP, SOURCE, Query, put_in_place
from samples.member_samples import append_all, assignment, owned, stored, table_at
from samples.progresses import progress, source

REMEDY = CATALOGUE["BROKER_UNREACHABLE"].remedy
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def test_a_source_that_hangs_is_asked_once_and_says_for_how_long() -> None:
    calls: list[int] = []
    go_on = threading.Event()

    def ask() -> str:
        calls.append(1)
        assert go_on.wait(120)
        return "here"

    hanging = Source("broker", ask)
    before = set(threading.enumerate())
    hanging.ask()
    [asking] = set(threading.enumerate()) - before
    hanging.wait(time.monotonic() + 0.05)
    hanging.ask()
    assert hanging.answer.value is None
    assert hanging.answer.waiting_ms >= 50
    go_on.set()
    hanging.wait(time.monotonic() + 60)
    assert (hanging.answer.value, hanging.answer.waiting_ms, calls) == ("here", 0, [1])
    asking.join(10)
    assert not asking.is_alive()


def test_what_was_known_stays_while_asking_fails() -> None:
    outcomes = iter(
        ["first", error("BROKER_UNREACHABLE", "no\x1b[2J one"), OSError("a disk"), "last"]
    )

    def ask() -> str:
        outcome = next(outcomes)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    asked = Source("broker", ask)
    found = []
    for _ in range(4):
        asked.ask()
        asked.wait(time.monotonic() + 60)
        found.append((asked.answer.value, asked.answer.failure))
    assert found == [
        ("first", ""),
        ("first", rf"[BROKER_UNREACHABLE] no\u001b[2J one. To mend it: {REMEDY}."),
        ("first", "OSError: a disk"),
        ("last", ""),
    ]


def test_a_checkpoint_is_read_again_and_a_planned_batch_only_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = make_checkpoint(tmp_path / "cp")
    for batch in range(3):
        plan_batch(home, batch, 1_000 * batch, {"0": batch})
        commit_batch(home, batch)
    reads: list[str] = []
    usual = Directory.read

    def read(self: Directory, path: str) -> bytes:
        reads.append(path)
        return usual(self, path)

    monkeypatch.setattr(Directory, "read", read)
    looked = checkpoint_source(str(home), {})
    assert looked().committed == 2
    reads.clear()
    plan_batch(home, 3, 4_000, {"0": 3})
    found = looked()
    assert [batch.batch_id for batch in found.planned] == [0, 1, 2, 3]
    assert [path for path in reads if path.startswith("offsets/")] == ["offsets/3"]
    (home / "metadata").unlink()
    with pytest.raises(KeyrangeError, match="INVALID_CHECKPOINT_PATH"):
        looked()


def ends(
    monkeypatch: pytest.MonkeyPatch, cluster: ScriptedCluster, wanted: dict[TopicPartition, str]
) -> Ends:
    monkeypatch.setattr("keyrange.kafka.cluster.Cluster", lambda settings: cluster)
    return EndsSource({"kafka.bootstrap.servers": "h:1"}, lambda: wanted)()


def test_ends_are_those_of_the_same_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = ScriptedCluster(7, partitions=1)
    topic_id = cluster.describe(["t"]).topic_id("t")
    assert topic_id
    assert ends(monkeypatch, cluster, {T0: topic_id, T1: topic_id}) == Ends({T0: 7}, (T1,))
    assert ends(monkeypatch, cluster, {T0: ""}) == Ends({T0: 7})
    assert ends(monkeypatch, cluster, {T0: "another"}) == Ends({}, (T0,))


def test_partitions_that_a_topic_was_given_since_have_ends_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = ScriptedCluster(7, partitions=2)
    assert ends(monkeypatch, cluster, {T0: ""}) == Ends({T0: 7, T1: 7})
    named = {"kafka.bootstrap.servers": "h:1", "assign": '{"t": [0]}'}
    assert EndsSource(named, lambda: {T0: ""})() == Ends({T0: 7})


# What the guide names beside --bootstrap-servers, and what else a query may have.
OF_A_QUERY = {
    "kafka.bootstrap.servers": "h:1",
    "kafka.admin.bootstrap.servers": "h:1",
    "min.available.ratio": "0.1",
    "commitTable": "/lake/commits",
    "memberTable": "/lake/members",
    "subscribePattern": "t.*",
    "splitBy": "keyRange",
}


def test_a_broker_is_asked_with_all_options_of_a_query(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = ScriptedCluster(7, partitions=1)
    monkeypatch.setattr("keyrange.kafka.cluster.Cluster", lambda settings: cluster)
    assert EndsSource(OF_A_QUERY, lambda: {T0: ""})() == Ends({T0: 7})


def test_members_are_asked_for_with_all_options_of_a_query(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    append_all(table_at(tmp_path / "members"), [stored(1, assignment=assignment(1, {}))])
    asked: list[object] = []

    def describe(cluster: object, group: str) -> GroupView:
        del cluster
        asked.append(group)
        return GroupView("Stable", ())

    monkeypatch.setattr("keyrange.kafka.cluster.Cluster", lambda settings: ScriptedCluster(7))
    monkeypatch.setattr("keyrange.members.coordinator_client.describe_members", describe)
    found = read_members(Where("/cp", OF_A_QUERY, members=str(tmp_path / "members")))
    assert (found["live"]["state"], len(asked)) == ("Stable", 1)


def test_a_cluster_that_failed_is_connected_to_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[ScriptedCluster] = []

    class Failing(ScriptedCluster):
        def describe(self, *_: object, **__: object) -> object:  # type: ignore[override]
            raise error("BROKER_UNREACHABLE", "no")

    def make(settings: object) -> ScriptedCluster:
        made.append(ScriptedCluster(7, partitions=1) if made else Failing(7))
        return made[-1]

    monkeypatch.setattr("keyrange.kafka.cluster.Cluster", make)
    asked = EndsSource({"kafka.bootstrap.servers": "h:1"}, lambda: {T0: ""})
    with pytest.raises(KeyrangeError, match="BROKER_UNREACHABLE"):
        asked()
    assert asked() == asked() == Ends({T0: 7})
    assert len(made) == 2


def test_the_progress_of_one_query_is_read(tmp_path: Path) -> None:
    file = ProgressFile(tmp_path / "p")
    ours = source({"0": 1}, {"0": 3})
    file.append(progress(1, ours, query_id="q", timestamp="2026-05-01T12:00:00.250Z"))
    file.append(progress(2, ours, query_id="another"))
    file.append(progress(2, ours | {"endOffset": 1, "latestOffset": 1}, query_id="q"))
    [one] = read_told(str(tmp_path / "p"), "q")
    assert (one.progress.batch_id, one.done_ms) == (1, 1_777_636_800_250 + 1_500)


@pytest.mark.parametrize(
    "odd",
    [
        {"batchId": "</script>"},
        {"batchId": -1},
        {"batchDuration": math.inf},
        {"batchDuration": -1},
        {"numInputRows": 10**400},
        {"timestamp": "2026-13-99T00:00:00Z"},
        {"sources": 7},
        {"sources": ["x"]},
    ],
)
def test_a_line_that_is_no_progress_takes_no_other_away(
    tmp_path: Path, odd: dict[str, Any]
) -> None:
    path = tmp_path / "p"
    good = progress(1, source({"0": 1}, {"0": 3}), query_id="q")
    lines = [json.dumps(good | odd), json.dumps(good)]
    path.write_text("".join(f"{line}\n" for line in lines))
    assert [each.progress.batch_id for each in read_told(str(path), "q")] == [1]
    path.write_text(f"{lines[0]}\n")
    with pytest.raises((ValueError, TypeError, AttributeError)):
        read_told(str(path), "q")


@pytest.mark.parametrize("value", [math.nan, math.inf, 10**400, "1", None])
def test_a_figure_that_is_none_is_not_told(tmp_path: Path, value: object) -> None:
    path = tmp_path / "p"
    parts = {"volumes": {"throttleFactor": value}, "plan": {"bytes": value}}
    path.write_text(json.dumps(progress(1, source({"0": 1}, {"0": 3}, **parts), query_id="q")))
    [one] = read_told(str(path), "q")
    assert (one.progress.factor, one.progress.sum_of("plan", "bytes")) == (None, None)


def test_a_commit_table_is_looked_at_as_by_commits_show(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = Query(1, 2, fails=0.0)
    query.batch(10, tail=7)
    put_in_place(monkeypatch, query, ((GROUP, SOURCE),))
    looked = CommitsSource(Where("/cp", commits="/lake/commits", group=GROUP))
    first = looked()["seq"]
    assert [row["log_end"] for row in looked()["partitions"]] == [None]
    query.batch(3)
    assert looked()["seq"] == first + 1


def test_the_commit_table_of_another_query_is_said_to_be_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = make_checkpoint(tmp_path)
    plan_batch(home, 0, 0, {"0": 1}, {})
    commit_batch(home, 0)
    line = ("watch", home, "--once", "--commits", "/lake/commits")
    put_in_place(monkeypatch, Query(1, 2, fails=0.0).run(1, 10), ((GROUP, SOURCE),))
    assert commanding.document(*line)["commits"]["seq"] == 2
    put_in_place(monkeypatch, Query(1, 2, fails=0.0).run(1, 10), ((GROUP, "another"),))
    found = commanding.run(*line, "--output", "json")
    assert found.exit_code == 1
    [failure] = read_document(found.stdout)["failures"]
    assert "/lake/commits holds no such source" in failure["text"]


def test_pending_records_are_counted_by_errors_that_are_beside_the_verdicts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = Query(1, 2, fails=1.0)
    query.batch(10, tail=7)
    put_in_place(monkeypatch, query, ((GROUP, SOURCE),))
    failed = [
        Failure(partition, record.offset, Cause.REJECTED, "KeyError: 's3cret'")
        for partition, state in query.states.items()
        for record in state.pending
    ]
    named = {"verdictDirectory": str(tmp_path)}
    looked = CommitsSource(Where("/cp", named, commits="/lake/commits", group=GROUP))
    assert {row["error"] for row in looked()["pending_by_error"]} == {None}
    PendingErrors(str(tmp_path), SOURCE).update(columns_of(query.states), failed)
    assert "KeyError" in {row["error"] for row in looked()["pending_by_error"]}
    assert "s3cret" not in json.dumps(looked())


def test_members_are_looked_at_as_by_members_list(tmp_path: Path) -> None:
    table = table_at(tmp_path / "members")
    owners = {TopicPartition("orders", 0): owned("orders-0")}
    append_all(table, [stored(1, assignment=assignment(1, owners))])
    found = read_members(Where("/cp", members=str(tmp_path / "members")))
    assert (found["epoch"], found["live"]) == (1, None)
    assert "orders-0" in [each["slot"] for each in found["members"]]


def test_volumes_are_looked_at_as_by_volumes_show() -> None:
    with scripted_brokers(2) as brokers:
        servers = ",".join(f"{HOST}:{port}" for port in brokers.ports.values())
        # The other options are the query's, and not the guard's.
        named = {
            "kafka.admin.bootstrap.servers": servers,
            "min.available.ratio": "0.1",
            "commitTable": "/lake/commits",
        }
        looked = VolumeLooks(named)
        assert looked()["factor"]["value"] == 1.0
        assert [each["broker"] for each in looked()["volumes"]] == [1, 2]


def test_options_have_no_case() -> None:
    where = Where("/cp", {"Kafka.Bootstrap.Servers": "h:1"})
    assert where.has("kafka.bootstrap.servers")
    assert not where.has("kafka.admin.bootstrap.servers")
