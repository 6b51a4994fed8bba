"""What kinds of queries are simulated, and the options of each."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from random import Random

from keyrange.model.key_ranges import HASH_MAX

COMMITS, MEMBERS = "/simulated/commits", "/simulated/members"


@dataclass(frozen=True)
class Kind:
    """What is simulated. `loses`: records go before they are read, topics are created anew.
    `by_hand`: somebody resets commits and replays dead letters. `consumers`: a group of consumers,
    and no query; `by_offset`: they share records out by their offsets. `changes`: each run
    of the query has other options than the one before, also beside a batch that is not finished.
    `timed`: a job with state, event time and timers. `shared`: it reads two topics, whose keys
    share their state."""

    individual: bool = True
    pinned: bool = False
    pattern: bool = False
    budget: bool = False
    anew: bool = False
    clocks: bool = False
    loses: bool = False
    by_hand: bool = False
    consumers: bool = False
    by_offset: bool = False
    changes: bool = False
    timed: bool = False
    shared: bool = False


def choose(random: Random) -> Kind:
    individual = random.random() < 0.8
    loses = random.random() < 0.3
    return Kind(
        individual=individual,
        pinned=random.random() < 0.4,
        pattern=random.random() < 0.4,
        budget=individual and random.random() < 0.4,
        anew=individual and not loses and random.random() < 0.3,
        clocks=individual and random.random() < 0.3,
        loses=loses,
        by_hand=individual and random.random() < 0.3,
        changes=random.random() < 0.3,
    )


def changed(options: dict[str, str], random: Random) -> dict[str, str]:
    """Options of the same query, of which each run may have others."""
    cut = ("splitBy", "keyRangesPerPartition", "keyRanges", "bytesPerTask", "minPartitions")
    found = {name: value for name, value in options.items() if name not in cut}
    found["maxOffsetsPerTrigger"] = random.choice(["3", "15", "40", "1000"])
    found["maxBatchRows"] = random.choice(["1", "7", "1000"])
    found["bytesPerTask"] = random.choice(["0", "100", "1000000"])
    if options.get("commitMode") == "individual":
        found["max.num.ranges.to.commit"] = random.choice(["4", "10000"])
        found["maxDeliveries"] = random.choice(["2", "5"])
        # Refused by name while something is not done that rests on it.
        found["nullKeys"] = random.choice(["spread", "spread", "first"])
    how = "keyRange" if "pin" in options else random.choice(["partition", "keyRange", "keyRange"])
    if how == "partition":
        return found
    found["splitBy"] = how
    given = random.choice(["even", "auto", "named"])
    if given == "even":
        found["keyRangesPerPartition"] = str(random.choice([1, 2, 5, 16]))
    if given == "named" and "pin" not in options:
        at = random.randrange(1, HASH_MAX)
        found["keyRanges"] = json.dumps({"t": {"0": [[0, at - 1], [at, HASH_MAX]]}})
    return found


def options_of(kind: Kind, home: Path, random: Random) -> dict[str, str]:
    """The options of a query. What it keeps on disk is below `home`."""
    may_pass = kind.pattern or kind.loses
    found = {
        "kafka.bootstrap.servers": "b1:9092",
        "startingOffsets": "earliest",
        "splitBy": "keyRange",
        "keyRangesPerPartition": str(random.randint(1, 6)),
        "maxOffsetsPerTrigger": random.choice(["15", "40", "1000"]),
        "kafka.retry.backoff.ms": "10",
        "kafka.retry.backoff.max.ms": "100",
        "maxBatchRows": "1000",
        "failOnDataLoss": random.choice(["true", "false"]) if may_pass else "true",
    }
    found["subscribePattern" if kind.pattern else "subscribe"] = "t.*" if kind.pattern else "t"
    if kind.individual:
        found |= {
            "commitMode": "individual",
            "commitTable": COMMITS,
            "commitTable.onFreshStart": "resume",
            "verdictDirectory": str(home / "verdicts"),
            "redelivery.backoff": random.choice(["1ms", "5s"]),
            "redelivery.backoff.max": "20s",
            "maxDeliveries": random.choice(["2", "5"]),
            "max.num.ranges.to.commit": random.choice(["4", "10000"]),
        }
    if kind.timed:
        found["stateDirectory"] = str(home / "state")
        found["slot.directory"] = str(home / "slots")
    if kind.shared:
        found |= {"subscribe": "t,a", "state.topic": "t"}
    if kind.budget:
        found["batch.time.budget"] = random.choice(["500ms", "3s"])
    if kind.pinned:
        found |= {
            "pin": "prefer",
            "memberTable": MEMBERS,
            "pin.driver.host": "driver",
            "pin.wait.ms": "500",
            "splitsPerCore": random.choice(["1", "2", "3"]),
            "expansion.timeout.ms": "3000",
            "registration.timeout.ms": "20000",
            "session.timeout.ms": "10000",
            "slot.directory": str(home / "slots"),
            "memberNames": "dynamic",
        }
    return found
