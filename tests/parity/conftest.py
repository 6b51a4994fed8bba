"""What the parity tests of a process share: the topics that scenarios read."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from keyrange.embedded import jars
from keyrange.embedded.broker import EmbeddedBroker
from keyrange.errors import KeyrangeError
from parity.stage import Stage


@pytest.fixture(scope="session")
def shared(spark: SparkSession, broker: EmbeddedBroker) -> Iterator[Stage]:
    """The topics that all scenarios read."""
    try:
        jars.resolve(jars.spark_kafka())
    except KeyrangeError as failure:
        pytest.skip(f"the jars of the JVM connector cannot be had: {failure}")
    stage = Stage(broker, spark)
    yield stage
    stage.close()
