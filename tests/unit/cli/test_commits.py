"""`keyrange commits`: what it shows of a table, and what it refuses."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import chain
from pathlib import Path

import pytest

from commands.commanding import document, refusal, run, text
from commands.documents import read_document
from keyrange.cli.commits import commands as commits
from keyrange.cli.commits import reset as commits_reset
from keyrange.cli.commits.document import ASCII, BLOCKS, draw, marks_for
from keyrange.individual_commits.model.partition_progress import (
    KeyRangeState,
    PartitionState,
    PendingRecord,
)
from keyrange.individual_commits.table.commit_table import open_commit_table
from keyrange.model.key_ranges import HASH_MAX, KeyRange
from keyrange.options.commits import CommitOptions
from keyrange.work.model.outcome import Cause
from queries.scripted import ScriptedCluster
from samples.checkpoints import make_checkpoint, plan_batch
from samples.commit_samples import (
    BEGAN_MS,
    GROUP,
    QUERY,
    RUN,
    SOURCE,
    TOPIC_ID,
    Query,
    put_in_place,
)

LATER_MS = 90_000


@pytest.fixture
def of(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Query]:
    """Lets the commands find a query's table at any path."""

    def found(query: Query, sources: tuple[tuple[str, str], ...] = ((GROUP, SOURCE),)) -> Query:
        put_in_place(monkeypatch, query, sources)
        for module in (commits, commits_reset):
            monkeypatch.setattr(module, "now", lambda: query.now_ms + LATER_MS)
        return query

    return found


def two_pending() -> Query:
    """A partition of 10 offsets in two ranges, with pending records at 3 and 5 of the upper one."""
    query = Query(1, 2, fails=0.0)
    query.batch(10, tail=7)
    [(partition, state)] = query.states.items()
    lower, upper = (
        KeyRangeState(s, 10) for s in (KeyRange(0, 2**62), KeyRange(2**62, HASH_MAX + 1))
    )
    pending = (
        PendingRecord(3, 2**62, 2, query.now_ms + 100_000, BEGAN_MS),
        PendingRecord(5, 2**62 + 9, 1, query.now_ms, BEGAN_MS + 5_000),
    )
    query.states[partition] = PartitionState(
        state.topic_id, 10, (lower, KeyRangeState(upper.span, 10, pending))
    )
    query.table.store[-1] = replace(query.table.store[-1], states=dict(query.states))
    return query


def test_the_document_of_show(of: Callable[..., Query]) -> None:
    of(two_pending())
    none_pending = {"pending": 0, "oldest_pending": None, "deliveries_max": 0}
    oldest = {"offset": 3, "since": "2026-05-28T20:26:40.000+00:00", "age_ms": 100_000}
    some = {"pending": 2, "oldest_pending": oldest, "deliveries_max": 2}
    assert document("commits", "show", "/t") == {
        "table": "/t",
        "group": GROUP,
        "source_id": SOURCE,
        "query_id": QUERY,
        "run_id": RUN,
        "seq": 2,
        "batch_id": 0,
        "committed_at": "2026-05-28T20:26:50.000+00:00",
        "terms": {"hash": "murmur3_x64_128", "null_keys": "spread", "isolation": "immediate"}
        | {"state_topic": "", "keys": ""},
        "dead_letters": 0,
        "dead_timers": 0,
        "pending_by_error": [
            {
                "cause": "rejected",
                "error": None,
                "records": 2,
                "topic": "flights",
                "partition": 0,
                "offset": 3,
                "place": None,
            }
        ],
        "partitions": [
            {
                "topic": "flights",
                "partition": 0,
                "topic_id": TOPIC_ID,
                "committed": 3,
                "scanned": 10,
                "position": 10,
                "log_end": 17,
                "log_end_known_by": "batch",
                "read_lag": 7,
                "commit_lag": 14,
                "done_ranges": 2,
                **some,
                "ranges": [
                    {
                        "range": [0, 2**62 - 1],
                        "committed": 10,
                        "scanned": 10,
                        "read_lag": 7,
                        "commit_lag": 7,
                        "done_above": [],
                        **none_pending,
                    },
                    {
                        "range": [2**62, HASH_MAX],
                        "committed": 3,
                        "scanned": 10,
                        "read_lag": 7,
                        "commit_lag": 14,
                        "done_above": [[4, 5], [6, 10]],
                        **some,
                    },
                ],
            }
        ],
    }


