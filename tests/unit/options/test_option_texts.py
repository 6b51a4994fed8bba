"""What stands for the text of an option."""

from __future__ import annotations

from typing import Any

import pytest

from keyrange.errors import InvalidError
from keyrange.options import parse_options

REQUIRED: dict[str, Any] = {"subscribe": "t", "kafka.bootstrap.servers": "h:9092"}


def test_a_number_or_a_bool_stands_for_its_text() -> None:
    numbers = {"maxOffsetsPerTrigger": 10, "includeHeaders": True, "maxFailureRatio": 0.5}
    texts = {"maxOffsetsPerTrigger": "10", "includeHeaders": "true", "maxFailureRatio": "0.5"}
    mode = {"commitMode": "individual", "commitTable": "/t", "splitBy": "keyRange"}
    assert parse_options(REQUIRED | mode | numbers) == parse_options(REQUIRED | mode | texts)


def test_what_is_no_value_of_an_option_is_named() -> None:
    wrong: dict[str, Any] = {"maxOffsetsPerTrigger": None, "startingOffsets": {"t": {"0": 1}}}
    with pytest.raises(InvalidError) as caught:
        parse_options(REQUIRED | wrong)
    assert caught.value.message.split("; option ") == [
        "option 'maxOffsetsPerTrigger' must be a text, a number or a bool, and is None",
        "'startingOffsets' must be a text, a number or a bool, and is of type dict",
    ]
