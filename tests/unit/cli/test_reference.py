"""What is generated from the option table is what the repository ships."""

from __future__ import annotations

from pathlib import Path

from keyrange.cli.reference import markdown, toml
from keyrange.options import OPTIONS, parse_options

ROOT = Path(__file__).parents[3]


def test_conf_is_the_option_table() -> None:
    """`keyrange options --output toml > conf/keyrange.toml` makes it anew."""
    assert (ROOT / "conf" / "keyrange.toml").read_text() == toml()


def test_every_option_is_in_the_reference() -> None:
    text = markdown()
    for row in OPTIONS:
        assert f"| `{row.name}` |" in text


def test_defaults_in_the_reference_are_those_that_hold() -> None:
    given = {row.name: row.default for row in OPTIONS if row.default is not None}
    required = {"subscribe": "t", "kafka.bootstrap.servers": "h:1"}
    assert parse_options(required | given) == parse_options(required)
