"""States in files and copies of them on hosts, with tasks of any cut that come to nothing, and
copies that are lost or damaged; and what is true."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa

from keyrange.keyed_state import cache
from keyrange.keyed_state.model.state_runs import StateRun, after_batch
from keyrange.keyed_state.sorted_blocks import Keys
from keyrange.keyed_state.states_of_task import PartitionRuns, StateSettings, TaskStates
from keyrange.keyed_state.variables import StateForm, ValueState, variables_of
from keyrange.model.key_ranges import SPACE, KeyRange, complement
from keyrange.model.offsets import TopicPartition

AT = TopicPartition("t", 0)
FORM = StateForm(variables_of({"n": ValueState("n long"), "soon": ValueState("n long", "1s")}))
KEYS = [b"k%d" % n for n in range(60)]


def hash_of(key: bytes) -> int:
    """Several keys have one hash, as forged ones may."""
    return (int(key[1:]) * 7 % 23) * (SPACE.size // 23)


class StateWorld:
    """A state directory, hosts with copies, and what is true: value and end of each key."""

    def __init__(self, home: Path, seed: int) -> None:
        self.home = home
        self.random = Random(seed)
        self.runs: list[StateRun] = []
        self.truth: dict[bytes, tuple[int | None, tuple[int, int] | None]] = {}
        self.seq, self.now_ms = 0, 1_000
        self.restored = 0

    def batch(self) -> None:
        random = self.random
        self.now_ms += random.choice([0, 300, 900])
        made, truth = [], dict(self.truth)
        borders = sorted({random.randrange(1, SPACE.size) for _ in range(random.randint(0, 3))})
        bounds = [0, *borders, SPACE.until_hash]
        counts = random.random() < 0.8
        for span in map(KeyRange, bounds[:-1], bounds[1:]):
            for is_last in [False] * (random.random() < 0.2) + [True]:
                # A first attempt may come to nothing.
                found, changed = self._task(span)
                if is_last:
                    made += found
                    truth |= changed
        if counts:
            self.seq += 1
            self.truth = truth
            self.runs = after_batch(self.runs, made, self.seq)
        self._harm()

    def _task(self, span: KeyRange) -> tuple[list[Any], dict[bytes, Any]]:
        random = self.random
        host = self.home / f"host{random.randint(0, 2)}" if random.random() < 0.8 else None
        settings = StateSettings(str(self.home / "state"), "source", self.seq, self.now_ms, host)
        states = TaskStates(FORM, settings)
        own = random.random() < 0.7
        changed: dict[bytes, Any] = {}
        for portion in self._portions(span):
            # What comes again may have any key, and a task has some of its own only.
            comes_again = random.random() < 0.4
            shared = tuple(complement(portion)) if comes_again else ()
            given = PartitionRuns(tuple(portion), tuple(self.runs), own, "p", shared)
            states.begin({AT: given})
            self._work(states, [span] if comes_again else portion, changed)
        made = [run for _, run in states.finish()]
        self.restored += states.figures.restored_bytes
        return made, changed

    def _portions(self, span: KeyRange) -> list[list[KeyRange]]:
        """The key ranges of each portion that a task reads; some have only what comes again."""
        random = self.random
        inside = range(span.from_hash + 1, span.until_hash)
        borders = sorted({random.choice(inside) for _ in range(random.choice([0, 0, 1, 3]))})
        bounds = [span.from_hash, *borders, span.until_hash]
        portions: list[list[KeyRange]] = [[] for _ in range(random.randint(1, 3))]
        for piece in map(KeyRange, bounds[:-1], bounds[1:]):
            random.choice(portions).append(piece)
        return portions

    def _work(self, states: TaskStates, spans: list[KeyRange], changed: dict[bytes, Any]) -> None:
        random = self.random
        for _ in range(random.randint(0, 3)):
            keys = [
                key
                for key in KEYS
                if any(span.contains(hash_of(key)) for span in spans) and random.random() < 0.4
            ]
            keys.sort(key=hash_of)
            if keys:
                wanted = Keys(np.array([*map(hash_of, keys)]), pa.array(keys, pa.binary()))
                rows = states.look_up(AT, wanted).to_pylist()
                assert [row["key"] for row in rows] == keys
                assert [self.read(row) for row in rows] == [
                    self.expected({**self.truth, **changed}.get(key)) for key in keys
                ]
                changed |= self._change(states, keys)

    def _change(self, states: TaskStates, keys: list[bytes]) -> dict[bytes, Any]:
        rows, changed = [], {}
        for key in keys:
            if self.random.random() < 0.3:
                continue
            n = self.random.choice([None, self.random.randrange(1000)])
            soon = self.random.choice([None, (self.random.randrange(9), self.now_ms + 1000)])
            changed[key] = (n, soon)
            value = None if n is None else {"n": n}
            row = {"key_hash": hash_of(key), "key": key, "n": value}
            if soon is not None:
                row |= {"soon": {"n": soon[0]}, "soon_expires_ms": soon[1]}
            rows.append(row)
        if rows:
            batch = pa.RecordBatch.from_pylist(rows, FORM.schema)
            states.change(AT, batch.take(pa.array(self.random.sample(range(len(rows)), len(rows)))))
        return changed

    def read(self, row: dict[str, Any]) -> tuple[Any, Any]:
        n, soon = row["n"], row["soon"]
        return (n and n["n"], soon and (soon["n"], row["soon_expires_ms"]))

    def expected(self, known: Any) -> tuple[Any, Any]:
        n, soon = known or (None, None)
        return n, soon if soon is not None and soon[1] > self.now_ms else None

    def _harm(self) -> None:
        copies = sorted(self.home.glob("host*/p/*.arrow"))
        if not copies or self.random.random() < 0.7:
            return
        harmed = self.random.choice(copies)
        cache._MAPPED.clear()
        if self.random.random() < 0.5:
            harmed.unlink()
        else:
            data = bytearray(harmed.read_bytes())
            data[self.random.randrange(len(data))] ^= 1 << self.random.randrange(8)
            harmed.unlink()
            harmed.write_bytes(data)
