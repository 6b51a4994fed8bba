"""With what a report begins: the state by the rule of `keyrange watch`, and what to do."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import typer

from commands.command_words import leaves
from keyrange.cli.main import app
from keyrange.cli.report.document import query_state
from keyrange.cli.watch import observers as watch_sources
from keyrange.cli.watch.commands import Watcher
from keyrange.cli.watch.document import Seen
from keyrange.cli.watch.observers import Answer, Answers, Ends, ToldBatch, Where
from keyrange.cli.watch.reasons import Cause
from keyrange.cli.watch.view import facts, state_text
from keyrange.kafka.open_transactions import HeldBack
from keyrange.model.offsets import OffsetRange, TopicPartition
from keyrange.observing.model.query_progress import read_query_progress
from keyrange.report.page_parts import QueryState
from keyrange.storage.checkpoint_files import load_progress, open_directory
from samples.checkpoints import commit_batch, make_checkpoint, plan_batch
from samples.commit_samples import BATCH_MS, BEGAN_MS
from samples.progresses import FULL, progress, source
from samples.report_samples import BATCHES, Lake, alone, read_at
from samples.watch_samples import kinds

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
WHERE = Where(
    checkpoint="/lake/my checkpoints/orders",
    named={"kafka.bootstrap.servers": "broker:9092"},
    commits="/lake/orders_commits",
    members="/lake/orders_members",
)
LAST_MS = BEGAN_MS + BATCHES * BATCH_MS
OLDEST = {"offset": 50, "since": "2026-05-01T06:41:06.000+00:00", "age_ms": 7_200_000}
COMMITS: dict[str, Any] = {
    "seq": 9,
    "committed_at": None,
    "dead_letters": 0,
    "dead_timers": 0,
    "pending_by_error": kinds("KeyError", 3, 50),
    "partitions": [
        {"topic": "t", "partition": 0, "committed": 50, "pending": 3, "deliveries_max": 4}
        | {"oldest_pending": OLDEST}
    ],
}
DEAD = {
    **COMMITS,
    "dead_letters": 500,
    "pending_by_error": [],
    "partitions": [{**COMMITS["partitions"][0], "pending": 0, "oldest_pending": None}],
}
MEMBERS = {
    "epoch": 3,
    "members": [{"name": "e-1", "state": "ABSENT", "share": 0.25, "live": None}],
    "next": None,
}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Four batches of one topic, one every ten seconds, all of them done."""
    made = make_checkpoint(tmp_path / "cp")
    for batch in range(4):
        plan_batch(made, batch, BEGAN_MS + batch * BATCH_MS, {"0": 60 * (batch + 1), "1": 40})
        commit_batch(made, batch)
    return made


def state(home: Path, after_ms: int = 1_000, **known: Any) -> QueryState:
    """As of so long after the last batch was planned."""
    answers = Answers(Answer(load_progress(open_directory(str(home)))), **known)
    return query_state(WHERE, answers, Seen(), BEGAN_MS + 3 * BATCH_MS + after_ms)


def told(lag: int, **parts: Any) -> Answer[list[ToldBatch]]:
    end = {"0": 240, "1": 40}
    read = read_query_progress(progress(3, source(end, end | {"0": 240 + lag}, **parts)))
    assert read is not None
    return Answer([ToldBatch(read, BEGAN_MS + 3 * BATCH_MS + 500)])


def ends(of_first: int, *gone: TopicPartition, **more: Any) -> Answer[Ends]:
    return Answer(Ends({T0: of_first, T1: 40}, gone, **more))


@pytest.mark.ordinary
@pytest.mark.parametrize("minutes", [0, 25])
def test_a_report_says_what_watch_says(tmp_path: Path, minutes: int) -> None:
    lake = Lake(tmp_path)
    now_ms = LAST_MS + BATCH_MS + 4_000 + minutes * 60_000
    with (
        patch("keyrange.cli.watch.commands.now", lambda: now_ms),
        patch.object(watch_sources, "now", lambda: now_ms),
    ):
        document = Watcher(Where(**lake.places)).look(45.0)
    found = read_at(now_ms, **lake.places).state
    assert document["state"] == ("stuck" if minutes else "working")
    assert found.text == state_text(document)
    assert (found.causes, found.facts) == (document["why"], facts(document))
    assert len(document["why"]) == (3 if minutes else 2)
    assert document["why"][-1].endswith("given up, as dead letters")


