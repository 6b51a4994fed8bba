"""What holds with the tests' own schema registry holds with a real one, Apicurio."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from apicurio import apicurio
from registries.contract import RegistryContract
from registries.serializer_cases import SerializerCases


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with apicurio(tmp_path_factory.mktemp("apicurio")) as address:
        yield address


class TestContract(RegistryContract):
    pass


class TestSerializers(SerializerCases):
    has_guids = False
