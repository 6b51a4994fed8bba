"""A consumer's part in a group that shares partitions, and how it becomes a member of it.

The leader says who gets which ranges; the commit table says who has them. So a range moves in two
steps, each consumer at its own time: who is to get it is told, and says in its claim when it is
ready; who has it lets go of it then, or when warmup.timeout.ms is over; and it is taken when the
claim of who had it does not hold it any more. What a consumer has that is no member is taken at
once, and what is not to move is not touched.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final

from keyrange.consumer.commit_log import CommitLog
from keyrange.consumer.group_leader import GroupLeader
from keyrange.consumer.leader_epoch_agreement import Turn
from keyrange.consumer.member import MemberThread
from keyrange.consumer.owned_ranges import OwnedRanges
from keyrange.consumer.settings import ConsumerSettings
from keyrange.errors import KeyrangeError, error
from keyrange.individual_commits.model.range_claims import Claim, Spans
from keyrange.kafka.cluster import Cluster
from keyrange.kafka.cluster_view import ClusterView
from keyrange.members.coordinator_client import check_session_timeout
from keyrange.members.executor_names import Name
from keyrange.members.model.assignment import without
from keyrange.members.model.consumer_messages import Interest, Share, read_share, write_interest
from keyrange.members.model.member_settings import MemberSettings
from keyrange.members.range_listener import KeyRangeListener
from keyrange.model.key_ranges import KeyRange, merge, subtract
from keyrange.model.offsets import TopicPartition
from keyrange.model.subscription import Subscribe, SubscribePattern
from keyrange.options import source_values

_log = logging.getLogger(__name__)

# How often the table is asked while ranges are on their way, and while nothing can be done.
_LOOK_EVERY_S: Final = 0.2
_AGAIN_AFTER_S: Final = 1.0
# How often the leader looks for what people ask of the group.
_LOOK_AT_TABLE_EVERY_S: Final = 10.0
# What another consumer's claim ends.
_OVER: Final = frozenset({"RANGES_LOST", "COMMITS_FENCED"})

Ranges = dict[TopicPartition, list[KeyRange]]


class Sharing:
    """Follows the assignment of one group with what one consumer holds. `interest` is what the
    member has joined with."""

    def __init__(
        self,
        holding: OwnedRanges,
        member: MemberThread,
        interest: Interest,
        warmup_ms: int,
        metadata_max_age_ms: int,
        leader: GroupLeader,
    ) -> None:
        self._holding = holding
        self.member = member
        self._interest = interest
        self._slot = interest.slot
        self._leader = leader
        self._pattern = SubscribePattern(interest.pattern) if interest.pattern else None
        self._warmup_s = warmup_ms / 1000
        self._look_at_topics_every_s = metadata_max_age_ms / 1000
        self._topics_seen_s = time.monotonic()
        self._table_seen_s = self._lead_at_s = 0.0
        self._document = b""
        self._share: Share | None = None
        self._called_at_epoch = 0
        self._said_ready = False
        self._warm_until_s = 0.0
        self._look_at_s = 0.0

    @property
    def topics(self) -> tuple[str, ...]:
        """Those that are read; with a pattern, those that were found to match."""
        return self._interest.topics

    def ready(self) -> None:
        """What was announced may come."""
        self._said_ready = True
        self._look_at_s = 0.0

    def step(self, listener: KeyRangeListener) -> None:
        """Do what is due; called whenever the user polls. Raises MEMBERSHIP_ENDED where
        another consumer has the name, or the group refuses this one."""
        self.member.polled()
        seen = self.member.seen
        if seen.ended:
            self.lose(listener)
            raise error("MEMBERSHIP_ENDED", f"this consumer is no member any more: {seen.failure}")
        if seen.assignment and seen.assignment != self._document:
            share = read_share(seen.assignment)
            self._document = seen.assignment
            self._holding.cluster.has_answered()
            if share.wish in (None, self._interest.wish):
                self._follow(share, listener)
            else:
                # A static name comes back to the assignment of its earlier life, without another
                # generation, and that one read other topics.
                self._say_it_again()
        elif self._share is not None and self._is_due():
            self._go_on(self._share, listener)
        if self._share is not None:
            # The group may still have a process as its leader that this one stands for now.
            leads = seen.is_leader or self._share.leader == self._slot
            if leads:
                self._lead()
            if leads or self._pattern is not None:
                self._watch_topics(leads)

    def lose(self, listener: KeyRangeListener) -> None:
        """Another consumer has what this one had; what the group says is taken anew."""
        lost = self._holding.spans
        self._holding.drop()
        self._look_at_s = time.monotonic() + _AGAIN_AFTER_S
        if lost:
            listener.on_key_ranges_lost(lost)

    def _is_due(self) -> bool:
        assert self._share is not None
        on_the_way = (
            self._holding.epoch != self._share.epoch
            or bool(without(self._share.ranges, self._holding.spans))
            or bool(without(self._holding.spans, self._share.ranges))
        )
        return on_the_way and time.monotonic() >= self._look_at_s

    def _follow(self, share: Share, listener: KeyRangeListener) -> None:
        """A new assignment: announce what comes, and take what nobody has."""
        if self._share is not None and share.epoch < self._share.epoch:
            return
        if self._share is not None and share.epoch == self._share.epoch:
            # Members have come or gone, and what is on its way stays so.
            self._share = replace(share, receivers=self._share.receivers)
            return
        _log.info("epoch %d: %d partitions for %s", share.epoch, len(share.ranges), self._slot)
        self._share = share
        self._warm_until_s = time.monotonic() + self._warmup_s
        gains = without(share.ranges, self._holding.spans)
        self._said_ready = not gains or bool(listener.on_key_ranges_announced(gains))
        self._go_on(share, listener)

    def _go_on(self, share: Share, listener: KeyRangeListener) -> None:
        self._look_at_s = time.monotonic() + _LOOK_EVERY_S
        before = self._holding.spans
        claims = self._holding.commit_log.claims()
        warm = time.monotonic() >= self._warm_until_s
        wanted = self._obtainable(share, claims, warm)
        try:
            self._apply(share, before, wanted, self._said_ready or warm, listener)
        except KeyrangeError as failure:
            is_away = failure.condition.name == "UNKNOWN_TOPIC_OR_PARTITION"
            if not is_away and failure.condition.name not in _OVER:
                raise
            _log.warning("%s", failure)
            if is_away:
                # Subscribing has seen the topic: somebody creates it anew, or a broker that has
                # just started does not know it yet.
                self._look_at_s = time.monotonic() + _AGAIN_AFTER_S
                return
            self.lose(listener)
            self._call_for_an_epoch(share)

    def _call_for_an_epoch(self, share: Share) -> None:
        """One that is higher than what is in the table: that of a leader who joins once more. Of
        others Kafka gives a member the same assignment again, unless it says something else."""
        if self.member.seen.is_leader:
            self.member.rejoin()
        elif share.epoch > self._called_at_epoch:
            self._called_at_epoch = share.epoch
            self._say_it_again()

    def _obtainable(self, share: Share, claims: Mapping[str, Claim], warm: bool) -> Ranges:
        """What this consumer can have at present: what it is to have and others do not hold, and
        what it has and cannot be handed over yet."""
        others = share.members - {self._slot}
        held = [claim for claim in claims.values() if claim.slot in others]
        wanted: Ranges = {}
        for partition, spans in share.ranges.items():
            theirs = [span for claim in held for span in claim.held(partition)]
            wanted[partition] = subtract(spans, theirs)
        if not warm and not self._all_ready(share, claims):
            for partition, stays in without(self._holding.spans, share.ranges).items():
                wanted[partition] = merge([*wanted.get(partition, ()), *stays])
        return {partition: spans for partition, spans in sorted(wanted.items()) if spans}

    def _all_ready(self, share: Share, claims: Mapping[str, Claim]) -> bool:
        """Whether all who get something of this consumer's have said that they can take it."""
        ready = {c.slot for c in claims.values() if c.epoch >= share.epoch and c.ready}
        return share.receivers <= ready

    def _apply(
        self,
        share: Share,
        before: Mapping[TopicPartition, Sequence[KeyRange]],
        wanted: Spans,
        ready: bool,
        listener: KeyRangeListener,
    ) -> None:
        moves = without(before, wanted) or without(wanted, before)
        same_epoch = self._holding.epoch == share.epoch
        if not moves and same_epoch and ready == self._holding.ready:
            return
        # A topic may have been created anew since the assignment came.
        view = self._holding.cluster.describe(self._topics_of(share))
        turn = Turn(share.epoch, ready, share.members, self._pattern is not None)
        assigned = self._holding.move(view, wanted, listener, turn)
        if assigned:
            listener.on_key_ranges_assigned(assigned)

    def _lead(self) -> None:
        """What the leader of a group does between two generations: it calls for another one where
        something is due."""
        now_s = time.monotonic()
        if now_s < self._lead_at_s:
            return
        self._lead_at_s = now_s + _AGAIN_AFTER_S
        if now_s >= self._table_seen_s + _LOOK_AT_TABLE_EVERY_S:
            self._table_seen_s = now_s
            self._attempt(self._leader.look)
        due_at_ms = self._leader.due_at_ms
        if due_at_ms is not None and self.member.now_ms() >= due_at_ms:
            self.member.rejoin()

    def _topics_of(self, share: Share) -> Collection[str]:
        """Those that have to be there: of the topics of a pattern some may be gone."""
        if self._pattern is None:
            return self._interest.topics
        return {partition.topic for partition in share.ranges}

    def _watch_topics(self, leads: bool) -> None:
        now_s = time.monotonic()
        if now_s >= self._topics_seen_s + self._look_at_topics_every_s:
            self._topics_seen_s = now_s
            self._attempt(lambda: self._look_at_topics(leads))

    def _look_at_topics(self, leads: bool) -> None:
        """Tell the group where other topics match. The leader calls for another generation where
        there are partitions that nobody has been given."""
        if self._pattern is None:
            view = self._holding.cluster.describe(self._interest.topics)
        else:
            view = _matching(self._holding.cluster, self._pattern)
            now = replace(self._interest, topics=tuple(sorted(view.topics)))
            if now != self._interest:
                _log.info("the pattern %s matches %d topics now", now.pattern, len(now.topics))
                self._introduce(now)
                return
        if leads and not set(view.partitions()) <= self._leader.partitions:
            self.member.rejoin()

    def _say_it_again(self) -> None:
        """Have the group assign anew, which it does where a member says something else."""
        self._introduce(replace(self._interest, times=self._interest.times + 1))

    def _introduce(self, interest: Interest) -> None:
        self.member.introduce(write_interest(interest))
        self._interest = interest

    def _attempt(self, look: Callable[[], None]) -> None:
        """What fails is looked at again after a while: nobody reads less for it."""
        try:
            look()
        except KeyrangeError as failure:
            _log.warning("this consumer cannot see what is due in its group: %s", failure)