def test_the_document_of_gaps(of: Callable[..., Query]) -> None:
    of(two_pending())
    first, second = document("commits", "gaps", "/t")
    assert first == {
        "topic": "flights",
        "partition": 0,
        "offset": 3,
        "key_hash": 2**62,
        "range": [2**62, HASH_MAX],
        "deliveries": 2,
        "cause": "rejected",
        "error": None,
        "since": "2026-05-28T20:26:40.000+00:00",
        "age_ms": 100_000,
        "due": "2026-05-28T20:28:30.000+00:00",
        "due_in_ms": 10_000,
    }
    assert (second["offset"], second["due_in_ms"]) == (5, 0)


def test_a_record_that_was_held_back_is_due_with_the_first_of_its_key(
    of: Callable[..., Query],
) -> None:
    query = two_pending()
    [(partition, state)] = query.states.items()
    [lower, upper] = state.pieces
    held = PendingRecord(7, 2**62, 0, 0, BEGAN_MS, Cause.HELD_BACK)
    upper = replace(upper, pending=(*upper.pending, held))
    query.states[partition] = replace(state, pieces=(lower, upper))
    query.table.store[-1] = replace(query.table.store[-1], states=dict(query.states))
    of(query)
    assert [row["due_in_ms"] for row in document("commits", "gaps", "/t")] == [10_000, 0, 10_000]


def test_the_document_of_history(of: Callable[..., Query]) -> None:
    of(two_pending())
    last, first = document("commits", "history", "/t")
    assert last == {
        "seq": 2,
        "kind": "batch",
        "batch_id": 0,
        "committed_at": "2026-05-28T20:26:50.000+00:00",
        "run_id": RUN,
        "done": 10,
        "rejected": 0,
        "held_back": 0,
        "dead": 0,
        "redelivered": 0,
        "pending": 2,
        "moved": [{"topic": "flights", "partition": 0, "from_offset": None, "until_offset": 3}],
        "who": None,
        "why": None,
    }
    assert (first["seq"], first["kind"], first["batch_id"]) == (1, "fence", None)


def test_what_show_says_of_a_partition(of: Callable[..., Query]) -> None:
    of(two_pending())
    shown = text("commits", "show", "/t")
    assert "flights-0   read lag 7, commit lag 14 (last batch)\n  2 pending, the oldest" in shown
    assert "██████●▒●▒▒▒▒············" in shown
    assert "50.00-100.00%" in shown
    assert "more" not in shown
    assert "1 key ranges that are farther" in text("commits", "show", "/t", "--ranges", 1)
    assert "100.00%" not in text("commits", "show", "/t", "--ranges", 0)


def test_lines_fit_a_terminal(of: Callable[..., Query]) -> None:
    """Also with offsets of ten digits, 64 ranges and a pending record in every cell."""
    of(Query(2, 64, 0.05, 0.2, begin=1_204_311_000).run(4, 8_000, tail=5_000_000))
    for command in ("show", "gaps", "history"):
        shown = text("commits", command, "/t").splitlines()
        assert max(map(len, shown)) <= 80
    assert len(text("commits", "gaps", "/t", "--limit", 7).splitlines()) == 9


def test_counts_agree_with_the_states(of: Callable[..., Query]) -> None:
    query = of(Query(3, 8, 0.05).run(6, 400, tail=50))
    found = document("commits", "show", "/t")
    pending = {key_hash.partition: len(state.pending) for key_hash, state in query.states.items()}
    assert {row["partition"]: row["pending"] for row in found["partitions"]} == pending
    assert min(pending.values()) > 3
    assert len(document("commits", "gaps", "/t", "--limit", 10_000)) == sum(pending.values())
    for row in found["partitions"]:
        assert sum(each["pending"] for each in row["ranges"]) == row["pending"]
        assert min(each["committed"] for each in row["ranges"]) == row["committed"]
        assert row["commit_lag"] == 6 * 400 + 50 - row["committed"]
        assert row["read_lag"] == 50


