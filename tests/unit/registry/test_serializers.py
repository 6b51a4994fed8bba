"""What confluent-kafka's own serializers write, read through the tests' registry."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from registries.serializer_cases import SerializerCases
from registries.server import schema_registry


class TestSerializers(SerializerCases):
    @pytest.fixture
    def url(self) -> Iterator[str]:
        with schema_registry() as registry:
            yield registry.url
