"""`keyrange commits verify`: what agrees, and every way in which it may not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import write_deltalake
from typer.testing import Result

from commands import commanding
from commands.documents import read_document
from keyrange.cli.commits import verify as commits_verify
from keyrange.cli.commits.recount import Log, recount
from keyrange.consumer import leader_epoch_agreement
from keyrange.consumer.commit_log import CommitLog
from keyrange.consumer.leader_epoch_agreement import Leaders
from keyrange.consumer.settings import parse_consumer_options
from keyrange.errors import KeyrangeError
from keyrange.individual_commits.model.auditing import audit
from keyrange.individual_commits.model.commit import CommitKind
from keyrange.individual_commits.model.offset_reset import rewind
from keyrange.individual_commits.model.partition_progress import (
    KeyRangeState,
    PartitionState,
    PendingRecord,
)
from keyrange.model.key_ranges import HASH_MAX, SPACE, KeyRange, split_evenly
from keyrange.model.offsets import OffsetRange, TopicPartition
from samples.commit_samples import Query, place_of, put_in_place

A, B = TopicPartition("flights", 0), TopicPartition("flights", 1)
NOTHING = np.empty(0, np.int64)


@pytest.fixture
def query(monkeypatch: pytest.MonkeyPatch) -> Query:
    made = Query(2, 4, 0.05).run(6, 300)
    assert all(made.dead.values())
    assert all(state.pending for state in made.states.values())
    put_in_place(monkeypatch, made)
    dead = {key_hash: np.array(sorted(h.offset for h in d)) for key_hash, d in made.dead.items()}
    monkeypatch.setattr(commits_verify, "_dead", lambda *_: dead)
    return made


def test_a_sink_is_held_against_something(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A driver that has begun and committed no batch says nothing of any row."""
    made = Query(2, 4, 0.05)
    made.table.store[:] = Query(2, 4, 0.05).run(1, 10).table.store[:1]
    put_in_place(monkeypatch, made)
    said = commanding.refusal("commits", "verify", "/t", "--sink", tmp_path / "sink")
    assert "has committed no batch yet" in said


def sink(
    path: Path, query: Query, names: tuple[str, ...] = ("topic", "partition", "offset")
) -> str:
    rows = [
        (key_hash.topic, key_hash.partition, at)
        for key_hash, done in query.done.items()
        for at in done
    ]
    types = (pa.string(), pa.int32(), pa.int64())
    columns = [pa.array(c, t) for c, t in zip(zip(*rows, strict=True), types, strict=True)]
    write_deltalake(str(path / "sink"), pa.table(dict(zip(names, columns, strict=True))))
    return str(path / "sink")


def run(*arguments: object) -> Result:
    return commanding.run("commits", "verify", "/t", *arguments)


def document(code: int, *arguments: object) -> Any:
    result = run(*arguments, "--output", "json")
    assert result.exit_code == code, (result.output, result.exception)
    found = read_document(result.stdout)
    assert found["agrees"] == (code == 0)
    return found


def test_a_sink_with_exactly_what_is_done_agrees(query: Query, tmp_path: Path) -> None:
    found = document(0, "--sink", sink(tmp_path, query))
    assert [row["in_sink"] for row in found["partitions"]] == [
        len(query.done[A]),
        len(query.done[B]),
    ]
    assert (found["commits"], found["seq"]) == ([], 7)
    first = found["partitions"][0]
    nothing = {"count": 0, "offsets": []}
    assert first == {
        "topic": "flights",
        "partition": 0,
        "from_offset": 0,
        "until_offset": 1800,
        "in_sink": len(query.done[A]),
        "records": None,
        "missing": nothing,
        "doubled": nothing,
        "unexpected": {},
        "unsure": 0,
    }
    result = run("--sink", tmp_path / "sink")
    assert result.stdout.splitlines()[-1] == "everything agrees"


def test_every_kind_of_difference_is_told(query: Query, tmp_path: Path) -> None:
    record = query.states[A].pending[0].offset
    letter = query.dead[A][0].offset
    query.done[A] -= {0, 7}
    query.done[A] |= {record, letter, 1800, 2500}
    path = sink(tmp_path, query)
    again = pa.table({"topic": ["flights"], "partition": pa.array([0], pa.int32()), "offset": [8]})
    write_deltalake(path, again, mode="append")
    first, second = document(1, "--sink", path)["partitions"]
    assert first["missing"] == {"count": 2, "offsets": [0, 7]}
    assert first["doubled"] == {"count": 1, "offsets": [8]}
    assert first["unexpected"] == {
        "pending": {"count": 1, "offsets": [record]},
        "dead letter": {"count": 1, "offsets": [letter]},
        "not handed out": {"count": 2, "offsets": [1800, 2500]},
    }
    assert (second["missing"]["count"], second["unexpected"]) == (0, {})
    result = run("--sink", path)
    assert result.exit_code == 1
    assert "flights-0 missing: 0, 7\n" in result.stdout
    assert f"flights-0 unexpected (pending): {record}\n" in result.stdout
    assert result.stdout.endswith("there are differences\n")
    assert "--live asks the log" in result.stderr


