"""`keyrange ranges owner --commits`: where hosts have copies of a key's state."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import Result

from commands.commanding import refusal, run, succeed
from commands.documents import read_document
from keyrange.cli.ranges.document import served_at
from keyrange.individual_commits.table import commit_admin
from keyrange.jobs.job_task import partitions_of, state_settings
from keyrange.kafka.messages.produce import partition_of
from keyrange.keyed_state.cache import StateCache
from keyrange.keyed_state.model.state_runs import StateRun
from keyrange.members.read_tasks import ReadTask
from keyrange.model.key_ranges import SPACE, KeyRange, hash_of
from keyrange.model.offset_splits import Split
from keyrange.model.offsets import TopicPartition
from keyrange.options import SourceOptions, parse_options
from keyrange.ranges.sharing.shared_directory import make_private, private_name
from keyrange.work.model.work_order import StateOrder, WorkOrder, WorkSettings
from samples.commit_samples import SOURCE, TOPIC_ID, Query, put_in_place
from samples.member_samples import (
    PARTITIONS,
    append_all,
    assignment,
    member,
    owned,
    stored,
    table_at,
)

AT = TopicPartition("flights", 1)
KEPT = KeyRange(2**62, SPACE.until_hash)


def key_of(is_kept: bool) -> str:
    """A key of the partition whose keys of the upper half of the hash space have state."""
    return next(
        key
        for key in (f"key-{number}" for number in range(1_000))
        if partition_of(key.encode(), len(PARTITIONS)) == AT.partition
        and (hash_of(key.encode()) >= KEPT.from_hash) == is_kept
    )


@pytest.fixture
def members(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A query's members; its commits have state of some keys."""
    run = StateRun(f"{SOURCE}/a.parquet", (0, 1), KEPT, 1, 2, 10, 100, 0)
    query = Query().run(1, 10)
    query.table.store[-1] = replace(query.table.store[-1], runs={AT: (run,)})
    put_in_place(monkeypatch, query)
    owners = {each: owned("orders-0") for each in PARTITIONS}
    row = stored(1, 1, members=[member("orders-0")], assignment=assignment(1, owners))
    append_all(table_at(tmp_path / "members"), [row])
    return tmp_path / "members"


def asked(members: Path, key: str, *more: object) -> Result:
    words = ["ranges", "owner", "--key", key, "--topic", "flights", "--members", members, *more]
    return succeed(*words)


def found(members: Path, key: str, *more: object) -> Any:
    return read_document(asked(members, key, *more, "--output", "json").stdout)


def options_and_order(**more: str) -> tuple[SourceOptions, WorkOrder]:
    given = {
        "kafka.bootstrap.servers": "h:1",
        "subscribe": "flights",
        "splitBy": "keyRange",
        "commitMode": "individual",
        "commitTable": "/lake/commits",
    }
    options = parse_options(given | more, "stream")
    return options, WorkOrder("plan", SOURCE, WorkSettings(), {}, StateOrder(2, 0, {}))


def place_of_a_task(slots: Path) -> Path:
    """Where a task that reads the partition keeps its copies."""
    options, order = options_and_order(**{"slot.directory": str(slots)})
    task = ReadTask([Split(AT, 0, 10, bytes_estimate=1)], (), (), {"flights": TOPIC_ID}, work=order)
    cache, state = state_settings(options, order).cache, order.state
    assert cache is not None
    assert state is not None
    return cache / partitions_of(options, task, state)[AT].place


def test_the_address_of_who_serves_a_key(members: Path) -> None:
    where = ("--serve-port", "8700")
    owned, other = key_of(is_kept=True), "a/b \u00e9"
    address = f"http://10.0.0.0:8700/keys/{owned}"
    assert found(members, owned, *where)["served_at"] == address
    assert f"its state is served at   {address}" in asked(members, owned, *where).stdout
    assert found(members, other, *where)["served_at"] in (
        "http://10.0.0.0:8700/keys/a%2Fb%20%C3%A9",
        None,
    )
    assert "served_at" not in found(members, owned)
    # As a terminal gives bytes that are no UTF-8.
    assert served_at("\udcff", "h", 1) == "http://h:1/keys/%FF"
    words = ("ranges", "owner", "--key", owned, "--topic", "flights")
    assert "needs --members" in run(*words, *where).output


