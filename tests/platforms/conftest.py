"""Tests on platforms that the ordinary run has not: ci/soak.sh platforms runs them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from forms import FORM
from platforms.s3_server import S3Server

# They import what only ci/platforms.sh installs.
collect_ignore_glob = [] if FORM == "platforms" else ["test_*.py"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker("platform")


@pytest.fixture(scope="module")
def s3_server() -> Iterator[S3Server]:
    """An S3 server of a module's own, which this process and those it starts find."""
    with S3Server() as server, pytest.MonkeyPatch.context() as patch:
        for name, value in server.environment.items():
            patch.setenv(name, value)
        yield server
