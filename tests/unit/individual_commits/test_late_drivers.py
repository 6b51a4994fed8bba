"""A driver that waits between its look for a successor and its write, until another has taken over
and gone on: what it writes then is refused, and nothing is there twice."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from deltalake import DeltaTable

from commands import commanding
from keyrange.errors import KeyrangeError
from keyrange.individual_commits.each_batch import EachBatch
from keyrange.individual_commits.verdict_store import VerdictStore
from queries.late_drivers import NOTHING, OF_COMMIT, OF_OUTPUT, Drivers

pytestmark = pytest.mark.ordinary


WHOLE_PRODUCT = [
    pytest.param(False, id="", marks=pytest.mark.slow),
    pytest.param(True, id="state"),
]


@pytest.fixture(params=WHOLE_PRODUCT)
def drivers(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Drivers:
    return Drivers(str(tmp_path), monkeypatch, request.param)


@pytest.fixture
def late(drivers: Drivers) -> EachBatch:
    return drivers.with_one_batch()


def refused(condition: str = "COMMITS_FENCED") -> Any:
    return pytest.raises(KeyrangeError, match=rf"\[{condition}\]")


@pytest.mark.parametrize("step", OF_OUTPUT)
def test_whole_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    Drivers(str(tmp_path), monkeypatch).check_whole(step)


@pytest.mark.parametrize("step", [*OF_OUTPUT, *OF_COMMIT])
def test_of_one_checkpoint(drivers: Drivers, late: EachBatch, step: str) -> None:
    drivers.before(step, lambda: drivers.go_on("old"))
    with refused():
        late(NOTHING, 1)
    drivers.check({"old": [0, 1, 2]})


@pytest.mark.parametrize("step", OF_OUTPUT)
def test_of_another_checkpoint(drivers: Drivers, late: EachBatch, step: str) -> None:
    """Each writes to the table by transactions of its own."""
    drivers.before(step, lambda: drivers.go_on("new"))
    with refused():
        late(NOTHING, 1)
    drivers.check({"old": [0], "new": [0, 1]})


@pytest.mark.parametrize("step", OF_COMMIT)
def test_of_another_checkpoint_behind_its_output(
    drivers: Drivers, late: EachBatch, step: str
) -> None:
    """Who takes over knows of the records only that they are not committed."""

    def take_over() -> None:
        with refused("UNCOMMITTED_OUTPUT"):
            drivers.go_on("new")

    drivers.before(step, take_over)
    with refused():
        late(NOTHING, 1)
    assert drivers.rows() == list(range(8))
    # What the condition advises.
    drivers.individual()(NOTHING, 1)
    drivers.plan(0, 8, "another")
    drivers.individual("another")(NOTHING, 0)
    drivers.check({"old": [0, 1], "new": [], "another": [0]})


@pytest.mark.parametrize("step", OF_OUTPUT)
def test_the_old_query_again_while_the_new_one_works_on_its_first_batch(
    drivers: Drivers, late: EachBatch, step: str
) -> None:
    """The new one has begun and committed nothing, so the old one may go on; the table has to hear
    of it."""
    drivers.plan(0, 4, "new")
    new, old = drivers.individual("new"), drivers.individual()
    drivers.meanwhile = lambda _: drivers.before(step, lambda: old(NOTHING, 1))
    with refused():
        new(NOTHING, 0)
    drivers.check({"old": [0, 1], "new": []})


def test_the_old_query_again_behind_the_output_of_the_new_one(
    drivers: Drivers, late: EachBatch
) -> None:
    """Only the new one can finish its batch, so it may come back."""

    def end() -> None:
        raise LookupError

    drivers.plan(0, 4, "new")
    drivers.before("commit", end)
    with pytest.raises(LookupError):
        drivers.individual("new")(NOTHING, 0)
    for _ in range(2):
        with refused("UNCOMMITTED_OUTPUT"):
            drivers.individual()(NOTHING, 1)
    assert drivers.rows() == list(range(8))
    drivers.individual("new")(NOTHING, 0)
    drivers.check({"old": [0], "new": [0]})


@pytest.mark.parametrize("is_lost", ["checkpoint", "verdicts"])
def test_where_what_finishes_a_batch_is_lost_its_rows_are_removed_by_hand(
    drivers: Drivers, late: EachBatch, is_lost: str
) -> None:
    """What the condition advises; the commits stand already where they are to go on."""

    def end() -> None:
        raise LookupError

    drivers.before("commit", end)
    with pytest.raises(LookupError):
        late(NOTHING, 1)
    drivers.plan(0, 4, "new")
    commits = f"{drivers.home}/commits"
    if is_lost == "verdicts":
        shutil.rmtree(f"{commits}_verdicts")
        with refused("UNCOMMITTED_OUTPUT"):
            drivers.individual()(NOTHING, 1)
    for _ in range(2):
        with refused("UNCOMMITTED_OUTPUT"):
            drivers.individual("new")(NOTHING, 0)
    assert drivers.rows() == list(range(8))
    DeltaTable(drivers.table).delete("at >= 4")
    said = ("--redo", "--to", 4, "--why", "its rows are gone", "--confirm")
    found = commanding.run("commits", "reset", commits, "--topic", "t", *said)
    assert found.exit_code == 0, found.output
    drivers.plan(0, 4, "another")
    drivers.individual("another")(NOTHING, 0)
    drivers.check({"old": [0], "another": [0]})


@pytest.mark.parametrize("drivers", [False, True], ids=["", "state"], indirect=True)
def test_while_who_takes_over_works(drivers: Drivers, late: EachBatch) -> None:
    """The table takes nothing from the other one any more, before any record is handed out."""
    waits, goes_on = Event(), Event()

    def wait() -> None:
        waits.set()
        assert goes_on.wait(60)

    def write_late() -> None:
        with refused():
            late(NOTHING, 1)

    drivers.before("append", wait)
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write_late)
        assert waits.wait(60)

        def meanwhile(checkpoint: str) -> None:
            if checkpoint == "new":
                goes_on.set()
                writing.result(60)

        drivers.meanwhile = meanwhile
        drivers.go_on("new")
    drivers.check({"old": [0], "new": [0, 1]})


def test_who_is_replaced_while_it_works_makes_no_verdict(drivers: Drivers, late: EachBatch) -> None:
    """The function may be another one by then, and what this one says of records would stand."""

    def end(_: str) -> None:
        raise LookupError

    def begin_another(_: str) -> None:
        drivers.meanwhile = end
        with pytest.raises(LookupError):
            drivers.individual()(NOTHING, 1)

    drivers.meanwhile = begin_another
    with refused():
        late(NOTHING, 1)
    verdicts = VerdictStore(late.options.commits.verdict_directory, "source-old")
    assert verdicts.manifest_of(1) is None
    drivers.meanwhile = lambda _: None
    drivers.individual()(NOTHING, 1)
    drivers.check({"old": [0, 1]})


def test_who_has_stopped_another_and_done_nothing_is_in_nobodys_way(
    drivers: Drivers, late: EachBatch
) -> None:
    """The old query goes on when it is started again, and the table takes what it writes."""

    def end(checkpoint: str) -> None:
        if checkpoint == "new":
            raise LookupError

    drivers.meanwhile = end
    with pytest.raises(LookupError):
        drivers.go_on("new")
    with refused():
        late(NOTHING, 1)
    drivers.individual()(NOTHING, 1)
    drivers.check({"old": [0, 1], "new": []})
