"""What the driver makes of options about keys and values."""

from __future__ import annotations

import re

from keyrange.options import parse_options
from keyrange.values.forms import value_forms

ORDER = 'syntax = "proto3"; package shop; message Order { int64 id = 1; }'


def test_tasks_are_told_descriptors_and_need_no_compiler() -> None:
    given = {"kafka.bootstrap.servers": "h:9", "subscribe": "t", "valueFormat": "protobuf"}
    (form,) = value_forms(parse_options(given | {"valueSchema": ORDER})).columns
    assert re.fullmatch(r"[A-Za-z0-9+/=]+", form.schema.text)
