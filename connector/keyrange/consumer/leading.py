"""What the leader of a group of consumers does: it deals the key ranges out to all members."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from keyrange.consumer.ledger import Ledger
from keyrange.consumer.settings import ConsumerSettings
from keyrange.core.key_ranges import SPACE
from keyrange.core.members.assignment import Assignment, Owned, assign, changes
from keyrange.core.members.messages import Peer
from keyrange.core.members.shares import (
    Interest,
    Share,
    interests_of,
    subscribers,
    write_share,
)
from keyrange.core.offsets import TopicPartition
from keyrange.delta.assignment_rows import Stored, StoredMember
from keyrange.delta.assignments import open_assignments
from keyrange.errors import KeyrangeError
from keyrange.kafka.cluster import Cluster

_TRIES: Final = 5
_PAUSE_S: Final = 0.2


@dataclass(slots=True)
class Leader:
    """An assignor. `ledger` is its own view of the commit table: it runs in the member's thread."""

    settings: ConsumerSettings
    cluster: Cluster
    ledger: Ledger

    def __call__(self, members: Sequence[Peer]) -> Mapping[str, bytes]:
        """Each member's share, by its id. The assignment is written before anybody is told of it,
        so an epoch is one assignment, whoever leads."""
        peers = {peer.member_id: peer for peer in members}
        interests = interests_of({each.member_id: each.metadata for each in members})
        for left in range(_TRIES, 0, -1):
            try:
                before, after = self._assigned(interests, peers)
                break
            except KeyrangeError as failure:
                # Another leader may have been quicker.
                passes = failure.retriable or failure.condition.name == "ASSIGNMENT_CHANGED"
                if left == 1 or not passes:
                    raise
                time.sleep(_PAUSE_S)
        slots = frozenset(each.slot for each in interests.values())
        shares = {}
        for member, interest in interests.items():
            revoked = changes(before, after, interest.slot).revoked
            receivers = {
                each.slot
                for partition, spans in revoked.items()
                for each in after.owners.get(partition, ())
                if each.slot != interest.slot
                and any(_overlap(each, span.from_hash, span.until_hash) for span in spans)
            }
            ranges = after.of(interest.slot)
            share = Share(after.epoch, ranges, slots, frozenset(receivers))
            shares[member] = write_share(share)
        return shares

    def _assigned(
        self, interests: Mapping[str, Interest], peers: Mapping[str, Peer]
    ) -> tuple[Assignment | None, Assignment]:
        """The assignment before, and the one that holds from now on."""
        commits = self.settings.source.commits
        table = open_assignments(
            self.settings.members.table, commits.group, commits.revealed_storage()
        )
        last = table.last()
        before = last.assignment if last is not None else None
        epochs = [claim.epoch for claim in self.ledger.claims().values()]
        epoch = 1 + max([before.epoch if before else 0, *epochs])
        after = self._dealt(list(interests.values()), before, epoch)
        if before is not None and before.owners == after.owners and before.epoch == epoch - 1:
            # The same members with the same ranges are no new assignment.
            return before, before
        now_ms = time.time_ns() // 1_000_000
        table.append(
            Stored(
                seq=1 + (last.seq if last is not None else 0),
                group=commits.group,
                run_id=uuid.uuid4().hex,
                at_ms=now_ms,
                reason=f"{len(interests)} consumers",
                assignment=after,
                members=tuple(
                    _stored(interest, peers[member], now_ms)
                    for member, interest in sorted(interests.items(), key=lambda i: i[1].slot)
                ),
                member_group=self.settings.members.kafka_group,
            )
        )
        return before, after

    def _dealt(
        self, interests: Sequence[Interest], before: Assignment | None, epoch: int
    ) -> Assignment:
        owners: dict[TopicPartition, tuple[Owned, ...]] = {}
        old = before.owners if before is not None else {}
        for slots, topics in subscribers(interests).items():
            view = self.cluster.describe(topics, may_miss=topics)
            weights = dict.fromkeys(view.partitions(), 1.0)
            if not weights:
                continue
            kept = {partition: old[partition] for partition in weights if partition in old}
            previous = Assignment(before.epoch, kept) if before is not None and kept else None
            dealt = assign(weights, dict.fromkeys(sorted(slots), 1.0), previous, epoch)
            owners |= dealt.owners
        accepts = self.settings.source.key_ranges.accepts_splits
        return Assignment(
            epoch,
            {
                partition: owned if accepts(partition.topic) else _whole(owned)
                for partition, owned in owners.items()
            },
        )


def _whole(owned: Sequence[Owned]) -> tuple[Owned, ...]:
    """A partition that may not be split, with who has the most of it."""
    most = max(owned, key=lambda each: (each.span.size, each.slot))
    return (Owned(SPACE, most.slot),)


def _overlap(owned: Owned, from_hash: int, until_hash: int) -> bool:
    return owned.span.from_hash < until_hash and from_hash < owned.span.until_hash


def _stored(interest: Interest, peer: Peer, now_ms: int) -> StoredMember:
    return StoredMember(
        name=peer.instance_id or interest.slot,
        slot=interest.slot,
        is_static=peer.instance_id is not None,
        state="ASSIGNED",
        since_ms=now_ms,
        seen_ms=now_ms,
        host=interest.host,
        source=interest.source,
    )
