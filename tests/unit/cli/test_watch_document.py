"""What `keyrange watch` makes of what its sources say, with made-up answers and times."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from keyrange.cli.watch.document import Seen
from keyrange.cli.watch.observers import Answer, Answers, Ends, ToldBatch
from keyrange.cli.watch.view import line
from keyrange.kafka.open_transactions import HeldBack
from keyrange.model.offsets import OffsetRange
from keyrange.observing.model.query_progress import read_query_progress
from keyrange.storage.checkpoint_files import load_progress, open_directory
from samples.checkpoints import commit_batch, make_checkpoint, plan_batch
from samples.progresses import FULL, KEPT, progress, source
from samples.watch_samples import BEGAN_MS, T0, T1, answers, at, kinds, look, told


def test_a_checkpoint_alone(tmp_path: Path) -> None:
    document = look(answers(tmp_path / "cp", 4, 3), at(3) + 2_000)
    assert document["batch"] == {
        "last_planned": 3,
        "last_committed": 2,
        "planned_not_committed": [3],
        "planned_at": "2025-06-15T15:07:10.000+00:00",
        "for_ms": 2_000,
        "done_at": None,
        "usual_ms": 10_000,
        "every_ms": 10_000,
    }
    assert (document["state"], document["why"]) == ("working", [])
    # Three batches of 100 in the 32 seconds since the first was planned.
    assert document["rate"]["over_ms"] == 32_000
    assert document["rate"]["offsets_per_s"] == pytest.approx(300 / 32, abs=0.1)
    assert (document["rate"]["records_per_s"], document["rate"]["bytes_per_s"]) == (None, None)
    assert document["lag"]["read"] is None
    assert [row["read_to"] for row in document["partitions"]] == [180, 120]


def test_a_rate_is_that_of_the_last_minute(tmp_path: Path) -> None:
    document = look(answers(tmp_path / "cp", 20, 20), at(19) + 5_000)
    # From batch 13 on, which was planned 65 seconds ago.
    assert document["rate"]["over_ms"] == 65_000
    assert document["rate"]["offsets_per_s"] == pytest.approx(700 / 65, abs=0.1)


def test_the_rate_of_short_batches_is_that_of_the_batches_that_are_known(tmp_path: Path) -> None:
    """Spark keeps a hundred batches, and of the oldest not where it began."""
    home = make_checkpoint(tmp_path / "cp")
    known = []
    for batch in range(50, 150):
        end = {"0": 60 * batch, "1": 40 * batch}
        plan_batch(home, batch, BEGAN_MS + batch * 100, end)
        commit_batch(home, batch)
        if batch >= 90:
            read = read_query_progress(progress(batch, source(end, end, records=100)))
            assert read is not None
            known.append(ToldBatch(read, BEGAN_MS + batch * 100 + 90))
    alone = Answers(Answer(load_progress(open_directory(str(home)))))
    now_ms = BEGAN_MS + 150 * 100
    rate = look(alone, now_ms)["rate"]
    assert (rate["offsets_per_s"], rate["over_ms"]) == (1_000, 9_900)
    rate = look(replace(alone, progress=Answer(known)), now_ms)["rate"]
    assert (rate["records_per_s"], rate["offsets_per_s"]) == (1_000, 1_000)
    assert rate["over_ms"] == 6_000


def test_a_progress_file_that_nobody_writes_any_more_says_nothing(tmp_path: Path) -> None:
    given = answers(tmp_path / "cp", 20, 20, progress=told(0, 0, 0, volumes={"throttleFactor": 0}))
    document = look(given, at(19) + 1_000)
    # Neither caught up nor at a standstill: that is what it was long ago.
    assert (document["lag"]["read"], document["state"]) == (None, "working")
    assert (document["rate"]["records_per_s"], document["throttle"]) == (None, None)
    assert document["rate"]["offsets_per_s"] > 9
    [failure] = document["failures"]
    assert failure["source"] == "progress"
    assert failure["text"].startswith("it ends with batch 2, and there were others since")


def test_what_came_after_a_quiet_hour_is_not_late_at_once(tmp_path: Path) -> None:
    given, seen = answers(tmp_path / "cp", 4, 4), Seen()
    hour = at(3) + 3_600_000
    quiet = replace(given, broker=Answer(Ends({T0: 240, T1: 160})))
    busy = replace(given, broker=Answer(Ends({T0: 245, T1: 160})))
    assert look(quiet, hour, seen)["state"] == "caught up"
    assert look(busy, hour + 2_000, seen)["state"] == "working"
    late = look(busy, hour + 62_000, seen)
    assert (late["state"], late["stuck_since"]) == ("stuck", late["batch"]["planned_at"])


def test_a_topic_that_has_grown_is_not_read_to_its_end(tmp_path: Path) -> None:
    """A query that was stopped meanwhile has no batch with the partitions that are new."""
    given = answers(tmp_path / "cp", 4, 4)
    new = T1._replace(partition=2)
    grown = replace(given, broker=Answer(Ends({T0: 240, T1: 160, new: 30})))
    document = look(grown, at(3) + 1_000)
    assert (document["state"], document["lag"]["read"]) == ("working", 30)
    assert document["partitions"][0] | {"read_to": 0, "log_end": 30} == document["partitions"][0]
    assert look(grown, at(3) + 3_600_000)["state"] == "stuck"
    assert "30" in line(document)


def test_a_broker_that_has_not_answered_yet_is_named(tmp_path: Path) -> None:
    silent: Answer[Ends] = Answer(None, waiting_ms=1_000)
    document = look(answers(tmp_path / "cp", 4, 4, broker=silent), at(4))
    assert [(each["source"], each["text"]) for each in document["failures"]] == [
        ("broker", "no answer yet")
    ]
    # It was asked: to name it is no advice.
    assert ", read lag not known, " in line(document)
    assert "read lag not known: --bootstrap-servers" in line(
        look(answers(tmp_path / "2", 4, 4), at(4))
    )


def test_a_driver_whose_clock_is_ahead_is_told(tmp_path: Path) -> None:
    """A batch that hangs would be as old as nothing until this clock has come so far."""
    given = answers(tmp_path / "cp", 4, 3)
    assert look(given, at(3) - 2_000)["failures"] == []
    [failure] = look(given, at(3) - 600_000)["failures"]
    assert failure["source"] == "checkpoint"
    assert failure["text"].startswith("batch 3 was planned 10 min from now: the clock of")


def test_a_listener_may_be_a_moment_late(tmp_path: Path) -> None:
    given = answers(tmp_path / "cp", 5, 4, progress=told(0, 0, 0))
    document = look(given, at(4) + 1_000)
    assert (document["lag"]["known_by"], document["failures"]) == ("batch", [])


def test_a_broker_says_where_it_ends_now(tmp_path: Path) -> None:
    given = answers(tmp_path / "cp", 4, 4, broker=Answer(Ends({T0: 300, T1: 160}, ())))
    seen = Seen()
    for step in range(4):
        document = look(given, at(3) + 1_000 * step, seen)
    assert document["lag"]["read"] == 60
    assert (document["lag"]["known_by"], document["lag"]["shrinks_per_s"]) == ("now", 0.0)
    assert document["lag"]["all_read_in_ms"] is None
    assert [(row["partition"], row["read_lag"]) for row in document["partitions"]] == [
        (0, 60),
        (1, 0),
    ]


def test_time_to_caught_up_by_what_was_seen(tmp_path: Path) -> None:
    given, seen = answers(tmp_path / "cp", 4, 4), Seen()
    for step, end in enumerate((400, 390, 380, 370)):
        document = look(
            replace(given, broker=Answer(Ends({T0: end, T1: 160}, ()))), at(4) + 1_000 * step, seen
        )
    assert document["lag"]["read"] == 130
    assert document["lag"]["all_read_in_ms"] == 13_000
    assert len(seen.lags) == 4


def test_an_old_answer_of_a_broker_is_not_seen_again(tmp_path: Path) -> None:
    old = Answer(Ends({T0: 300, T1: 160}), 40_000, "[BROKER_UNREACHABLE] no", 2_000)
    seen = Seen()
    document = look(answers(tmp_path / "cp", 4, 4, broker=old), at(3), seen)
    assert seen.lags == []
    assert (document["lag"]["read"], document["lag"]["age_ms"]) == (60, 40_000)
    assert document["failures"] == [
        {
            "source": "broker",
            "text": "[BROKER_UNREACHABLE] no",
            "waiting_ms": 2_000,
            "age_ms": 40_000,
        }
    ]


def test_the_progress_says_records_bytes_and_how_lag_went(tmp_path: Path) -> None:
    given = answers(tmp_path / "cp", 4, 4, progress=told(400, 300, 200, 100, plan=FULL["plan"]))
    document = look(given, at(3) + 1_500)
    assert document["name"] == "orders"
    assert document["rate"]["records_per_s"] == pytest.approx(4 * 90 / 31.5, abs=0.1)
    assert document["rate"]["bytes_per_s"] == pytest.approx(4 * 4_000_000 / 31.5, abs=0.1)
    assert (document["lag"]["read"], document["lag"]["known_by"]) == (100, "batch")
    assert document["lag"]["all_read_in_ms"] == 10_000
    assert document["batch"]["usual_ms"] == 1_500
    assert document["batch"]["done_at"] is not None


def held(written_ms: int, producer_id: int = 4711) -> Answer[Ends]:
    span = OffsetRange(100, 400)
    return Answer(Ends({T0: 100}, held={T0: HeldBack(span, producer_id, 3, written_ms)}))


def test_a_transaction_that_hangs_is_a_reason_and_one_that_writes_is_none(tmp_path: Path) -> None:
    now_ms, written_ms = at(0) + 15 * 60_000, at(0)
    given = answers(tmp_path / "cp", 1, 1, broker=held(written_ms))
    document = look(given, now_ms)
    [row] = [row for row in document["partitions"] if row["held_back"]]
    assert row["held_back"] == {
        "from_offset": 100,
        "until_offset": 400,
        "producer_id": 4711,
        "producer_epoch": 3,
        "written_at": "2025-06-15T15:06:40.000+00:00",
        "silent_ms": 900_000,
    }
    assert document["why"][0] == (
        "t-0: 300 offsets from 100 on are held back from read_committed by an open transaction "
        "of producer 4711 (epoch 3), which wrote last 15 min ago"
    )
    young = look(replace(given, broker=held(now_ms - 1_000)), now_ms)
    assert not [text for text in young["why"] if "transaction" in text]
    assert [row["held_back"]["silent_ms"] for row in young["partitions"][:1]] == [1_000]
    unknown = look(replace(given, broker=held(-1, -1)), now_ms)
    assert unknown["why"][0].endswith("from read_committed by an open transaction")


def test_what_was_lost_is_said_though_it_holds_nothing_up(tmp_path: Path) -> None:
    one = told(0, losses=FULL["losses"])
    document = look(answers(tmp_path / "cp", 1, 1, progress=one), at(0) + 2_000)
    assert document["why"] == ["lost since batch 0: 4 offsets: t-0 [3, 7)"]
    assert document["state"] == "caught up"


def test_without_lag_it_is_caught_up(tmp_path: Path) -> None:
    given = answers(tmp_path / "cp", 4, 4, progress=told(3, 2, 1, 0))
    document = look(given, at(3) + 30_000)
    assert (document["state"], document["why"]) == ("caught up", [])
    assert document["lag"]["all_read_in_ms"] == 0


def test_that_all_was_read_long_ago_does_not_say_that_it_is_now(tmp_path: Path) -> None:
    """The query may have ended since, and records have come."""
    given = answers(tmp_path / "cp", 4, 4, progress=told(3, 2, 1, 0))
    assert look(given, at(500))["state"] == "idle"
    # Nor does a broker that does not answer any more, whose ends the query has passed.
    for age_ms, state in ((5_000, "caught up"), (600_000, "working")):
        old = Answer(Ends({T0: 200, T1: 100}), age_ms, "[BROKER_UNREACHABLE] no")
        assert look(replace(given, broker=old), at(3) + 30_000)["state"] == state
    assert look(replace(given, broker=old), at(500))["state"] == "idle"


def test_a_batch_that_is_not_done_for_long_is_stuck(tmp_path: Path) -> None:
    given = answers(tmp_path / "cp", 4, 3, progress=told(400, 300, 200))
    assert look(given, at(3) + 50_000)["state"] == "working"
    document = look(given, at(3) + 600_000)
    assert (document["state"], document["stuck_since"]) == (
        "stuck",
        "2025-06-15T15:07:10.000+00:00",
    )
    assert document["why"] == [
        "batch 3 was planned 10 min ago and is not done, others took 1 s: a task that is "
        "slow, or a query that has ended"
    ]
    # That it once went down says nothing of when it will be done.
    assert document["lag"]["all_read_in_ms"] is None


def test_no_batch_while_there_is_something_to_read_is_stuck(tmp_path: Path) -> None:
    given = answers(tmp_path / "cp", 4, 4, broker=Answer(Ends({T0: 300, T1: 160})))
    assert look(given, at(3) + 49_000)["state"] == "working"
    document = look(given, at(3) + 200_000)
    assert document["state"] == "stuck"
    assert "no batch was planned for 3 min," in document["why"][0]


def test_a_query_of_one_batch_an_hour_is_not_stuck_after_minutes(tmp_path: Path) -> None:
    home = make_checkpoint(tmp_path / "cp")
    for batch in range(3):
        plan_batch(home, batch, BEGAN_MS + batch * 3_600_000, {"0": batch})
        commit_batch(home, batch)
    read = load_progress(open_directory(str(home)))
    given = Answers(Answer(read), told(3, 2, 1), broker=Answer(Ends({T0: 100})))
    assert look(given, BEGAN_MS + 2 * 3_600_000 + 1_800_000)["state"] == "working"


def test_a_checkpoint_that_is_gone_is_said_with_what_it_said_last(tmp_path: Path) -> None:
    given = answers(tmp_path / "cp", 4, 4)
    gone = replace(given.checkpoint, failure="[INVALID_CHECKPOINT_PATH] gone", age_ms=7_000)
    document = look(replace(given, checkpoint=gone), at(3))
    assert document["state"] == "unknown"
    assert [each["source"] for each in document["failures"]] == ["checkpoint"]
    assert document["batch"]["last_planned"] == 3


def test_why_names_guard_lost_partitions_pending_records_and_members(tmp_path: Path) -> None:
    commits = {
        "seq": 9,
        "committed_at": "2025-06-15T15:07:10.000+00:00",
        "dead_letters": 1_500,
        "dead_timers": 2,
        "pending_by_error": kinds("KeyError", 4, 50),
        "partitions": [
            {
                "topic": "t",
                "partition": 0,
                "committed": 50,
                "pending": 3,
                "deliveries_max": 4,
                "oldest_pending": {
                    "offset": 50,
                    "since": "2026-05-01T06:41:06.000+00:00",
                    "age_ms": 7_200_000,
                },
            },
            {
                "topic": "t",
                "partition": 1,
                "committed": 40,
                "pending": 1,
                "deliveries_max": 1,
                "oldest_pending": {
                    "offset": 40,
                    "since": "2026-05-01T06:41:06.000+00:00",
                    "age_ms": 60_000,
                },
            },
        ],
    }
    members = {
        "epoch": 3,
        "members": [
            {"name": "e-0", "state": "ASSIGNED", "share": 0.75, "live": None},
            {"name": "e-1", "state": "ABSENT", "share": 0.25, "live": None},
        ],
        "next": None,
    }
    given = answers(
        tmp_path / "cp",
        4,
        4,
        broker=Answer(Ends({T0: 240}, (T1,))),
        commits=Answer(commits),
        members=Answer(members),
        progress=told(0, volumes=FULL["volumes"]),
    )
    document = look(given, at(3))
    assert document["why"] == [
        "the volume guard lets in 50%: /a is full",
        "1 partition is not in the cluster any more: t-1",
        "4 records are not done, the oldest for 2 h 0 min: offset 50 of t-0",
        "1,500 records are given up, as dead letters",
        "2 timers are given up, as dead letters",
        "1 member is away, with 25% of the keys: e-1",
    ]
    assert document["throttle"]["known_by"] == "batch"
    assert document["members"]["there"] == 1
    assert document["commits"]["deliveries_max"] == 4
    assert document["commits"]["pending_by_error"] == kinds("KeyError", 4, 50)
    assert document["partitions"][0]["committed"] == 50
    gone = next(row for row in document["partitions"] if row["partition"] == 1)
    assert gone["gone"] is True


def test_the_state_of_keys_is_shown_where_a_query_keeps_some(tmp_path: Path) -> None:
    given = answers(tmp_path / "cp", 1, 1)

    def shown(observed: dict[str, Any] | None, **parts: Any) -> tuple[Any, str]:
        end = {"0": 60, "1": 40}
        read = read_query_progress(progress(0, source(end, end, **parts), observed=observed))
        assert read is not None
        told = Answer([ToldBatch(read, at(0) + 1_500)])
        document = look(replace(given, progress=told), at(0) + 2_000)
        return document["state_of_keys"], line(document)

    found, text = shown(KEPT, state=FULL["state"])
    assert (found["rows"], found["found"], found["written_bytes"]) == (400, 100, 9_000)
    size, done = "400 rows of state, 8.79 KiB, 3 runs", "100 of 400 keys found, 300 changed"
    assert f"{size}, last batch: {done}, 1.91 MiB restored in 0.2 s" in text
    assert "timers of 2 partitions wait for pending records" in text
    assert "timers of 1 partition wait for timers that failed" in text
    # A batch that was worked on before calls no function.
    found, text = shown(None, state=FULL["state"])
    assert (found["bytes"], found["changed"]) == (9_000, None)
    assert size in text
    assert "keys found" not in text
    found, text = shown({"keyrange": {"records": 1, "rows": 1, "files": 1, "bytes": 1}})
    assert (found, "runs" in text) == (None, False)
