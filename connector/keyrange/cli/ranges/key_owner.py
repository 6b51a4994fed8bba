"""Where a key is at home: the member that owns its key range, and the directory in which hosts keep
copies of its state.

Rule of this file: it reads the tables of a query, and prints; no Spark and no broker.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from keyrange.cli.commits.commit_source import open_commits
from keyrange.cli.keys import shown
from keyrange.cli.members.document import owner as owner_of
from keyrange.cli.members.member_table import open_table
from keyrange.cli.render import print_record
from keyrange.cli.source_options import folded
from keyrange.kafka.model.offsets import TopicPartition
from keyrange.keyed_state.model.state_runs import clipped
from keyrange.ranges.model.key_ranges import KeyRange

if TYPE_CHECKING:
    from keyrange.members.table.assignment_schema import Stored

_SLOTS: Final = "slot.directory"
_GROUP: Final = "commitgroup"


def without_copies(named: Mapping[str, str]) -> dict[str, str]:
    """Options without those that say where copies are: a batch read, as which the cluster is asked,
    refuses them."""
    return {name: value for name, value in named.items() if name.lower() not in (_SLOTS, _GROUP)}


def stored_members(path: str, named: Mapping[str, str]) -> Stored:
    """What a driver wrote last."""
    return open_table(path, named).last


def owned_by(stored: Stored, topic: str, found: Mapping[str, Any]) -> dict[str, Any]:
    """Who owns what was found: slot, host and executor."""
    partition = found["partition"]
    place = None if partition is None else TopicPartition(topic, partition)
    return owner_of(stored, place, found["hash"])


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
    print_record("Owner", values)
