"""What brokers that were asked in vain have said, over all tries of one question."""

from __future__ import annotations

import logging
from typing import Final

from keyrange.errors import KeyrangeError, error
from keyrange.kafka.retry_deadline import Deadline

_log = logging.getLogger(__name__)

# Without these a login does not get as far as a broker.
_BEFORE_BROKERS: Final = frozenset(("KDC_UNREACHABLE", "TOKEN_ENDPOINT_UNREACHABLE"))
# Metadata may name any number of hosts, by names of any length.
_SHOWN_MAX: Final = 8
_CHARACTERS_MAX: Final = 500


class FailedTries:
    """Of all rounds: the last may have had no time to learn more than that time was up."""

    def __init__(self) -> None:
        self._reasons: dict[str, None] = {}
        self._round: list[str] = []
        self._conditions: set[str] = set()
        self._said: list[str] = []
        self._absent = ""

    def add(self, failure: KeyrangeError) -> None:
        self._round.append(failure.message[:_CHARACTERS_MAX])
        self._conditions.add(failure.condition.name)

    def end_round(self, deadline: Deadline, bootstrap: str) -> None:
        """Every broker was asked. Raises BROKER_UNREACHABLE, or what a login needs before a broker,
        where the deadline has passed."""
        self._reasons |= dict.fromkeys(self._round)
        found = self._conditions.pop() if len(self._conditions) == 1 else ""
        if found in _BEFORE_BROKERS or not deadline.passed:
            self._absent = found
        if deadline.passed:
            # What is away need not be a broker, and then another remedy helps.
            raise error(
                self._absent if self._absent in _BEFORE_BROKERS else "BROKER_UNREACHABLE",
                f"no broker answered: {_shown([*self._reasons])}",
                bootstrap_servers=bootstrap,
            )
        if self._round != self._said:
            _log.warning("no broker answered, trying again: %s", _shown(self._round))
        self._said, self._round, self._conditions = self._round, [], set()


def _shown(reasons: list[str]) -> str:
    more = len(reasons) - _SHOWN_MAX
    return "; ".join(reasons[:_SHOWN_MAX]) + (f"; and {more} more" if more > 0 else "")