def test_without_a_reason_it_says_how_far_the_query_is(home: Path) -> None:
    caught_up = state(home, broker=ends(240))
    assert (caught_up.text, caught_up.level) == ("caught up", "good")
    assert (caught_up.causes, caught_up.command) == (["nothing is left to read"], "")
    behind = state(home, broker=ends(300))
    assert (behind.text, behind.level) == ("working", "good")
    assert behind.causes == [
        "nothing holds it up; it is behind by 60 (now), all read in: not known yet"
    ]
    unknown = state(home)
    assert unknown.causes == ["batches come as usual; how far it is behind is not known"]
    assert unknown.command.startswith("keyrange watch '/lake/my checkpoints/orders' ")
    idle = state(home, after_ms=600_000)
    assert (idle.text, idle.level) == ("idle", "unknown")
    assert idle.causes == ["no batch was planned for 10 min, and the end of the log is not known"]


def test_a_lag_that_grows_is_no_reason_to_sit_still(home: Path) -> None:
    checkpoint = Answer(load_progress(open_directory(str(home))))

    def seen(*ends_seen: int) -> QueryState:
        """As of the last of looks that are a second apart."""
        earlier = Seen()
        for step, end in enumerate(ends_seen):
            now_ms = BEGAN_MS + 3 * BATCH_MS + 1_000 * step
            found = query_state(WHERE, Answers(checkpoint, broker=ends(end)), earlier, now_ms)
        return found

    grows = seen(300, 320, 340, 360)
    assert "the lag grows by 20/s" in grows.causes[0]
    assert grows.command == "keyrange ranges plan --bootstrap-servers broker:9092 --topic t"
    shrinks = seen(360, 340, 320, 300)
    assert (shrinks.advice, shrinks.command) == ("Nothing needs to be done: the lag shrinks.", "")


def test_a_cluster_that_does_not_answer_is_looked_at_first(home: Path) -> None:
    silent: Answer[Ends] = Answer(None, failure="[BROKER_UNREACHABLE] no")
    found = state(home, broker=silent)
    assert found.command == "keyrange doctor --bootstrap-servers broker:9092"
    assert (found.level, found.causes[-1]) == ("warning", "broker: [BROKER_UNREACHABLE] no")


HELD = {T0: HeldBack(OffsetRange(240, 300), 4711, 3, BEGAN_MS - 900_000)}
BY_CAUSE: dict[Cause, tuple[Callable[[], dict[str, Any]], str, str]] = {
    Cause.GUARD: (
        lambda: {"progress": told(0, volumes=FULL["volumes"])},
        "the volume guard lets in 50%",
        "keyrange volumes show --bootstrap-servers broker:9092 --option min.available.ratio=0.1",
    ),
    Cause.GONE: (
        lambda: {"broker": ends(240, T1)},
        "1 partition is not in the cluster any more: t-1",
        "keyrange doctor --bootstrap-servers broker:9092 --topic t",
    ),
    Cause.TRANSACTION: (
        lambda: {"broker": ends(240, held=HELD)},
        "t-0: 60 offsets from 240 on are held back from read_committed",
        "kafka-transactions.sh --bootstrap-server broker:9092 abort --topic t --partition 0 "
        "--start-offset 240",
    ),
    Cause.NO_BATCH: (
        lambda: {"broker": ends(300), "after_ms": 600_000},
        "no batch was planned for 10 min",
        "keyrange errors CONDITION",
    ),
    Cause.PENDING: (
        lambda: {"commits": Answer(COMMITS)},
        "3 records are not done, the oldest for 2 h 0 min",
        "keyrange commits gaps /lake/orders_commits --limit 5",
    ),
    Cause.DEAD: (
        lambda: {"commits": Answer(DEAD), "broker": ends(240)},
        "500 records are given up, as dead letters",
        "keyrange deadletters list /lake/orders_commits",
    ),
    Cause.MEMBERS: (
        lambda: {"members": Answer(MEMBERS)},
        "1 member is away, with 25% of the keys: e-1",
        "keyrange members list /lake/orders_members",
    ),
    Cause.LOST: (
        lambda: {"progress": told(0, losses=FULL["losses"])},
        "lost since batch 3: 4 offsets",
        "keyrange errors KAFKA_DATA_LOSS",
    ),
}


