"""What a job did with the state of keys and with time, in a few words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from keyrange.keyed_state.model.figures import StateFigures

# Figures of a job with time.
_OF_TIME: Final = (
    ("timers_fired", "timers fired"),
    ("timers_failed", "timers failed"),
    ("late", "records late"),
    ("ahead", "records ahead of the clock"),
)


def state_words(state: StateFigures | None) -> list[str]:
    """Nothing of a job that keeps none."""
    if state is None:
        return []
    words = [f"state of {state.changed:,} keys changed"]
    if state.restored_bytes:
        restored = f"{bytes_text(state.restored_bytes)} of it in {state.restored_ms / 1000:.2f} s"
        words.append(f"restored {restored}")
    return words + time_words(asdict(state))


def time_words(figures: Mapping[str, Any]) -> list[str]:
    """What a batch of a job with time did, by the names of `StateFigures`, where that is known and
    not nothing."""
    return [f"{n:,} {what}" for name, what in _OF_TIME if (n := figures.get(name))]


def bytes_text(count: float) -> str:
    return f"{count / 1e6:,.1f} MB" if count >= 1e6 else f"{count / 1e3:,.1f} kB"
