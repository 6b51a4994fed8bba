"""What becomes of a loss of records, whoever finds it: who plans, a task, or a consumer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from keyrange.errors import KeyrangeError, error

_GOES_ON: Final = "Going on with what is left."


def raise_or_warn(
    failure: KeyrangeError, raises: bool, warn: Callable[[str], object], then: str = _GOES_ON
) -> None:
    """Raise a loss, or with failOnDataLoss=false tell it to `warn`, and what happens `then`."""
    if raises:
        raise failure
    warn(f"{failure} {then}")


def recreated(topic: str, before: str, now: str) -> KeyrangeError:
    """That a topic has another id than before."""
    return error(
        "KAFKA_DATA_LOSS.TOPIC_RECREATED",
        f"some data may have been lost: topic {topic} was deleted and created anew, its id was "
        f"{before} and is {now}",
    )