def test_the_directory_of_a_keys_copies_is_that_of_the_task_that_reads_it(
    members: Path, tmp_path: Path
) -> None:
    slots = tmp_path / "slots"
    where = ("--commits", "/lake/commits", "--option", f"Slot.Directory={slots}")
    wanted = str(place_of_a_task(slots))
    document = found(members, key_of(is_kept=True), *where)
    assert (document["host"], document["state_copies"]) == ("10.0.0.0", wanted)
    assert f"copies of its state   {wanted}" in asked(members, key_of(is_kept=True), *where).stdout


@pytest.mark.parametrize("by", ["option", "commits"])
def test_a_topic_that_shares_its_state_is_owned_as_the_one_with_the_state(
    members: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    slots, key = tmp_path / "slots", key_of(is_kept=True)
    words = ["ranges", "owner", "--key", key, "--topic", "other", "--members", members]
    said = refusal(*words)
    assert "the members own no topic other" in said
    assert "--option state.topic=..." in said
    words += ["--commits", "/lake/commits", "--option", f"slot.directory={slots}"]
    if by == "option":
        words += ["--option", "state.topic=flights"]
    else:
        store = commit_admin.open_commits("/lake/commits", "", "", {}).table.store
        store[-1] = replace(store[-1], terms=replace(store[-1].terms, state_topic="flights"))
    document = read_document(succeed(*words, "--output", "json").stdout)
    assert (document["slot"], document["host"]) == ("orders-0", "10.0.0.0")
    # Where a task keeps them that reads the other topic alone.
    options, order = options_and_order(
        **{"slot.directory": str(slots), "subscribe": "flights,other", "state.topic": "flights"}
    )
    scope = options.commits.scope
    state = StateOrder(2, 0, {}, scope=scope, topic_id=TOPIC_ID)
    split = Split(TopicPartition("other", AT.partition), 0, 10, bytes_estimate=1)
    task = ReadTask([split], (), (), {"other": "another"}, work=replace(order, state=state))
    cache = state_settings(options, order).cache
    assert cache is not None
    [place] = {each.place for each in partitions_of(options, task, state).values()}
    assert document["state_copies"] == str(cache / place)


def test_without_a_home_and_a_directory_there_are_no_copies(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As in a container that runs as a user which its files of users do not have."""

    def unknown(uid: int) -> None:
        raise KeyError(uid)

    for name in ("HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", unknown)
    assert state_settings(*options_and_order()).cache is None
    assert "state has no copy on this host: " in caplog.text
    assert "(slot.directory names a place for it)" in caplog.text


def test_a_copy_that_is_the_first_on_its_host_leaves_a_directory_for_members(
    tmp_path: Path,
) -> None:
    """Members refuse one that others can enter."""
    slots = tmp_path / "slots"
    copies = state_settings(*options_and_order(**{"slot.directory": str(slots)})).cache
    assert copies is not None
    draft = StateCache(copies).draft(pa.schema([("key", pa.binary())]))
    draft.add(pa.record_batch({"key": [b"k"]}))
    draft.abandon()
    assert copies.is_dir()
    make_private(private_name(slots))


def test_a_directory_of_others_takes_no_copies(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    private_name(tmp_path).mkdir()
    private_name(tmp_path).chmod(0o777)
    assert state_settings(*options_and_order(**{"slot.directory": str(tmp_path)})).cache is None
    assert "is not a private directory of this user" in caplog.text


@pytest.mark.parametrize(
    ("key", "slots"),
    [(key_of(is_kept=False), "/var/slots"), (key_of(is_kept=True), ""), ("null", "/var/slots")],
)
def test_what_is_not_known_of_copies_is_not_said(members: Path, key: str, slots: str) -> None:
    where = ["--commits", "/lake/commits"]
    where += ["--option", f"slot.directory={slots}"] if slots else []
    assert found(members, key, *where)["state_copies"] is None
    assert "copies" not in asked(members, key, *where).stdout


def test_without_a_table_of_commits_copies_are_no_matter(members: Path) -> None:
    document = found(members, key_of(is_kept=True), "--option", "slot.directory=/var/slots")
    assert "state_copies" not in document
