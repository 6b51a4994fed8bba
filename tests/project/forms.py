"""How much of a test runs. KEYRANGE_TEST_FORM says it: `fast` is the everyday loop, `ordinary` what
a change has to pass, `long` what ci/soak.sh runs over and over, with other examples each time, and
`platforms` what needs an S3 server, a KDC, a cluster manager or other versions (ci/soak.sh
platforms)."""

from __future__ import annotations

import os
from typing import Any, Final, TypeVar

import pytest

T = TypeVar("T")

FORM: Final = os.environ.get("KEYRANGE_TEST_FORM", "ordinary")
# The marks of what each form leaves to longer ones.
LONGER: Final = {
    "fast": {"ordinary", "slow", "platform"},
    "ordinary": {"slow", "platform"},
    "long": {"platform"},
    "platforms": set[str](),
}
# Random examples of a property.
EXAMPLES: Final = {"fast": 10, "ordinary": 20, "long": 2_000, "platforms": 50}


def by_form(fast: T, ordinary: T, long: T) -> T:
    """What a test takes in each form."""
    return {"fast": fast, "long": long}.get(FORM, ordinary)


def everyday(*values: object) -> list[Any]:
    """Of the values of a parameter the first one in the everyday loop, and all in longer forms."""
    first, *others = values
    return [first, *(pytest.param(each, marks=pytest.mark.ordinary) for each in others)]


def usually(*values: object) -> list[Any]:
    """The same of the ordinary run, and all in the long form."""
    first, *others = values
    return [first, *(pytest.param(each, marks=pytest.mark.slow) for each in others)]


def left_out() -> str:
    """What a run does not show, in one line."""
    fewer = f"of {EXAMPLES['long']} examples of each property all but {EXAMPLES[FORM]}"
    return {
        "fast": f"left out: what is marked ordinary or slow; of simulations most seeds; {fewer}",
        "ordinary": "left out: long forms, and products of modes and crash points (marked slow; "
        "bash ci/soak.sh runs them); other platforms (bash ci/soak.sh platforms); of simulations "
        f"most seeds; Spark's Python processes that import all by themselves; {fewer}",
        "long": "left out: other platforms (bash ci/soak.sh platforms)",
        "platforms": "left out: everything but tests/platforms",
    }[FORM]