@pytest.mark.parametrize("cause", [each for each in Cause if each is not Cause.LATE_BATCH])
def test_each_cause_has_a_remedy_with_a_command(
    home: Path, cause: Cause, monkeypatch: pytest.MonkeyPatch
) -> None:
    known, said, command = BY_CAUSE[cause]
    found = state(home, **known())
    assert found.causes[0].startswith(said)
    assert found.level == ("bad" if cause is Cause.NO_BATCH else "warning")
    assert found.advice.endswith(".")
    assert found.command == command
    check_command(found.command, monkeypatch)


def test_dead_letters_stand_beside_what_is_pending(home: Path) -> None:
    found = dict(state(home, broker=ends(240), commits=Answer(DEAD)).facts)
    assert found["pending"] == "none pending, 500 dead letters"
    none = {**DEAD, "dead_letters": 0}
    assert dict(state(home, commits=Answer(none)).facts)["pending"] == "none pending"


def test_a_query_that_stands_still_with_pending_records_sends_to_these(home: Path) -> None:
    found = state(home, 600_000, broker=ends(300), commits=Answer(COMMITS))
    assert found.causes[0].startswith("no batch was planned for 10 min")
    assert found.command == "keyrange commits gaps /lake/orders_commits --limit 5"


def test_a_batch_that_hangs_sends_to_the_drivers_log(home: Path) -> None:
    (home / "commits" / "3").unlink()
    found = state(home, after_ms=600_000)
    assert found.text == "stuck since 2026-05-28 20:27:10 UTC"
    assert found.causes[0].startswith("batch 3 was planned 10 min ago and is not done")
    assert found.advice.startswith("Read the end of the driver's log")


def check_command(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command of keyrange is taken as it stands, up to where it would begin."""
    program, *given = shlex.split(line)
    if program != "keyrange":
        return
    called: list[str] = []
    command = typer.main.get_command(app)
    for words, leaf in leaves(command):
        monkeypatch.setattr(leaf, "callback", lambda words=words, **_: called.append(words))
    command.main(given, prog_name="keyrange", standalone_mode=False)
    assert len(called) == 1
    assert line.startswith(f"keyrange {called[0]}")


def test_the_guards_own_options_are_in_its_command(home: Path) -> None:
    named = {
        "kafka.admin.bootstrap.servers": "admin:9092",
        "Min.Available.Bytes": "5g",
        "kafka.admin.ssl.key.password": "hidden",
    }
    answers = Answers(Answer(load_progress(open_directory(str(home)))), volumes=Answer(FACTOR))
    found = query_state(Where("/cp", named), answers, Seen(), BEGAN_MS + 3 * BATCH_MS)
    assert found.causes == ["the volume guard lets in 0%: /a is full"]
    assert found.command == (
        "keyrange volumes show --bootstrap-servers admin:9092 --option min.available.bytes=5g"
    )


FACTOR = {"factor": {"value": 0.0, "why": "/a is full"}, "volumes": [], "failure": ""}


@pytest.mark.ordinary
def test_a_query_that_the_guard_holds_back_says_so_first(tmp_path: Path) -> None:
    held = range(BATCHES - 6, BATCHES)
    lake = Lake(tmp_path, fails=0, is_done=True, tail=9_000, held=held)
    found = read_at(LAST_MS + 600_000, **alone(lake)).state
    assert (found.level, found.causes[0][:31]) == ("bad", "the volume guard lets in 10%: b")
    assert found.causes[1].startswith("no batch was planned for 10 min")
