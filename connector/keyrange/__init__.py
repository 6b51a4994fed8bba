"""keyrange: a Kafka source for Spark Structured Streaming, in Python."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from keyrange.delta.replaying import replay_dead_letters
    from keyrange.spark.lag import LagListener
    from keyrange.spark.source import KeyRangeDataSource

__all__ = ["KeyRangeDataSource", "LagListener", "__version__", "replay_dead_letters"]

try:
    __version__ = version("keyrange")
except PackageNotFoundError:
    __version__ = "0"


def __getattr__(name: str) -> Any:
    # Looked up when asked for, so that the parts that need no Spark work without it.
    if name == "KeyRangeDataSource":
        from keyrange.spark.source import KeyRangeDataSource

        return KeyRangeDataSource
    if name == "LagListener":
        from keyrange.spark.lag import LagListener

        return LagListener
    if name == "replay_dead_letters":
        from keyrange.delta.replaying import replay_dead_letters

        return replay_dead_letters
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