def read_subscription(topics: Sequence[str], pattern: str | None) -> Subscribe | SubscribePattern:
    """Topics, or a pattern of their whole names. Raises CONSUMER_STATE where it is none of the
    two."""
    if isinstance(topics, str) or bool(topics) == (pattern is not None):
        raise error("CONSUMER_STATE", "subscribe takes a list of topics, or a pattern")
    if pattern is None:
        return Subscribe(tuple(topics))
    try:
        return SubscribePattern(source_values.pattern(pattern))
    except ValueError as fault:
        raise error("CONSUMER_STATE", f"the pattern of subscribe {fault}") from None


def interest_of(cluster: Cluster, name: Name, wanted: Subscribe | SubscribePattern) -> Interest:
    """What a consumer says of itself when it joins. Raises UNKNOWN_TOPIC_OR_PARTITION."""
    if isinstance(wanted, SubscribePattern):
        topics, pattern = tuple(sorted(_matching(cluster, wanted).topics)), wanted.pattern
    else:
        topics, pattern = wanted.topics, ""
        cluster.describe(topics)
    source = f"consumer:{name.source}"
    return Interest(name.name, topics, socket.gethostname(), os.getpid(), source, pattern)


def join(settings: ConsumerSettings, name: Name, holding: OwnedRanges, said: Interest) -> Sharing:
    """Begin a membership. Raises SESSION_TIMEOUT_REFUSED, and as brokers and tables do."""
    members, client = settings.members, settings.source.client
    check_session_timeout(holding.cluster, members.kafka_group, members.session_timeout_ms)
    own = Cluster(client)
    log = CommitLog(settings, name.name)
    leader = GroupLeader(settings, own, log, name.name, said.pattern)
    member = MemberThread(
        MemberSettings(
            group=members.kafka_group,
            instance_id=name.instance_id,
            session_timeout_ms=members.session_timeout_ms,
            heartbeat_interval_ms=members.heartbeat_interval_ms,
            max_poll_interval_ms=members.poll_interval_ms,
            metadata=write_interest(said),
        ),
        own,
        leader,
    )
    warmup_ms, age_ms = settings.members.warmup_timeout_ms, client.metadata_max_age_ms
    return Sharing(holding, member, said, warmup_ms, age_ms, leader)


def _matching(cluster: Cluster, pattern: SubscribePattern) -> ClusterView:
    """The topics whose names match a pattern, of which there may be none."""
    return cluster.describe_matching(pattern.reads)
