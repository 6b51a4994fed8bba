"""Where the rate is from at which throttling begins."""

from __future__ import annotations

import math
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from keyrange.errors import InvalidError, KeyrangeError
from keyrange.guard import entry_points
from keyrange.guard.enforcer import settings_of
from keyrange.guard.quota_sources import base_rate
from keyrange.options.volume_checks import VolumeOptions


def rate(**options: Any) -> int:
    return base_rate(VolumeOptions(**options))


def test_a_rate_is_from_an_option_or_a_file(tmp_path: Path) -> None:
    assert rate(base_rate=5_000) == 5_000
    path = tmp_path / "rate"
    path.write_text(" 123456\n")
    assert rate(quota_source="file", quota_file=str(path)) == 123_456


@pytest.mark.parametrize("text", ["", "0", "-5", "1.5", "1e6", "9" * 30])
def test_what_is_no_rate_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "rate"
    path.write_text(text)
    with pytest.raises(KeyrangeError, match=r"QUOTA_UNREADABLE.*holds no rate"):
        rate(quota_source="file", quota_file=str(path))
    path.unlink()
    with pytest.raises(KeyrangeError, match=r"QUOTA_UNREADABLE.*No such file"):
        rate(quota_source="file", quota_file=str(path))


class OfOthers:
    def base_rate(self) -> int:
        return 77


def test_others_bring_sources_by_entry_points(monkeypatch: pytest.MonkeyPatch) -> None:
    def named(group: str) -> list[EntryPoint]:
        assert group == "keyrange.quota_sources"
        return [EntryPoint("theirs", "theirs:Source", group)]

    monkeypatch.setattr(entry_points, "entry_points", named)
    monkeypatch.setattr(EntryPoint, "load", lambda self: lambda options: OfOthers())
    assert rate(quota_source="theirs") == 77
    with pytest.raises(InvalidError, match="one of file, static, theirs"):
        rate(quota_source="nobodys")


@pytest.mark.parametrize("said", [0, -1, math.nan, 2**60, "7", None, ZeroDivisionError("by zero")])
def test_what_others_say_that_is_no_rate_is_named(
    monkeypatch: pytest.MonkeyPatch, said: object
) -> None:
    class Theirs:
        def base_rate(self) -> object:
            if isinstance(said, Exception):
                raise said
            return said

    monkeypatch.setattr(
        entry_points, "entry_points", lambda group: [EntryPoint("theirs", "theirs:Source", group)]
    )
    monkeypatch.setattr(EntryPoint, "load", lambda self: lambda options: Theirs())
    with pytest.raises(KeyrangeError, match=r"QUOTA_UNREADABLE.*theirs did not say a rate"):
        base_rate(VolumeOptions(quota_source="theirs"))


def test_no_rate_begins_below_the_floor() -> None:
    options = VolumeOptions(mute_ms=22_000, connections=11, request_bytes=1_000_000)
    settings = settings_of(options, 5_000, stamp=9, chance=7)
    # What is left of the time beside a window's 11 s.
    assert settings.floor == 1_000_000
    assert settings.base == settings.floor
    assert settings_of(options, 5_000_000, stamp=9, chance=7).base == 5_000_000
    assert settings.dry_run
    assert settings.release_ms == options.interval_ms
