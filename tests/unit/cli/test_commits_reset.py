"""`keyrange commits reset`: what it would do, what it does, and what it refuses."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from commands import commanding
from keyrange.cli.commits import reset as commits_reset
from keyrange.errors import KeyrangeError
from keyrange.individual_commits.model.commit import CommitKind
from keyrange.individual_commits.model.partition_progress import KeyRangeState
from keyrange.individual_commits.table import commit_admin
from keyrange.model.commit_settings import CommitSettings
from keyrange.model.key_ranges import SPACE, split_evenly
from keyrange.model.offsets import TopicPartition
from samples.checkpoints import commit_batch, make_checkpoint, plan_batch
from samples.commit_samples import GROUP, QUERY, RUN, SOURCE, Query, put_in_place

RESET = ("commits", "reset", "/t", "--topic", "flights")
WHY = ("--why", "bad prices since noon")


@pytest.fixture
def query(monkeypatch: pytest.MonkeyPatch) -> Query:
    made = Query(2, 4, 0.05).run(5, 400)
    put_in_place(monkeypatch, made)
    monkeypatch.setattr(commits_reset, "now", lambda: made.now_ms + 1_000)
    return made


def run(*arguments: object) -> Result:
    return commanding.run(*RESET, *arguments)


def document(*arguments: object) -> Any:
    return commanding.document(*RESET, *arguments, *WHY)


def refusal(*arguments: object) -> str:
    return commanding.refusal(*RESET, *arguments, *WHY)


def test_nothing_is_written_without_confirm(query: Query) -> None:
    before = query.table.known()
    found = document("--to", 100)
    assert (found["written"], found["seq"]) == (None, 6)
    assert query.table.known() == before
    result = run("--to", 100, *WHY)
    assert "nothing was written: --confirm does it" in result.stderr
    assert "COMMITS_FENCED" in result.stderr


def test_a_reason_that_says_nothing_is_refused(query: Query) -> None:
    result = run("--to", 100, "--why", " ", "--confirm")
    assert result.exit_code == 2
    assert "--why is what the history says later" in result.output
    assert query.table.known().seq == 6


def test_a_rewind_is_a_commit_that_says_who_and_why(query: Query) -> None:
    known = query.table.known()
    found = document("--to", 100, "--partition", 1, "--who", "ann", "--confirm")
    assert found["written"] == 7
    commit = query.table.store[-1]
    assert (commit.seq, commit.kind, commit.batch_id) == (7, CommitKind.RESET, -1)
    assert (commit.group, commit.source_id, commit.query_id) == (GROUP, SOURCE, QUERY)
    assert (commit.who, commit.why) == ("ann", "bad prices since noon")
    assert commit.run_id != RUN
    assert commit.terms == known.terms
    assert not commit.whole
    [(partition, state)] = commit.states.items()
    assert partition == TopicPartition("flights", 1)
    assert (state.committed, state.scanned, state.position) == (100, 100, 2000)
    after = query.table.known()
    assert after.states[TopicPartition("flights", 0)] == known.states[TopicPartition("flights", 0)]
    assert after.batch_id == known.batch_id
    [row] = found["partitions"]
    assert row["committed"] == row["to"] == 100
    assert row["committed_before"] == known.states[partition].committed
    assert row["again"][0][0] == 100
    shown = commanding.text("commits", "history", "/t")
    assert "reset 7, by ann: bad prices since noon" in shown


def test_a_driver_that_is_running_is_fenced(query: Query) -> None:
    document("--to", 100, "--confirm")
    with pytest.raises(KeyrangeError, match="COMMITS_FENCED"):
        query.batch(10)


def test_forward_gives_pending_records_up(query: Query) -> None:
    state = query.states[TopicPartition("flights", 0)]
    to = state.pending[2].offset + 1
    found = document("--to", to, "--partition", 0, "--confirm")
    [row] = found["partitions"]
    assert row["given_up"] == [record.offset for record in state.pending[:3]]
    assert (row["again"], row["passed_over"]) == ([], [])
    after = query.table.known().states[TopicPartition("flights", 0)]
    assert after.pending == state.pending[3:]
    assert after.committed == row["committed"] == state.pending[3].offset


def test_redo_keeps_the_pending_records_below(query: Query) -> None:
    state = query.states[TopicPartition("flights", 0)]
    to = state.pending[2].offset + 1
    [row] = document("--to", to, "--redo", "--partition", 0, "--confirm")["partitions"]
    after = query.table.known().states[TopicPartition("flights", 0)]
    assert after.pending == state.pending[:3]
    assert after.scanned == to
    assert (row["given_up"], row["committed"]) == ([], state.committed)


def test_nothing_to_do_writes_nothing(query: Query) -> None:
    state = query.states[TopicPartition("flights", 0)]
    result = run("--to", state.committed, "--redo", "--partition", 0, *WHY)
    assert "nothing was written" in result.stderr
    document("--to", 100, "--confirm")
    result = run("--to", 100, *WHY, "--confirm")
    assert "nothing would change, nothing was written" in result.stderr
    assert query.table.known().seq == 7


def test_as_it_was_at_a_commit_or_at_the_first(query: Query) -> None:
    then = query.table.known(3).states
    found = {row["partition"]: row["to"] for row in document("--to", "commit:3")["partitions"]}
    assert found == {place.partition: state.committed for place, state in then.items()}
    first = query.table.known(2).states
    found = {
        row["partition"]: row["to"] for row in document("--to", "earliest-known")["partitions"]
    }
    assert found == {place.partition: state.committed for place, state in first.items()}
    assert "flights-0, flights-1 had no state then" in refusal("--to", "commit:1")
    for wrong in ("commit:7", "commit:0", "commit:x"):
        assert f"--to {wrong}: the commits are 1 to 6" in refusal("--to", wrong)


def test_offsets_of_a_topic_that_was_made_anew_are_others(query: Query) -> None:
    store = query.table.store
    place = TopicPartition("flights", 0)
    for at in (-2, -1):
        states = dict(store[at].states)
        states[place] = replace(states[place], topic_id="another")
        store[at] = replace(store[at], states=states)
    [row] = document("--to", "earliest-known", "--partition", 0)["partitions"]
    assert row["to"] == query.table.known(5).states[place].committed
    assert "flights-0 had no state then" in refusal("--to", "commit:3")


def test_what_was_not_handed_out_cannot_be_skipped(query: Query) -> None:
    said = refusal("--to", 2001, "--confirm")
    assert "--to 2001 lies beyond the position of flights-0, 2000" in said
    assert "flights-1" in said
    assert query.table.known().seq == 6


def test_finished_output_above_a_hole_is_not_given_up_with_it(query: Query) -> None:
    for at, commit in enumerate(query.table.store):
        terms = replace(commit.terms or CommitSettings(), isolation="transactional")
        query.table.store[at] = replace(commit, terms=terms)
    record = query.states[TopicPartition("flights", 0)].pending[0]
    place = ("--partition", 0, "--confirm")
    said = refusal("--to", record.offset + 1, *place)
    assert f"--to would give up offset {record.offset} of flights-0" in said
    assert "lower maxDeliveries" in said
    assert query.table.known().seq == 6
    # Back is another matter, and so is what lies below every pending record.
    document("--to", record.offset, *place)
    document("--to", 100, *place)
    # Nothing that waits is behind these any more.
    document("--to", record.offset, *place)


def test_finished_output_above_records_that_a_range_lacks_is_not_lost_with_them(
    query: Query,
) -> None:
    place = TopicPartition("flights", 0)
    low, high = split_evenly(SPACE, 2)
    for at, commit in enumerate(query.table.store):
        terms = replace(commit.terms or CommitSettings(), isolation="transactional")
        query.table.store[at] = replace(commit, terms=terms)
    whole = query.table.store[-1].states
    behind = (KeyRangeState(low, 100), KeyRangeState(high, 2000))
    states = {**whole, place: replace(whole[place], pieces=behind)}
    query.table.store[-1] = replace(query.table.store[-1], states=states)
    said = refusal("--to", 2000, "--partition", 0, "--confirm")
    assert "--to would pass over records of flights-0 from offset 100 on" in said
    assert query.table.known().seq == 6


def test_a_source_that_another_has_gone_on_from_is_not_reset(query: Query) -> None:
    later = query.table.store[-1]
    query.table.store.append(replace(later, source_id="source-2", seq=1))
    said = refusal("--to", 100, "--confirm")
    assert f"source {SOURCE} is over: source source-2 of group {GROUP} has gone on" in said
    assert query.table.known().seq == 6


def test_a_wrong_command_line_ends_with_2(query: Query) -> None:
    for arguments in (
        ("--to", "100"),
        ("--to", "yesterday", *WHY),
        ("--to", "2026-05-28T20:00:00Z", *WHY),
        ("--to", "-5", *WHY),
        WHY,
    ):
        result = run(*arguments)
        assert result.exit_code == 2, arguments
        assert result.stdout == ""


@pytest.mark.parametrize(("committed", "refused"), [(0, True), (1, False)])
def test_a_batch_that_is_open_is_in_the_way(
    query: Query, tmp_path: Path, committed: int, refused: bool
) -> None:
    """It is read again as it was planned, and what it comes to would go over the reset."""
    checkpoint: dict[str, str] = {"metadata": '{"id":"the-id"}'}
    for number in (0, 1):
        mark = {"version": 1, "commits": {"seq": 6, "sourceId": SOURCE}}
        line = json.dumps({"@keyrange": mark, "flights": {"0": number}})
        checkpoint[f"offsets/{number}"] = f'v1\n{{"batchTimestampMs":0}}\n{line}'
    for number in range(committed + 1):
        checkpoint[f"commits/{number}"] = "v1\n{}"
    for name, text in checkpoint.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    arguments = ("--to", 100, "--checkpoint", tmp_path, "--confirm")
    if refused:
        assert "BATCH_NOT_COMMITTED" in refusal(*arguments)
        assert query.table.known().seq == 6
    else:
        assert document(*arguments)["written"] == 7


def test_the_checkpoint_of_another_query_is_refused(query: Query, tmp_path: Path) -> None:
    """Whether a batch of this one is open was asked for, and it does not say."""
    for named in ("those of source another", "no commits"):
        home = make_checkpoint(tmp_path / named)
        plan_batch(home, 0, 0, {"0": 1}, None if named == "no commits" else {})
        commit_batch(home, 0)
        planned = home / "offsets" / "0"
        planned.write_text(planned.read_text().replace("source-1", "another"))
        said = refusal("--to", 100, "--checkpoint", home, "--confirm")
        assert f"is of another query: it names {named}" in said
    assert query.table.known().seq == 6


def test_users_have_a_name() -> None:
    assert commit_admin.user_name()
