"""A driver that waits between its look for a successor and its write to S3, until another one has
taken over: what it writes then is refused, and nothing is there twice."""

from __future__ import annotations

from typing import Any

import pytest

from keyrange.errors import KeyrangeError
from queries.late_drivers import NOTHING, OF_COMMIT, OF_OUTPUT, Drivers
from tables.numbered_logs import SUBJECTS, Subject
from tables.racing_writers import check_late_append

pytestmark = pytest.mark.usefixtures("s3")


@pytest.fixture
def home(request: pytest.FixtureRequest) -> str:
    """A place of its own in the bucket."""
    name = "".join(each if each.isalnum() else "-" for each in request.node.name)
    return f"s3://lake/late-{name}"


def fenced() -> Any:
    return pytest.raises(KeyrangeError, match=r"\[COMMITS_FENCED\]")


@pytest.mark.parametrize("step", OF_OUTPUT)
def test_whole_batches(home: str, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """Its manifest stands over that of the other one, and the table's transaction decides."""
    Drivers(home, monkeypatch).check_whole(step)


@pytest.mark.parametrize(
    ("step", "checkpoint"),
    [*((step, "old") for step in (*OF_OUTPUT, *OF_COMMIT)), *((step, "new") for step in OF_OUTPUT)],
)
def test_individual_commits_and_state(
    home: str, monkeypatch: pytest.MonkeyPatch, step: str, checkpoint: str
) -> None:
    drivers = Drivers(home, monkeypatch, keeps_state=True)
    late = drivers.with_one_batch()
    drivers.before(step, lambda: drivers.go_on(checkpoint))
    with fenced():
        late(NOTHING, 1)
    committed = {"old": [0, 1, 2]} if checkpoint == "old" else {"old": [0], "new": [0, 1]}
    drivers.check(committed)


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.name)
def test_an_entry_of_a_numbered_log(
    home: str, monkeypatch: pytest.MonkeyPatch, subject: Subject
) -> None:
    subject.fill(home)
    check_late_append(subject, home, monkeypatch)