def test_a_partition_of_which_the_sink_has_nothing_is_missing(query: Query, tmp_path: Path) -> None:
    count = len(query.done[B])
    query.done[B] = set()
    _, second = document(1, "--sink", sink(tmp_path, query))["partitions"]
    assert (second["in_sink"], second["missing"]["count"]) == (0, count)


def test_a_job_may_leave_records_out(query: Query, tmp_path: Path) -> None:
    query.done[A] -= set(range(100, 160))
    path = sink(tmp_path, query)
    first, _ = document(0, "--sink", path, "--may-miss")["partitions"]
    assert first["missing"]["offsets"] == sorted(first["missing"]["offsets"])
    assert 40 < first["missing"]["count"] <= 60
    assert len(first["missing"]["offsets"]) == 10
    document(1, "--sink", path)
    query.done[A] |= {5000}
    document(1, "--sink", sink(tmp_path / "more", query), "--may-miss")


def test_columns_may_have_other_names(query: Query, tmp_path: Path) -> None:
    path = sink(tmp_path, query, ("t", "a b", 'o"'))
    document(0, "--sink", path, "--columns", 't,a b,o"')
    failure = run("--sink", path).exception
    assert isinstance(failure, KeyrangeError)
    assert "has no column topic, partition, offset; it has t, a b, o" in str(failure)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"partition": pa.array([None], pa.int32())}, "has rows without partition"),
        ({"offset": pa.array(["x"])}, "hold no ids"),
    ],
)
def test_a_sink_without_ids_is_refused(
    query: Query, tmp_path: Path, values: dict[str, Any], said: str
) -> None:
    usual = {"topic": ["flights"], "partition": pa.array([0], pa.int32()), "offset": [8]}
    write_deltalake(str(tmp_path / "s"), pa.table(usual | values))
    failure = run("--sink", tmp_path / "s").exception
    assert isinstance(failure, KeyrangeError)
    assert said in str(failure)


def test_a_sink_that_is_none_is_refused(query: Query, tmp_path: Path) -> None:
    failure = run("--sink", tmp_path / "nowhere").exception
    assert isinstance(failure, KeyrangeError)
    assert "there is no Delta table at" in str(failure)
    assert run("--columns", "a,b").exit_code == 2
    assert run("--live").exit_code == 2


def test_a_sink_that_lost_a_file_is_no_traceback(query: Query, tmp_path: Path) -> None:
    path = sink(tmp_path, query)
    for file in Path(path).glob("*.parquet"):
        file.unlink()
    failure = run("--sink", path).exception
    assert isinstance(failure, KeyrangeError)
    assert failure.condition.name == "COMMITS_UNREADABLE"


def test_a_begin_that_is_known_is_held_to(query: Query, tmp_path: Path) -> None:
    path = sink(tmp_path, query)
    first, _ = document(1, "--sink", path, "--from", 3)["partitions"]
    early = [at for at in range(3) if at in query.done[A]]
    assert first["unexpected"] == {
        "before the query began": {"count": len(early), "offsets": early}
    }


def state(*pieces: KeyRangeState) -> PartitionState:
    return PartitionState("", 10, pieces)


LOW, HIGH = KeyRange(0, 2**62), KeyRange(2**62, HASH_MAX + 1)
LAGGING = state(KeyRangeState(LOW, 10, (PendingRecord(4, 1),)), KeyRangeState(HIGH, 5))


def key_hashes(*at: tuple[int, KeyRange]) -> Log:
    offsets = np.array([offset for offset, _ in at], np.int64)
    hashes = np.array([span.from_hash for _, span in at], np.int64)
    return Log(OffsetRange(0, 10), offsets, hashes)


def test_what_some_ranges_have_not_scanned_cannot_be_told_without_keys() -> None:
    found = recount(LAGGING, np.array([0, 1, 2, 3, 7]), 0, NOTHING, False)
    assert (found.judged, found.unsure, found.missing.count) == (OffsetRange(0, 5), 1, 0)
    assert found.agrees(False)


