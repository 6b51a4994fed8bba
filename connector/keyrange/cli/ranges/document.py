"""What `keyrange ranges` prints: a plan as plain values; and where a key is at home: the member
that owns its key range, and the directory in which hosts keep copies of its state.

Rule of this file: it reads the tables of a query; no Spark and no broker.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from keyrange.cli.commits.commit_source import open_commits
from keyrange.cli.render import print_record
from keyrange.cli.source_options import folded
from keyrange.cli.values import shown
from keyrange.keyed_state.model.state_runs import clipped
from keyrange.model.key_ranges import KeyRange, merge, write_ranges
from keyrange.model.offset_splits import Split
from keyrange.model.offsets import TopicPartition
from keyrange.ranges.model.plan_figures import fetched_bytes, fetched_once

if TYPE_CHECKING:
    from keyrange.ranges.model.range_plan import RangeEstimate
    from keyrange.source.planning import Ranges, Sizes


@dataclass(frozen=True, slots=True)
class RangesPlan:
    """The tasks of a batch, and what they were planned from.

    `cells` are the key ranges, none where partitions are not split by key; `samples` says how many
    records of a partition were looked at.
    """

    tasks: Sequence[Sequence[Split]]
    cells: Sequence[RangeEstimate]
    ranges: Ranges
    bytes_per_offset: Sizes
    samples: dict[TopicPartition, int]

    def size(self, partition: TopicPartition) -> float:
        """The bytes of log that are to be read of a partition."""
        return self.ranges[partition].size * self.bytes_per_offset[partition]

    def readers(self, partition: TopicPartition, span: KeyRange | None = None) -> Iterator[int]:
        """The tasks that read a partition, or one key range of it."""
        for number, splits in enumerate(self.tasks):
            of_partition = (each for each in splits if each.topic_partition == partition)
            if any(span is None or _reads(each, span) for each in of_partition):
                yield number


def _reads(split: Split, span: KeyRange) -> bool:
    placement = split.placement
    return placement is None or any(own.contains(span.from_hash) for own in placement.ranges())


def document(plan: RangesPlan, split_by: str, cores: int) -> dict[str, Any]:
    """The document that `--output json` prints; the tables show the same."""
    total = sum(plan.size(partition) for partition in plan.ranges)
    splits = [split for splits in plan.tasks for split in splits]
    return {
        "split_by": split_by,
        "parallelism": cores,
        "offsets": sum(span.size for span in plan.ranges.values()),
        "bytes": round(total),
        "read_amplification": {
            "one_executor": _ratio(plan, fetched_once(splits), total),
            "without_sharing": _ratio(plan, splits, total),
        },
        "partitions": [_partition(plan, partition) for partition in sorted(plan.ranges)],
        "tasks": [
            {
                "task": number,
                "bytes": sum(split.bytes_estimate for split in splits),
                "splits": list(map(_split, splits)),
            }
            for number, splits in enumerate(plan.tasks)
        ],
    }


def _ratio(plan: RangesPlan, fetched: Sequence[Split], total: float) -> float:
    return round(fetched_bytes(fetched, plan.bytes_per_offset) / total, 2) if total else 1.0


def _partition(plan: RangesPlan, partition: TopicPartition) -> dict[str, Any]:
    span = plan.ranges[partition]
    cells = [cell for cell in plan.cells if cell.partition == partition]
    return {
        **partition._asdict(),
        "from_offset": span.from_offset,
        "until_offset": span.until_offset,
        "bytes": round(plan.size(partition)),
        "sampled_records": plan.samples.get(partition, 0),
        "tasks": list(plan.readers(partition)),
        "ranges": [
            {
                "index": number,
                "range": write_ranges([cell.span])[0],
                "records": round(cell.bytes / plan.bytes_per_offset[partition]),
                "bytes": round(cell.bytes),
                "hot": cell.hot,
                "task": next(plan.readers(partition, cell.span)),
            }
            for number, cell in enumerate(cells)
        ],
    }


def _split(split: Split) -> dict[str, Any]:
    placement = split.placement
    return {
        **split.topic_partition._asdict(),
        "from_offset": split.from_offset,
        "until_offset": split.until_offset,
        # None where all keys are read.
        "ranges": write_ranges(merge(placement.ranges())) if placement else None,
        "bytes": split.bytes_estimate,
    }


_SLOTS: Final = "slot.directory"
_STATE_TOPIC: Final = "state.topic"
_GROUP: Final = "commitgroup"


def home_topic(topic: str, named: Mapping[str, str], commits: str) -> str:
    """The topic whose partitions are owned for a topic's: of topics that share the state of their
    keys the one of option state.topic, by the options or the query's commit table; else itself."""
    given = folded(named)
    if found := given.get(_STATE_TOPIC, ""):
        return found
    if not commits:
        return topic
    known = open_commits(commits, given.get(_GROUP, ""), "", named).table.known()
    return known.scope.topic or topic


def state_copies(
    path: str, named: Mapping[str, str], topic: str, found: Mapping[str, Any]
) -> str | None:
    """The directory in which hosts keep copies of the state at a key's place. None where no state
    is there, and without slot.directory, as executors then choose a directory by themselves."""
    from keyrange.keyed_state.cache import copies_of, place_of
    from keyrange.members.slot_directories import slots_directory

    given = folded(named)
    commits = open_commits(path, given.get(_GROUP, ""), "", named)
    slots, place = given.get(_SLOTS, ""), found["hash"]
    if not slots or found["partition"] is None:
        return None
    partition, known = TopicPartition(topic, found["partition"]), commits.table.known()
    if not clipped(known.runs_of(partition, ""), KeyRange(place, place + 1)):
        return None
    of_source = copies_of(slots_directory(slots), commits.source_id)
    return str(of_source / place_of(known.states[partition].topic_id, partition))


def served_at(key: str, host: str | None, port: int) -> str | None:
    """Where `keyrange state serve` of a host has the state of a key, as its text is given; None
    where nobody owns the key."""
    if not host:
        return None
    name = f"[{host}]" if ":" in host else host
    return f"http://{name}:{port}/keys/{quote(key, safe='', errors='surrogateescape')}"


def show_owner(content: bytes | None, found: Mapping[str, Any]) -> None:
    """Print what was found of a key."""
    place, index = found["hash"], found["range"]
    if index is not None:
        within = "{} of {}, [{}, {}]".format(index, found["ranges"], *found["bounds"])
    elif place is not None:
        within = "none of those given: another query reads it"
    else:
        within = "the one that the offset's hash lies in"
    values = {
        "key": shown(content),
        "partition": "any, as the producer chooses"
        if found["partition"] is None
        else f"{found['partition']} of {found['partitions']}, by Kafka's default partitioner "
        f"({found['partitioner']})",
        "hash": "that of each record's offset" if place is None else place,
        "range": within,
    }
    if "slot" in found:
        where = f"{found['slot'] or 'none'}, as of epoch {found['epoch']}"
        if found["partition"] is None:
            where = "that of each record's partition and hash"
        state = f", {found['state'].lower()}" if found["state"] else ""
        values |= {"slot": where + state, "host": found["host"], "executor": found["executor"]}
    if found.get("state_copies"):
        values["copies of its state"] = found["state_copies"]
    if found.get("served_at"):
        values["its state is served at"] = found["served_at"]
    print_record("Owner", values)
