"""What a run prints: a line for each thing that happens, and a table of faults at its end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from nemesis.checker import Finding
from nemesis.facts import End


@dataclass
class Result:
    """What became of a run."""

    mode: str
    seed: int
    seconds: float
    records: int = 0
    rows: int = 0
    dead_letters: int = 0
    # Rows of windows, and records without a row whose window is not over in the end.
    windows: int = 0
    open_records: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    missed: Counter[str] = field(default_factory=Counter)
    ends: Sequence[End] = ()
    findings: Sequence[Finding] = ()

    @property
    def is_good(self) -> bool:
        return not self.findings

    def document(self) -> dict[str, Any]:
        ends = Counter(end.why for end in self.ends)
        return {
            "schema": "keyrange.nemesis/1",
            "mode": self.mode,
            "seed": self.seed,
            "seconds": round(self.seconds, 1),
            "records": self.records,
            "rows": self.rows,
            "dead_letters": self.dead_letters,
            "windows": self.windows,
            "open_records": self.open_records,
            "faults": dict(sorted(self.faults.items())),
            "missed": dict(sorted(self.missed.items())),
            "ends": dict(sorted(ends.items())),
            "findings": [asdict(each) for each in self.findings],
        }

    def text(self) -> str:
        lines = [f"{'fault':<20} {'met':>5} {'nobody there':>13}"]
        for kind in sorted(self.faults.keys() | self.missed.keys()):
            lines.append(f"{kind:<20} {self.faults[kind]:>5} {self.missed[kind]:>13}")
        for why, count in sorted(Counter(end.why for end in self.ends).items()):
            lines.append(f"drivers that ended with {why}: {count}")
        lines.append(
            f"mode {self.mode}, seed {self.seed}, {self.seconds:.0f} s: {self.records:,} records, "
            f"{self.rows:,} rows, {self.dead_letters:,} dead letters"
        )
        if self.windows:
            lines.append(
                f"{self.windows:,} windows, {self.open_records:,} records of windows that stay open"
            )
        for finding in self.findings:
            lines.append(f"FOUND {finding.what}: {finding.count}")
            lines += [f"    {example}" for example in finding.examples]
        lines.append("nothing is wrong" if self.is_good else "something is wrong")
        return "\n".join(lines)