def test_an_earlier_commit_is_shown_as_it_was(of: Callable[..., Query]) -> None:
    query = Query(1, 4, 0.05).run(2, 300)
    then = query.states.copy()
    of(query.run(3, 300))
    [row] = document("commits", "show", "/t", "--at", 3)["partitions"]
    [state] = then.values()
    assert (row["position"], row["committed"]) == (600, state.committed)
    assert (row["log_end"], row["pending"]) == (600, len(state.pending))
    assert len(document("commits", "gaps", "/t", "--at", 3)) == len(state.pending)
    for command in ("show", "gaps"):
        assert "--at 99: the commits are 1 to" in refusal("commits", command, "/t", "--at", 99)


def test_some_partitions_alone(of: Callable[..., Query]) -> None:
    of(Query(3, 2, 0.05).run(2, 300))
    rows = document("commits", "show", "/t", "--topic", "flights", "--partition", 1)["partitions"]
    assert [row["partition"] for row in rows] == [1]
    assert {
        row["partition"] for row in document("commits", "gaps", "/t", "--topic", "flights")
    } == {0, 1, 2}
    said = refusal("commits", "show", "/t", "--topic", "trains")
    assert "know nothing of trains; they know of: flights-0, flights-1, flights-2" in said
    assert run("commits", "show", "/t", "--partition", 1).exit_code == 2


def test_a_checkpoint_is_no_commit_table_and_the_error_says_what_takes_it(tmp_path: Path) -> None:
    home = make_checkpoint(tmp_path / "cp")
    plan_batch(home, 0, BEGAN_MS, {"0": 1})
    for command in ("show", "gaps", "history", "verify"):
        said = refusal("commits", command, home)
        assert "a checkpoint is at the place of the table; `keyrange checkpoint show`" in said
        assert f"(table={home})" in said
        assert "commitTable" in said
    assert "FOREIGN_TABLE" in refusal("commits", "show", tmp_path)


def test_a_source_without_a_batch(of: Callable[..., Query]) -> None:
    of(Query())
    assert document("commits", "show", "/t")["partitions"] == []
    assert "flights" in text("commits", "show", "/t")
    assert text("commits", "gaps", "/t") == "no pending records\n"
    assert document("commits", "gaps", "/t") == []
    assert "fence" in text("commits", "history", "/t")


def test_history_is_as_long_as_asked_for(of: Callable[..., Query]) -> None:
    query = of(Query(1, 2, 0.02).run(150, 20))
    rows = document("commits", "history", "/t", "--limit", 100)
    assert [row["seq"] for row in rows] == list(range(151, 51, -1))
    moved = {row["seq"]: row["moved"] for row in rows}
    assert any(moved.values())
    for row in rows:
        for each in row["moved"]:
            assert each["from_offset"] < each["until_offset"]
    since = document("commits", "history", "/t", "--since", "135s")
    assert [row["seq"] for row in since] == [151, 150, 149, 148, 147]
    assert len(document("commits", "history", "/t", "--since", "2026-05-28T20:26:41Z")) == 20
    assert document("commits", "history", "/t", "--since", "1s") == []
    assert text("commits", "history", "/t", "--since", "1s") == "no commits\n"
    assert run("commits", "history", "/t", "--since", "yesterday").exit_code == 2
    assert sum(row["done"] for row in rows) > 1500
    assert query.table.known().seq == 151


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "a group must be named; /t holds a, b"),
        (("--group", "c"), "its sources are: s1 of group a, s21 of group b, s22 of group b"),
        (("--group", "b", "--source", "s2"), "source s2 is how several begin: s21, s22"),
        (("--source", "s9"), "holds no such source"),
    ],
)
def test_a_source_is_named_where_it_cannot_be_told(
    of: Callable[..., Query], arguments: tuple[str, ...], said: str
) -> None:
    of(Query(), (("a", "s1"), ("b", "s21"), ("b", "s22")))
    assert said in refusal("commits", "show", "/t", *arguments)


