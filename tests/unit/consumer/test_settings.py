"""The options of the plain consumer."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from keyrange.consumer.settings import CONSUMER_OPTIONS, parse_consumer_options
from keyrange.errors import InvalidError
from keyrange.values.reading import type_of

LEAST = {"kafka.bootstrap.servers": "h:1", "commitTable": "/t"}


def test_the_defaults() -> None:
    settings = parse_consumer_options(LEAST | {"kafka.group.id": "g"})
    assert settings.source.commits.individual
    assert (settings.source.commits.group, settings.members.kafka_group) == ("g", "g.members")
    assert (settings.gap_timeout_ms, settings.members.warmup_timeout_ms) == (300_000, 300_000)
    assert settings.source.chosen_columns[-1] == "keyHash"


def test_names_are_not_case_sensitive() -> None:
    given = {"GAP.TIMEOUT.MS": "2s", "STARTINGOFFSETS": "earliest", "SPLITBY": "offset"}
    settings = parse_consumer_options(LEAST | given)
    assert settings.gap_timeout_ms == 2_000
    assert settings.by_offset


@pytest.mark.parametrize("split_by", ["keyRange", "partition", "offset"])
def test_records_are_placed_by_their_keys_or_by_their_offsets(split_by: str) -> None:
    settings = parse_consumer_options(LEAST | {"splitBy": split_by})
    assert settings.by_offset is (split_by == "offset")
    # How much of a partition is read is said by assign and subscribe.
    assert settings.source.key_ranges.split_by == "keyRange"


def test_every_option_has_a_default_that_is_valid_or_none() -> None:
    for row in CONSUMER_OPTIONS:
        if row.default is not None:
            row.parse(row.default)
    assert len({row.name.lower() for row in CONSUMER_OPTIONS}) == len(CONSUMER_OPTIONS)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"commitTable": ""}, "commitTable"),
        ({"subscribe": "t"}, "'subscribe' is not valid for keyrange.Consumer"),
        ({"maxOffsetsPerTrigger": "1"}, "is not valid for keyrange.Consumer"),
        ({"gap.timeout": "1"}, "did you mean 'gap.timeout.ms'"),
        ({"gap.timeout.ms": "soon"}, "'gap.timeout.ms' must be a time"),
        ({"commitMode": "batch"}, "'commitMode' must be individual"),
        ({"heartbeat.interval.ms": "20000"}, "must be at most a third of session.timeout.ms"),
        ({"kafka.auto.offset.reset": "earliest"}, "is not supported"),
        ({"memberNames": "some"}, "must be one of auto, static, dynamic"),
        ({"splitBy": "key"}, "'splitBy' must be one of partition, keyRange, offset"),
        ({"splitBy": "offset", "nullKeys": "first"}, "'nullKeys' must be spread"),
        ({"commit.isolation": "transactional"}, "'commit.isolation' must be immediate.*committed"),
        # No record can be asked: which topics there are is said later.
        ({"valueFormat": "debezium"}, "'valueSchema' must be given: .* before assign"),
        ({"keyFormat": "connect"}, "'keySchema' must be given: .* before assign"),
    ],
)
def test_what_cannot_be_is_named(given: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidError, match=said):
        parse_consumer_options(LEAST | given)


def test_schemas_may_be_in_files(tmp_path: Path) -> None:
    (tmp_path / "ddl").write_text("id bigint")
    given = {f"{side}Schema.location": str(tmp_path / "ddl") for side in ("key", "value")}
    formats = {"keyFormat": "json", "valueFormat": "connect"}
    forms = parse_consumer_options(LEAST | formats | given).source.forms
    assert [type_of(each) for each in forms.columns] == [pa.struct([("id", pa.int64())])] * 2


def test_all_that_is_wrong_is_said_at_once() -> None:
    wrong = {"subscribe": "t", "gap.timeout.ms": "x", "nullKeys": "y"}
    with pytest.raises(InvalidError) as raised:
        parse_consumer_options(LEAST | wrong)
    assert all(name in str(raised.value) for name in wrong)
