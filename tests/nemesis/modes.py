"""The modes that are tried: which job, how it commits, whether its key ranges are pinned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

SESSION_MS: Final = 10_000


@dataclass(frozen=True, slots=True)
class Mode:
    """How a query runs.

    `job` is process, ingest or consumer; `writer` says who writes the table: spark, keyrange, which
    is of process, or tasks, of a `keyrange.job`, which may keep state for keys. `pin` is off,
    prefer or strict; `executors` local-cluster or standalone; `nodes` 1 or 3 brokers.

    `tables` are those that a job writes beside the first one: copies, with the rows of some
    records, and last, with the last row of each key, which spark or the driver `merges`. `values`
    are raw, json, or avro, whose schemas are in a registry and
    get fields while the job runs; with `evolves` its tables get them too. With `copies_topic` the
    copies go to a topic, or all rows where there is no `table`, as with consumers. The driver
    `sends` those of a job by itself, or tasks do, which it leaves to them where they are many
    bytes.

    `time` is of a job that goes by time: session, whose rows are those of the sessions of
    `keyrange.windows`, or timers, by which a function writes windows of its own among the rows of
    records; of event time, and with clock of processing time. `late` records are dead letters, or
    have rows that say so and are in no window.
    """

    name: str
    job: str = "process"
    writer: str = "spark"
    isolation: str = "immediate"
    pin: str = "off"
    executors: str = "local-cluster"
    nodes: int = 1
    keeps_state: bool = False
    tables: tuple[str, ...] = ()
    merges: str = "spark"
    values: str = "raw"
    evolves: bool = False
    time: str = "none"
    late: str = "deadLetter"
    table: bool = True
    copies_topic: bool = False
    sends: str = "driver"

    @property
    def has_state(self) -> bool:
        return self.keeps_state or self.time != "none"

    @property
    def has_rows(self) -> bool:
        """Whether each record has a row of its own."""
        return self.time != "session"

    @property
    def individual(self) -> bool:
        return self.job == "process"

    @property
    def pinned(self) -> bool:
        return self.pin != "off"

    def has(self, private: bool, store: str = "files") -> frozenset[str]:
        """What faults can need of it; `private` where the run has its own file systems, and
        `store` is what keeps its tables."""
        found = {"proxy"} if self.nodes == 1 else {"three"}
        found |= {"consumers"} if self.job == "consumer" else {"spark", "executors"}
        found |= {"hosts"} if self.executors == "standalone" else set()
        found |= {"members"} if self.pinned else set()
        found |= {"individual"} if self.individual else set()
        found |= {"private"} if private else set()
        found |= {"registry"} if self.values == "avro" else set()
        found |= {"senders"} if self.copies_topic else set()
        # Behind a clock that was ahead, windows by the clock are open for as long as it was.
        found |= {"any clock"} if self.time != "clock" else set()
        found |= {store}
        return frozenset(found)

    def options(self) -> dict[str, str]:
        """The options of the source that say so, without places."""
        found = {
            "splitBy": "keyRange",
            "maxOffsetsPerTrigger": "3000",
            "keyRangesPerPartition": "6",
            "parallelism": "2",
        }
        if self.job == "consumer":
            found = {"maxBatchRows": "200", "registration.timeout.ms": "1"}
            # Partitions that were added are looked for every 5 minutes otherwise.
            found |= {"kafka.metadata.max.age.ms": "10000"}
        if self.values != "raw":
            found |= {"valueFormat": self.values}
        if self.individual:
            found |= {
                "commit.isolation": self.isolation,
                "redelivery.backoff": "500ms",
                "redelivery.backoff.max": "2s",
                "maxDeliveries": "4",
            }
        if self.pinned or self.job == "consumer":
            found |= {
                "session.timeout.ms": str(SESSION_MS),
                "expansion.timeout.ms": "3000",
                "heartbeat.interval.ms": "1000",
            }
        if self.pinned:
            # Pieces of a slot's ranges end anywhere in the hash space.
            found |= {"splitsPerCore": "2"}
            found |= {"pin": self.pin, "pin.wait.ms": "1000", "memberNames": "static"}
            if self.has_state:
                found |= {"state.standby.replicas": "1"}
        return found


MODES: Final = {
    mode.name: mode
    for mode in (
        Mode("pinned", pin="prefer"),
        Mode("individual", nodes=3),
        Mode("into", writer="keyrange"),
        Mode("transactional", isolation="transactional"),
        Mode("pinned-transactional", pin="prefer", isolation="transactional"),
        Mode("pinned-into", writer="keyrange", pin="prefer"),
        Mode("pinned-standalone", pin="strict", executors="standalone", nodes=3),
        Mode("batch", job="ingest"),
        Mode("pinned-batch", job="ingest", pin="prefer", executors="standalone"),
        Mode("job", writer="tasks"),
        Mode("pinned-job", writer="tasks", pin="prefer"),
        Mode("batch-job", job="ingest", writer="tasks"),
        Mode("upsert-job", writer="tasks", tables=("last",)),
        Mode("tables-job", writer="tasks", tables=("copies", "last"), merges="driver"),
        Mode(
            "evolving-job", writer="tasks", tables=("copies", "last"), values="avro", evolves=True
        ),
        Mode("evolving-batch-job", job="ingest", writer="tasks", values="avro", evolves=True),
        Mode("topic-job", writer="tasks", copies_topic=True),
        Mode(
            "pinned-topic-job",
            writer="tasks",
            pin="prefer",
            nodes=3,
            copies_topic=True,
            sends="tasks",
        ),
        Mode(
            "only-topic-job",
            writer="tasks",
            nodes=3,
            table=False,
            copies_topic=True,
            sends="tasks",
        ),
        Mode(
            "held-topic-job",
            writer="tasks",
            isolation="transactional",
            copies_topic=True,
            sends="tasks",
        ),
        Mode(
            "held-tables-job",
            writer="tasks",
            isolation="transactional",
            tables=("copies", "last"),
            merges="driver",
        ),
        Mode("held-state-job", writer="tasks", isolation="transactional", keeps_state=True),
        Mode(
            "held-timers-job",
            writer="tasks",
            isolation="transactional",
            time="timers",
            copies_topic=True,
        ),
        Mode("state-job", writer="tasks", keeps_state=True),
        Mode("pinned-state-job", writer="tasks", pin="prefer", keeps_state=True),
        Mode("windows-job", writer="tasks", values="json", time="session"),
        Mode("pinned-windows-job", writer="tasks", pin="prefer", values="json", time="session"),
        Mode("timers-job", writer="tasks", time="timers"),
        Mode("pinned-timers-job", writer="tasks", pin="prefer", time="timers"),
        Mode("late-timers-job", writer="tasks", time="timers", late="deliver"),
        Mode("clock-job", writer="tasks", time="clock"),
        Mode("pinned-clock-job", writer="tasks", pin="prefer", time="clock"),
        Mode(
            "everything",
            writer="tasks",
            pin="prefer",
            executors="standalone",
            keeps_state=True,
            tables=("last",),
            merges="driver",
            values="avro",
            evolves=True,
            time="timers",
            copies_topic=True,
        ),
        Mode("consumer", job="consumer"),
        Mode("consumer-of-three", job="consumer", nodes=3),
        Mode("consumer-to-topic", job="consumer", table=False, copies_topic=True),
        Mode("consumer-of-three-to-topic", job="consumer", nodes=3, table=False, copies_topic=True),
    )
}

# Those whose tables keyrange writes, where they have any.
OF_ANY_STORE: Final = [
    mode.name for mode in MODES.values() if mode.writer != "spark" or mode.job == "consumer"
]


def mode_of(seed: int) -> Mode:
    """The mode of a seed where none is named: all of them take turns."""
    return list(MODES.values())[seed % len(MODES)]
