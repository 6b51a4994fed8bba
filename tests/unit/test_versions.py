"""What is kept of the versions that have passed, and the row that is made of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from platforms import versions
from platforms.versions import SETUPS, USUAL, Setup

NEWER = Setup("newer", ["tests/unit"], {"Python": "3.9", "Java": "21"})
NEWEST = Setup("newest", ["tests/unit"], {"Python": "3.10"})


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(versions, "SETUPS", (NEWER, NEWEST))
    return tmp_path / "tested.json"


def test_what_has_passed_is_kept_in_the_order_of_the_list(kept: Path) -> None:
    versions.keep(NEWEST, 5, kept)
    versions.keep(NEWER, 3, kept)
    versions.keep(NEWER, 4, kept)
    assert [(each["name"], each["passed"]) for each in versions.read(kept)] == [
        ("newer", 4),
        ("newest", 5),
    ]
    assert list(versions.outdated(versions.read(kept))) == []


def test_what_is_no_longer_listed_is_forgotten(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    versions.keep(NEWER, 3, kept)
    monkeypatch.setattr(versions, "SETUPS", (NEWEST,))
    assert list(versions.outdated(versions.read(kept))) == ["newest"]
    versions.keep(NEWEST, 5, kept)
    assert [each["name"] for each in versions.read(kept)] == ["newest"]


def test_a_set_up_in_other_versions_has_to_pass_again(
    kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions.keep(NEWEST, 5, kept)
    changed = Setup("newest", ["tests/unit"], {"Python": "3.11"})
    monkeypatch.setattr(versions, "SETUPS", (changed,))
    assert list(versions.outdated(versions.read(kept))) == ["newest"]


def test_the_row_has_each_version_once_by_number(kept: Path) -> None:
    versions.keep(NEWER, 3, kept)
    versions.keep(NEWEST, 5, kept)
    assert versions.row(versions.read(kept)) == (
        "| tested | 3.9, 3.10 | 17, 21 | 4.2.0 | 4.4.0 | 1.6.6 | 4.3.1 |"
    )
    page = "| | a |\n| tested | old |\n| other |\n"
    assert versions.with_row(page, versions.read(kept)).splitlines() == [
        "| | a |",
        versions.row(versions.read(kept)),
        "| other |",
    ]
    with pytest.raises(ValueError, match="no row"):
        versions.with_row("nothing", [])


def test_nothing_has_passed_where_there_is_no_file(tmp_path: Path) -> None:
    assert versions.read(tmp_path / "none.json") == []


def test_each_set_up_has_a_name_of_its_own_and_columns_of_readme() -> None:
    assert len({setup.name for setup in SETUPS}) == len(SETUPS)
    assert all(setup.changed.keys() <= USUAL.keys() for setup in SETUPS)
