"""Which jobs commit.isolation=transactional is not for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import IntegerType, LongType, StructField, StructType

import keyrange
from keyrange.errors import KeyrangeError
from keyrange.jobs.job_arguments import check_held
from keyrange.model.columns import PLACE
from keyrange.options import parse_options

N = StructField("n", LongType())
PLACES = StructType([*(StructField(name, LongType()) for name in PLACE), N])
PLAIN = StructType([N])


def options(home: Path) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": "h:1",
        "subscribe": "orders",
        "splitBy": "keyRange",
        "commitMode": "individual",
        "commitTable": str(home / "commits"),
        "commit.isolation": "transactional",
    }


def test_timers_of_a_state_of_several_topics_do_not_wait(tmp_path: Path) -> None:
    with pytest.raises(KeyrangeError, match=r"time, state\.topic and commit\.isolation=trans"):
        keyrange.job(
            options(tmp_path) | {"subscribe": "orders,payments", "state.topic": "orders"},
            lambda record, state: None,
            PLAIN,
            state={"n": keyrange.ValueState("n long")},
            time=keyrange.EventTime(),
            on_timer=lambda key, at, state: None,
        )


@pytest.mark.parametrize(
    ("schemas", "unplaced"),
    [
        ({"": PLAIN}, "the output"),
        ({"a": PLACES, "b": PLAIN}, "b"),
        ({"a": StructType([StructField("offset", IntegerType())])}, "a"),
    ],
)
def test_rows_of_batches_have_to_say_of_which_records_they_are(
    tmp_path: Path, schemas: dict[str, Any], unplaced: str
) -> None:
    parsed = parse_options(options(tmp_path), "stream")
    with pytest.raises(KeyrangeError, match=f"Not so {unplaced}$|Not so {unplaced}\\. "):
        check_held(parsed, schemas)
    check_held(parsed, {"": PLACES})
    immediate = options(tmp_path) | {"commit.isolation": "immediate"}
    check_held(parse_options(immediate, "stream"), schemas)