def test_the_log_says_whose_an_offset_is_and_which_exist() -> None:
    log = key_hashes((0, LOW), (3, HIGH), (4, LOW), (6, LOW), (7, HIGH), (9, LOW))
    good = recount(LAGGING, np.array([0, 3, 6, 9]), 0, NOTHING, False, log)
    assert (good.records, good.agrees(False), good.unsure) == (4, True, 0)
    bad = recount(LAGGING, np.array([0, 2, 3, 7, 9]), 0, NOTHING, False, log)
    assert bad.missing.offsets == (6,)
    assert bad.unexpected.keys() == {"not in the log", "not handed out"}
    assert bad.unexpected["not in the log"].offsets == (2,)
    assert bad.unexpected["not handed out"].offsets == (7,)


def test_what_retention_took_is_not_missed() -> None:
    log = replace(key_hashes((6, LOW), (9, LOW)), span=OffsetRange(5, 10))
    found = recount(LAGGING, np.array([0, 1, 6, 9]), 0, NOTHING, False, log)
    assert found.agrees(False)
    assert (found.judged, found.unsure) == (OffsetRange(5, 10), 2)


def test_a_transactional_sink_has_the_prefix_alone() -> None:
    held = state(KeyRangeState(LOW, 10, (PendingRecord(4, 1),)), KeyRangeState(HIGH, 10))
    assert recount(held, np.arange(4), 0, NOTHING, True).agrees(False)
    log = key_hashes(*((at, HIGH if at % 2 else LOW) for at in range(10)))
    assert recount(held, np.arange(4), 0, NOTHING, True, log).agrees(False)
    for known in (None, log):
        found = recount(held, np.array([0, 1, 2, 3, 5]), 0, NOTHING, True, known)
        assert found.unexpected["not handed out"].offsets == (5,)


def test_a_very_long_range_takes_no_memory() -> None:
    far = PartitionState("", 10**15, (KeyRangeState(KeyRange(0, HASH_MAX + 1), 10**15),))
    found = recount(far, np.array([5]), 0, NOTHING, False)
    assert found.missing.count == 10**15 - 1
    assert found.missing.offsets == (0, 1, 2, 3, 4, 6, 7, 8, 9, 10)


def test_commits_of_a_query_do_not_contradict_each_other(query: Query) -> None:
    assert list(audit(query.table.history())) == []
    last = query.table.store[-1]
    states = {A: rewind(query.states[A], 100).state}
    query.table.append(
        replace(last, seq=8, kind=CommitKind.RESET, run_id="r", batch_id=-1, states=states)
    )
    assert list(audit(query.table.history())) == []


@pytest.fixture
def consumers(tmp_path: Path) -> Callable[[str], CommitLog]:
    """Consumers of one group, by their slots."""
    options = {"kafka.bootstrap.servers": "h:1", "commitGroup": "g"}
    settings = parse_consumer_options({**options, "commitTable": str(tmp_path / "commits")})
    begin = lambda wanted, _later: dict.fromkeys(wanted, 0)  # noqa: E731
    return lambda slot: CommitLog(settings, slot, begin)


def verified(path: Path, slot: str) -> list[str]:
    table, source = str(path / "commits"), f"consumer/g/{slot}"
    result = commanding.run("commits", "verify", table, "--source", source, "--output", "json")
    assert result.exit_code in (0, 1), result.exception
    return [each["said"] for each in read_document(result.stdout)["commits"]]


