"""Tests on platforms that the ordinary run has not: ci/soak.sh platforms runs them."""

from __future__ import annotations

from pathlib import Path

import pytest

from forms import FORM

# They import what only ci/platforms.sh installs.
collect_ignore_glob = [] if FORM == "platforms" else ["test_*.py"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker("platform")
