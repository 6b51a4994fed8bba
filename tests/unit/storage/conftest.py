"""The tables with numbered logs that tests of several files run on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tables.numbered_logs import SUBJECTS, Subject


@pytest.fixture(params=SUBJECTS, ids=lambda subject: subject.name)
def subject(request: pytest.FixtureRequest) -> Subject:
    return request.param


@pytest.fixture
def path(tmp_path: Path, subject: Subject) -> Path:
    """A table with three entries."""
    subject.fill(tmp_path / "table")
    return tmp_path / "table"
