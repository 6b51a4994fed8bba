"""Which functions the job for single records takes."""

from __future__ import annotations

from typing import Any

import pytest

import processing
from notebooks import load_job


@pytest.fixture(scope="module")
def job() -> Any:
    return load_job("process")


def test_a_function_is_found_by_its_module(job: Any) -> None:
    assert job.find_function("processing:work") is processing.work


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("nowhere:work", "No module named 'nowhere'"),
        ("processing:nothing", "no attribute 'nothing'"),
        ("processing:SCHEMA", "cannot be called"),
        ("", "--function"),
    ],
)
def test_what_is_none_is_refused_in_a_line(job: Any, function: str, said: str) -> None:
    with pytest.raises(SystemExit) as raised:
        job.find_function(function)
    text = str(raised.value)
    assert text.startswith(f"--function {function}: ")
    assert said in text
    assert "\n" not in text
