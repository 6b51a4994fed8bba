"""What is generated from the option table is what the repository ships."""

from __future__ import annotations

import re
from itertools import groupby
from pathlib import Path

import pytest

from commands import commanding
from keyrange.cli.option_reference import _cell, markdown, text, toml
from keyrange.options import OPTIONS, parse_options
from keyrange.options.kafka_properties import PROPERTIES
from keyrange.options.producer_properties import PRODUCER_PROPERTIES

# The producer's properties that are not about connections.
OWN = sum(PROPERTIES.get(name) is not row for name, row in PRODUCER_PROPERTIES.items())
ROOT = Path(__file__).parents[3]


def test_conf_is_the_option_table() -> None:
    """`keyrange options --output toml > conf/keyrange.toml` makes it anew."""
    assert (ROOT / "conf" / "keyrange.toml").read_text() == toml()


def test_the_page_of_options_is_the_option_tables() -> None:
    """`keyrange options --output markdown > OPTIONS.md` makes it anew."""
    assert (ROOT / "OPTIONS.md").read_text() == markdown()


def test_every_option_and_property_is_in_the_page_with_its_reason() -> None:
    page = markdown()
    for row in OPTIONS:
        assert f"| `{row.name}` |" in page
    for each in PROPERTIES.values():
        state = "refused" if each.refused else "ignored" if each.ignored else "used"
        reason = each.refused or each.ignored
        assert f"| `kafka.{each.name}` | {state} | {reason} |" in page.replace("\\", "")


def test_every_row_of_the_page_has_the_cells_of_its_table() -> None:
    cells = [len(re.split(r"(?<!\\)\|", line)) for line in markdown().splitlines() if "|" in line]
    tables = [(width, len([*each])) for width, each in groupby(cells)]
    [(of_options, options), (of_properties, properties)] = tables
    assert (of_options, of_properties) == (7, 5)
    assert (options, properties) == (len(OPTIONS) + 2 + 5 + 2, len(PROPERTIES) + 2 + OWN + 2)


def test_nothing_in_a_cell_is_markup() -> None:
    assert _cell("a|b, kafka.*, <id>") == "a\\|b, kafka.\\*, \\<id>"


def test_one_option_is_shown_by_its_name() -> None:
    shown = commanding.text("options", "MAXOFFSETSPERTRIGGER")
    assert shown.startswith("maxOffsetsPerTrigger  (stream")
    assert "Values: " in shown
    assert "minOffsetsPerTrigger  (" not in shown
    assert commanding.text("options", "kafka.group.id").startswith("kafka.group.id is used")
    guard = commanding.text("options", "kafka.admin.client.id")
    assert guard.startswith("kafka.client.id is used")
    refused = next(each for each in PROPERTIES.values() if each.refused)
    said = commanding.text("options", f"kafka.{refused.name}")
    assert " ".join(said.split()) == f"kafka.{refused.name} is refused: {refused.refused}"
    found = commanding.document("options", "columns")
    assert [row["name"] for row in found["options"]] == ["columns"]
    assert found["kafka"] == found["kafkaProducer"] == []


def test_what_both_have_is_shown_of_both() -> None:
    said = " ".join(commanding.text("options", "kafka.interceptor.classes").split())
    assert "transform in the query" in said
    assert "transform in the job" in said
    assert commanding.text("options", "IF.forgotten").startswith("if.forgotten  (consumer, ")
    found = commanding.document("options", "kafka.linger.ms")
    assert [row["state"] for row in found["kafkaProducer"]] == ["ignored"]


def test_a_setting_of_the_object_store_is_not_called_missing() -> None:
    said = commanding.run("options", "objectStore.aws_region")
    assert said.exit_code == 2
    assert "option 'objectStore.aws_region' is passed on to the object store" in said.output


@pytest.mark.parametrize("width", [40, 80, 120, 300])
def test_people_get_every_row_in_lines_that_fit(width: int) -> None:
    printed = text(width)
    of_source, _, of_kafka = printed.partition("Properties of Kafka's consumer")
    of_consumers, _, of_producers = of_kafka.partition("Properties of Kafka's producer")
    beside = ["gap.timeout.ms", "max.unacknowledged", "if.forgotten", "avroEncoding"]
    for name in (*(row.name for row in OPTIONS), *beside, "schemaRegistry.autoRegister"):
        assert name in of_source.split()
    for told, names in ((of_consumers, PROPERTIES), (of_producers, ["acks", "linger.ms"])):
        words = [word.rstrip(":") for word in told.split()]
        assert all(words.count(f"kafka.{name}") == 1 for name in names)
    assert max(len(line) for line in printed.splitlines() if len(line.split()) > 1) <= width
    longest = max(len(line) for line in printed.splitlines())
    assert longest <= 110


def test_defaults_in_the_reference_are_those_that_hold() -> None:
    given = {row.name: row.default for row in OPTIONS if row.default is not None}
    required = {"subscribe": "t", "kafka.bootstrap.servers": "h:1"}
    assert parse_options(required | given) == parse_options(required)
