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


@pytest.mark.parametrize("operator", [keyrange.deduplicate(), keyrange.last(by_time=True)])
def test_a_field_of_the_value_says_not_which_record_a_row_is_of(
    tmp_path: Path, operator: Any
) -> None:
    def job(columns: str, fields: str, isolation: str = "transactional") -> None:
        told = {"columns": columns, "valueFormat": "json", "valueSchema": fields}
        given = options(tmp_path) | told | {"commit.isolation": isolation}
        keyrange.job(given, operator, time=keyrange.EventTime())

    with pytest.raises(KeyrangeError, match="field offset of the value"):
        job("key,value", "offset long, text string")
    job("key,value", "offset long, text string", "immediate")
    job("key,value,offset", "text string")
