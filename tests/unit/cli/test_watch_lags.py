"""How `keyrange watch` tells of lag, and of a query that does not move."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO
from pathlib import Path

from rich.console import Console

from keyrange.cli.watch.observers import Answer, Answers, Ends
from keyrange.cli.watch.view import line, screen
from keyrange.storage.checkpoint_files import load_progress, open_directory
from samples.checkpoints import commit_batch, make_checkpoint, plan_batch
from samples.watch_samples import T0, answers, at, individual, look, told


def test_with_pending_records_all_is_read_and_nobody_says_caught_up(tmp_path: Path) -> None:
    given = individual(tmp_path / "cp", committed=20, pending=3)
    document = look(given, at(0) + 1_000)
    assert (document["state"], document["commits"]["pending"]) == ("all read", 3)
    assert (document["lag"]["read"], document["lag"]["commit"]) == (0, 40)
    said = line(document)
    assert "read lag 0 (as of the last batch), commit lag 40, 3 pending: KeyError 3 (" in said
    assert "caught up" not in said
    # And a commit lag alone, of keys that have not got everything.
    document = look(individual(tmp_path / "late", committed=20, pending=0), at(0) + 1_000)
    assert (document["state"], document["lag"]["commit"]) == ("all read", 40)
    # By an end of the log that a leader tells which has not caught up.
    document = look(individual(tmp_path / "pending", committed=60, pending=1), at(0) + 1_000)
    assert (document["state"], document["lag"]["commit"]) == ("all read", 0)
    done = individual(tmp_path / "done", committed=60, pending=0)
    assert look(done, at(0) + 1_000)["state"] == "caught up"


def test_the_commit_lag_is_not_known_without_the_commit_table(tmp_path: Path) -> None:
    given = replace(individual(tmp_path / "cp", committed=60, pending=0), commits=Answer())
    document = look(given, at(0) + 1_000)
    assert (document["state"], document["lag"]["commit"]) == ("all read", None)
    assert [row["committed"] for row in document["partitions"]] == [None, None]
    assert "commit lag not known: --commits" in line(document)
    # A query that commits whole batches has committed what it has read.
    whole = look(answers(tmp_path / "2", 4, 4, broker=Answer(Ends({T0: 300}))), at(3))
    assert (whole["lag"]["read"], whole["lag"]["commit"]) == (60, 60)


def test_the_ends_of_a_query_that_commits_individually_stand_in_its_checkpoint(
    tmp_path: Path,
) -> None:
    home = make_checkpoint(tmp_path / "cp")
    plan_batch(home, 0, at(0), {"0": 60, "1": 40}, log_ends={"0": 75})
    commit_batch(home, 0)
    read = Answers(Answer(load_progress(open_directory(str(home)))))
    lag = look(read, at(0) + 7_000)["lag"]
    assert (lag["read"], lag["known_by"], lag["age_ms"]) == (15, "batch", 7_000)


def test_the_rate_of_a_query_that_stopped_is_none_and_says_since_when(tmp_path: Path) -> None:
    given = answers(tmp_path / "cp", 4, 4, progress=told(3, 2, 1, 0))
    assert look(given, at(3) + 40_000)["rate"]["not_moving_since"] is None
    document = look(given, at(3) + 3_600_000)
    done_at = "2025-06-15T15:07:11.500+00:00"
    assert document["rate"] == {
        "not_moving_since": done_at,
        "over_ms": 3_598_500,
        "offsets_per_s": 0,
        "records_per_s": 0,
        "bytes_per_s": 0,
    }
    assert "not moving since 2025-06-15 15:07:11 UTC" in line(document)
    # By the checkpoint alone it is known when the batch was planned.
    alone = look(replace(given, progress=Answer()), at(3) + 3_600_000)["rate"]
    assert (alone["not_moving_since"], alone["records_per_s"]) == (
        "2025-06-15T15:07:10.000+00:00",
        None,
    )
    # One that begins again after an hour moves.
    plan_batch(tmp_path / "cp", 4, at(3) + 3_600_000, {"0": 300, "1": 200})
    again = Answer(load_progress(open_directory(str(tmp_path / "cp"))))
    begun = look(replace(given, checkpoint=again), at(3) + 3_602_000)
    assert (begun["state"], begun["rate"]["not_moving_since"]) == ("working", None)


def test_the_partitions_of_watch_lose_columns_and_no_digit(tmp_path: Path) -> None:
    document = look(individual(tmp_path / "cp", committed=20, pending=3), at(0) + 1_000)
    big = {"read_to": 1_204_311_000, "committed": 1_204_300_000, "log_end": 1_204_399_000}
    big |= {"read_lag": 88_000, "commit_lag": 99_000}
    document["partitions"][0].update(big)

    def drawn(width: int) -> list[str]:
        console = Console(file=StringIO(), width=width, height=40)
        with console.capture() as captured:
            console.print(screen(console, document))
        return [line.rstrip() for line in captured.get().splitlines()]

    [head] = [line for line in drawn(100) if line.startswith("partition")]
    assert head.split("  ")[0] == "partition"
    assert [name for name in ("read to", "committed", "log end") if name not in head] == []
    lines = drawn(60)
    assert max(map(len, lines)) <= 60
    [head] = [line for line in lines if line.startswith("partition")]
    assert "read lag" in head
    assert "commit lag" in head
    [row] = [line for line in lines if line.startswith("t-0")]
    assert {"88,000", "99,000", "3"} <= set(row.split())
    assert not [line for line in lines if "…" in line]