@pytest.mark.ordinary
def test_a_claim_brings_the_state_of_what_it_takes_over(
    consumers: Callable[[str], CommitLog], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    low, high = split_evenly(SPACE, 2)
    one, two = consumers("one"), consumers("two")
    one.take({A: [low]}, {})
    two.take({A: [high]}, {})
    two.commit({A: [KeyRangeState(high, 50, (PendingRecord(7, high.from_hash),))]})
    one.take({A: [SPACE]}, {})
    one.commit({A: [KeyRangeState(low, 60), KeyRangeState(high, 60)]})
    two.take({A: [high]}, {})
    assert [verified(tmp_path, slot) for slot in ("one", "two")] == [[], []]

    with monkeypatch.context() as faulty:
        # It copies what somebody left who is not believed any more.
        old = [KeyRangeState(high, 50, (PendingRecord(7, high.from_hash),))]
        faulty.setattr(leader_epoch_agreement, "pieces_done", lambda *_: old)
        one.take({A: [high]}, {})
    assert verified(tmp_path, "two") == []
    [said] = verified(tmp_path, "one")
    assert said == f"a claim took {high} over, not as source consumer/g/two has left it"

    with monkeypatch.context() as faulty:
        # It holds the range, and goes back to what it found when it took it.
        one.commit({A: [KeyRangeState(high, 70)]})
        faulty.setattr(leader_epoch_agreement, "pieces_done", lambda *_: [KeyRangeState(high, 60)])
        one.take({A: [high]}, {})
    assert verified(tmp_path, "one")[1:] == [
        f"a claim took {high} over, not as source consumer/g/one has left it"
    ]


def test_a_claim_cuts_back_what_it_does_not_hold_with_the_log(tmp_path: Path) -> None:
    low, high = split_evenly(SPACE, 2)
    options = {"kafka.bootstrap.servers": "h:1", "commitGroup": "g", "failOnDataLoss": "false"}
    settings = parse_consumer_options({**options, "commitTable": str(tmp_path / "commits")})
    one, two = (
        CommitLog(settings, slot, lambda wanted, _: dict.fromkeys(wanted, 0))
        for slot in ("one", "two")
    )
    one.take({A: [SPACE]}, {}, leaders=Leaders({A: 3}))
    one.commit({A: [KeyRangeState(low, 60), KeyRangeState(high, 60)]}, {}, {A: 3})
    two.take({A: [low]}, {}, leaders=Leaders({A: 3}))
    # An unclean election: the new leader's log parts from epoch 3 at 40.
    cut = Leaders({A: 5}, lambda asked: {A: (3, 40)} if asked else {})
    one.take({A: [high]}, {}, leaders=cut)
    assert [verified(tmp_path, slot) for slot in ("one", "two")] == [[], []]


def test_what_contradicts_itself_is_named(query: Query) -> None:
    commits = list(query.table.history())

    def said(at: int, **changes: Any) -> list[str]:
        changed = [*commits[:at], replace(commits[at], **changes), *commits[at + 1 :]]
        return [f"{each.seq} {each.partition} {each.said}" for each in audit(changed)]

    now = commits[6].states[A]
    back = PartitionState(now.topic_id, now.position, rewind(now, 9).state.pieces)
    assert f"7 {A} the committed offset fell from {commits[5].states[A].committed} to 9" in said(
        6, states={A: back}
    )
    short = replace(rewind(now, 9).state, position=300)
    assert f"7 {A} the position went back from 1500 to 300" in said(6, states={A: short})
    # A position follows a log that was cut back as far as it was, and no further.
    known = commits[5].states[A]
    followed = known.cut_back(1000)
    assert followed.position < known.position
    assert said(6, states={A: followed}, cut_back={A: 1000}) == []
    assert said(6, states={A: followed}, cut_back={B: 1000}) != []
    assert f"7 {A} the position went back from 1200 to 1000" in said(
        6, states={A: followed}, cut_back={A: 1200}
    )
    done = next(at for at in range(1200, 1500) if at in query.done[A])
    piece = next(p for p in now.pieces if p.span.contains(place_of(done)))
    opened = replace(
        piece, pending=tuple(sorted((*piece.pending, PendingRecord(done, place_of(done)))))
    )
    pieces = tuple(opened if p is piece else p for p in now.pieces)
    assert f"7 {A} offset {done} was done and is a pending record again" in said(
        6, states={A: replace(now, pieces=pieces)}
    )
    assert said(4, batch_id=1) == ["5 None batch 1 is committed after batch 2"]
    assert said(4, states=commits[4].states, whole=True) == []
    missing = said(4, states={A: commits[4].states[A]}, whole=True)
    assert missing == [f"5 {B} a commit of every partition leaves it out"]
    assert "6 None it follows commit 4" in [
        f"{each.seq} {each.partition} {each.said}" for each in audit([*commits[:4], *commits[5:]])
    ]
    counts = {A: replace(commits[4].counts[A], log_end=10)}
    assert said(4, counts=counts) == [f"5 {A} position 1200 lies beyond the log's end, 10"]
    fence = said(6, kind=CommitKind.FENCE, batch_id=-1)
    assert f"7 {A} a driver that begins changed what is done" in fence
    reset = said(6, kind=CommitKind.RESET, batch_id=-1)
    assert f"7 {A} a reset moved the position from 1500 to 1800" in reset
    terms = replace(commits[4].terms, null_keys="first")
    assert any(line.startswith("5 None its numbers rest on") for line in said(4, terms=terms))


def test_contradictions_are_differences(query: Query) -> None:
    query.table.store[4] = replace(query.table.store[4], batch_id=1)
    found = document(1)
    assert found["commits"] == [
        {"seq": 5, "topic": None, "partition": None, "said": "batch 1 is committed after batch 2"}
    ]
    recent = run("--last", 2)
    assert (recent.exit_code, recent.stdout) == (0, "everything agrees\n")
    assert "of 7 commits the last 2 are looked at" in recent.stderr
    shown = run()
    assert shown.exit_code == 1
    assert "batch 1 is committed after batch 2" in shown.stdout
