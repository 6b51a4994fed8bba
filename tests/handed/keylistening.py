"""A listener for option keyRangeListener. Tests hand this file to Spark, so that executors import
it; what it was told it writes into the slot's directory."""

from __future__ import annotations

import json
from typing import Any

import keyrange
from keyrange import KeyRangeListener


class Writing(KeyRangeListener):
    def on_key_ranges_assigned(self, ranges: Any) -> None:
        self._write("assigned", ranges)

    def on_key_ranges_revoked(self, ranges: Any) -> None:
        self._write("revoked", ranges)

    def on_key_ranges_lost(self, ranges: Any) -> None:
        self._write("lost", ranges)

    def _write(self, what: str, ranges: Any) -> None:
        slot = keyrange.slot()
        told = {str(p): sum(span.size for span in spans) for p, spans in ranges.items()}
        line = {"what": what, "slot": slot.name, "epoch": slot.epoch, "ranges": told}
        # Beside the directories of all slots: one file for a test.
        with (slot.directory.parent.parent / "told").open("a") as file:
            file.write(json.dumps(line) + "\n")
