"""`keyrange volumes guard` that stops itself between asking whether a change of rates would be
taken and making it: the worst moment to stand still. Arguments as for `keyrange`."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable

from keyrange.cli.main import main
from keyrange.guard import enforcer
from keyrange.guard.model.quota_entities import Alteration


class PausingStore(enforcer.QuotaStore):
    def alter(self, alterations: Iterable[Alteration], validate_only: bool) -> None:
        wanted = list(alterations)
        super().alter(wanted, validate_only)
        if validate_only and not all(each.entity.is_reserved for each in wanted):
            os.kill(os.getpid(), signal.SIGSTOP)


if __name__ == "__main__":
    enforcer.QuotaStore = PausingStore  # type: ignore[misc]
    main()
