"""keyrange only reads: writing, and tables of a catalog, are refused by name and with a remedy."""

from __future__ import annotations

import pytest
from pyspark.sql.types import StructType

from keyrange.errors import InvalidError
from keyrange.source.data_source import KeyRangeDataSource

SCHEMA = StructType().add("value", "string")
READING = {"kafka.bootstrap.servers": "h:9092", "subscribe": "t"}


@pytest.mark.parametrize("method", ["writer", "streamWriter"])
def test_writing_is_refused(method: str) -> None:
    """Whatever the options are, which are those of a writer."""
    source = KeyRangeDataSource({"topic": "t"})
    with pytest.raises(InvalidError) as failure:
        getattr(source, method)(SCHEMA, False)
    assert failure.value.condition.name == "READ_ONLY_SOURCE"
    assert "write to Kafka with keyrange.topic_writer" in str(failure.value)


@pytest.mark.parametrize("given", [{}, READING, {"option.subscribe": "t"}])
def test_a_table_of_a_catalog_is_refused_and_its_options_are_not_called_wrong(
    given: dict[str, str],
) -> None:
    source = KeyRangeDataSource(given | {"provider": "KeyRange", "owner": "somebody"})
    for ask in (source.schema, lambda: source.reader(SCHEMA), lambda: source.streamReader(SCHEMA)):
        with pytest.raises(InvalidError) as failure:
            ask()
        assert failure.value.condition.name == "READ_ONLY_SOURCE"
        assert "CREATE TEMPORARY VIEW name USING keyrange OPTIONS" in str(failure.value)


def test_what_reads_is_as_it_was() -> None:
    assert KeyRangeDataSource(READING).schema().names[:2] == ["key", "value"]
    with pytest.raises(InvalidError, match="option 'provider' does not exist"):
        KeyRangeDataSource(READING | {"provider": "somebody"}).schema()