def test_the_last_source_of_a_group_is_meant(of: Callable[..., Query]) -> None:
    of(Query(1).run(1, 10), ((GROUP, "source-0"), (GROUP, SOURCE)))
    result = run("commits", "show", "/t", "--output", "json")
    assert read_document(result.stdout)["source_id"] == SOURCE
    assert "2 sources of the group wrote here; this is the last one" in result.stderr
    assert run("commits", "show", "/t", "--source", "source-1", "--output", "json").stderr == ""


def test_a_broker_is_asked_only_where_one_is_named(of: Callable[..., Query]) -> None:
    of(Query(1).run(1, 10))
    result = run("commits", "show", "/t", "--live")
    assert result.exit_code == 2
    assert "--bootstrap-servers" in result.stderr


def test_a_broker_is_asked_with_all_options_of_a_query(
    of: Callable[..., Query], monkeypatch: pytest.MonkeyPatch
) -> None:
    of(Query(1).run(1, 10))
    cluster = ScriptedCluster(17)
    cluster.topics = {"flights": TOPIC_ID}
    monkeypatch.setattr("keyrange.kafka.cluster.Cluster", lambda settings: cluster)
    servers = ("--live", "--bootstrap-servers", "h:1")
    own = [("--option", each) for each in ("verdictDirectory=/v", "subscribePattern=f.*")]
    [row] = document("commits", "show", "/t", *servers, *chain(*own))["partitions"]
    assert (row["log_end"], row["log_end_known_by"]) == (17, "now")


@pytest.mark.ordinary
def test_neither_spark_nor_a_client_of_kafka_is_needed(tmp_path: Path) -> None:
    query = Query(1, 2, 0.05).run(2, 50)
    path = str(tmp_path / "commits")
    table = open_commit_table(CommitOptions(table=path), SOURCE)
    for commit in query.table.store:
        table.append(commit)
    for command in ("show", "gaps", "history", "verify"):
        program = f"""
import sys
sys.modules["pyspark"] = sys.modules["kafka"] = None
sys.argv = ["keyrange", "commits", "{command}", {path!r}]
from keyrange.cli.main import main
main()
"""
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout


def test_a_terminal_without_blocks_gets_letters() -> None:
    assert marks_for("utf-8") == marks_for("UTF8") == BLOCKS
    assert marks_for("ascii") == marks_for(None) == ASCII
    state = PartitionState(
        "",
        60,
        (
            KeyRangeState(KeyRange(0, 9), 60, (PendingRecord(20, 5),)),
            KeyRangeState(KeyRange(9, HASH_MAX + 1), 40),
        ),
    )
    line, below = draw(state, 70, ASCII, width=56)
    assert line == "######O===================--------------------.........."
    assert below.split() == ["20", "60", "70"]
    assert below.index("20") == line.index("O")
    assert below.index("60") + 2 == line.index(".")


@pytest.mark.parametrize(("pending", "mark"), [(9, "○"), (10, "●"), (100, "●")])
def test_many_pending_records_look_like_many(pending: int, mark: str) -> None:
    found = tuple(PendingRecord(100 + at, at) for at in range(pending))
    state = PartitionState("", 200, (KeyRangeState(KeyRange(0, HASH_MAX + 1), 200, found),))
    assert draw(state, -1, BLOCKS, width=7)[0] == f"██████{mark}"


@pytest.mark.parametrize("position", [0, 5, 10**12])
@pytest.mark.parametrize("log_end", [-1, 0, 10**12, 2 * 10**12])
def test_a_line_of_any_partition_has_a_line(position: int, log_end: int) -> None:
    state = PartitionState("", position, (KeyRangeState(KeyRange(0, HASH_MAX + 1), position),))
    line, below = draw(state, log_end, BLOCKS)
    assert len(line) <= 76
    assert "○" not in line
    assert f"{position:,}" in below
