"""The options of `format("keyrange")`: texts in, one validated value out."""

from __future__ import annotations

from keyrange.options.key_ranges import KeyRangeOptions
from keyrange.options.map_in_arrow import MapInArrow
from keyrange.options.option import Mode, Option
from keyrange.options.parsing import check_names, parse_options
from keyrange.options.source import OPTIONS, SourceOptions

__all__ = [
    "OPTIONS",
    "KeyRangeOptions",
    "MapInArrow",
    "Mode",
    "Option",
    "SourceOptions",
    "check_names",
    "parse_options",
]
