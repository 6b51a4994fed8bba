"""One member of a Kafka group: the client's side of the classic protocol, without sockets.

Who drives it asks for the next request, sends it, and hands back what came of it:

    request = member.next_request(now_ms)
    if request is not None:
        member.answered(request, answer, now_ms)    # or member.failed(request, now_ms)

One request is under way at a time. Times are of a clock that never goes back (time.monotonic).

A static member has an `instance_id`, a name that survives its process. Back within the session it
has its old assignment, and the generation stays. It never leaves the group: its session decides.
Who takes its name is believed, so the one before is fenced, for good. What Kafka hands out to a
static member may be the old leader's id, so that the group has no leader: nothing here waits for
one. A dynamic member has an id that the coordinator makes up, and leaves when it is closed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from keyrange.errors import error
from keyrange.members.model.group_member_states import (
    ENDS,
    FOUND_AGAIN,
    MOVED,
    OUTDATED,
    REFUSALS,
    TRANSITIONS,
    Event,
    GroupState,
)
from keyrange.members.model.group_messages import (
    NO_GENERATION,
    NO_MEMBER_ID,
    NONE,
    Answer,
    Coordinator,
    FindCoordinator,
    Heartbeat,
    Join,
    Leave,
    Peer,
    Request,
    Sync,
)
from keyrange.members.model.member_settings import MemberSettings, WorkProgress

__all__ = ["Assignor", "GroupMember", "GroupState", "MemberSettings", "nothing"]

# What the leader says each member gets, by member id; who is left out gets nothing.
Assignor = Callable[[Sequence[Peer]], Mapping[str, bytes]]

_BACKOFF_MIN_MS: Final = 100
_BACKOFF_MAX_MS: Final = 1_000
# How much longer than the group may take a member waits for an answer.
_GRACE_MS: Final = 5_000


def nothing(members: Sequence[Peer]) -> dict[str, bytes]:
    """The assignor of a group that is there for names and liveness alone."""
    return {member.member_id: b"" for member in members}


class GroupMember:
    """A member's life; raises NO_STATIC_MEMBER_INFO_SET for a static one without a name.

    To be read: `state`; `member_id`, `generation`, `coordinator`, `is_leader`; `members`, the peers
    that the leader was told of; `assignment`, valid while STABLE; `failure`, why it was
    fenced, failed or gave up, with the error's name; `held_until_ms`, until when the coordinator
    keeps the name for this member unless another one takes it. `metadata` may be set: the member
    joins once more with it.
    """

    def __init__(self, settings: MemberSettings, assignor: Assignor = nothing) -> None:
        if settings.instance_id is not None and not settings.instance_id.strip():
            raise error(
                "NO_STATIC_MEMBER_INFO_SET", "a static member has no name", group=settings.group
            )
        self.settings: Final = settings
        self.metadata = self._joined_with = settings.metadata
        self.state = GroupState.UNJOINED
        self.member_id = NO_MEMBER_ID
        self.generation = NO_GENERATION
        self.coordinator: Coordinator | None = None
        self.is_leader = False
        self.members: tuple[Peer, ...] = ()
        self.assignment = b""
        self.failure: str | None = None
        self.held_until_ms: int | None = None
        self._assignor = assignor
        self._outstanding: Request | None = None
        self._sent_ms = 0
        self._failures = 0
        self._retry_at_ms: int | None = None
        self._beat_at_ms = 0
        # Where to go on when the coordinator is found.
        self._resume = GroupState.JOINING
        self._left = Event.LEFT_CLOSED
        # Whether the coordinator has known the id in a second request, and whether one that it had
        # not was tried again.
        self._is_confirmed = False
        self._tried_again = False
        self._progress = WorkProgress(settings.stall_ms)
        self._has_resumed = False

    @property
    def wake_at_ms(self) -> int | None:
        """When to ask for the next request; None while an answer or progress is waited for."""
        if self.state in ENDS or self.state is GroupState.IDLE_GIVEN_UP:
            return None
        times = []
        if self._in_contact and self._progress.stalls_at_ms is not None:
            times.append(self._progress.stalls_at_ms)
        if self._outstanding is None:
            beat_ms = self._beat_at_ms if self.state is GroupState.STABLE else 0
            times.append(max(beat_ms, self._retry_at_ms or 0))
        return min(times, default=None)

    def answer_within_ms(self, request: Request) -> int:
        """How long to wait for a request's answer before it has `failed`."""
        if isinstance(request, Join | Sync):
            return self.settings.session_timeout_ms + _GRACE_MS
        return max(self.settings.session_timeout_ms // 3, self.settings.heartbeat_interval_ms)

    def next_request(self, now_ms: int) -> Request | None:
        """What to send now; None where there is nothing to send before `wake_at_ms`."""
        if self._in_contact and self._progress.has_stalled(now_ms):
            self._give_up(now_ms)
        if self._outstanding is not None or now_ms < (self._retry_at_ms or now_ms):
            return None
        if self.state is GroupState.UNJOINED:
            self._to(Event.BEGIN)
        if self.state is GroupState.STABLE and self._joined_with != self.metadata:
            self._rejoin(now_ms, pause=False)
        self._outstanding = self._request(now_ms)
        self._sent_ms = now_ms
        return self._outstanding

    def answered(self, request: Request, answer: Answer, now_ms: int) -> None:
        """Take an answer in; that of a request which is not under way any more changes nothing."""
        if request is not self._outstanding:
            return
        self._outstanding = None
        self._retry_at_ms = None
        if isinstance(request, Leave):
            self._has_left()
        elif answer.error == NONE:
            self._failures = 0
            self._succeeded(request, answer, now_ms)
        elif answer.error == "MEMBER_ID_REQUIRED" and isinstance(request, Join):
            known, self.member_id = self.member_id, answer.member_id
            self._rejoin(now_ms, pause=known != NO_MEMBER_ID)
        else:
            self._troubled(answer.error, now_ms)

    def failed(self, request: Request, now_ms: int) -> None:
        """The connection broke, or no answer came in time."""
        if request is not self._outstanding:
            return
        self._outstanding = None
        if self.state is GroupState.LEAVING:
            self._has_left()
        else:
            self._lose_coordinator(now_ms)

    def working(self, running: bool, now_ms: int) -> None:
        """Say whether tasks are running: only these can stall."""
        if self._progress.working(running, now_ms):
            self._resumes()

    def progressed(self, at_ms: int) -> None:
        """Work yielded something, at a time that may lie back."""
        if self._progress.yielded(at_ms):
            self._resumes()

    def rejoin(self, now_ms: int) -> None:
        """Join the next generation: one that was announced, or one that the leader wants."""
        if self.state is GroupState.STABLE:
            self._outstanding = None
            self._rejoin(now_ms, pause=False)

    def close(self, now_ms: int) -> None:
        """End it; a dynamic member that is in the group leaves it with one more request."""
        if self.state in ENDS:
            return
        self._outstanding = None
        self._retry_at_ms = now_ms
        if self.state is GroupState.LEAVING:
            self._left = Event.LEFT_CLOSED
        elif self._can_leave:
            self._left = Event.LEFT_CLOSED
            self._to(Event.CLOSE_LEAVING)
        else:
            self._to(Event.CLOSE)
        self.held_until_ms = None

    @property
    def _in_contact(self) -> bool:
        """Whether there is a coordinator to lose, or to find again."""
        return (self.state, Event.LOST) in TRANSITIONS

    @property
    def _can_leave(self) -> bool:
        is_known = self.member_id != NO_MEMBER_ID and self.coordinator is not None
        return self._in_contact and is_known and not self.settings.is_static

    def _to(self, event: Event) -> None:
        self.state = TRANSITIONS[self.state, event]

    def _request(self, now_ms: int) -> Request | None:
        settings = self.settings
        match self.state:
            case GroupState.FINDING:
                return FindCoordinator(settings.group)
            case GroupState.JOINING:
                self._joined_with = self.metadata
                return Join(
                    settings.group,
                    self.member_id,
                    settings.instance_id,
                    settings.session_timeout_ms,
                    # The rebalance timeout: a member that is silent for so long is out anyway.
                    settings.session_timeout_ms,
                    settings.protocol_name,
                    self.metadata,
                )
            case GroupState.SYNCING:
                assignments = self._assignor(self.members) if self.is_leader else {}
                return Sync(
                    settings.group,
                    self.member_id,
                    settings.instance_id,
                    self.generation,
                    settings.protocol_name,
                    {peer.member_id: assignments.get(peer.member_id, b"") for peer in self.members},
                )
            case GroupState.STABLE if now_ms >= self._beat_at_ms:
                return Heartbeat(
                    settings.group, self.member_id, settings.instance_id, self.generation
                )
            case GroupState.LEAVING:
                return Leave(settings.group, self.member_id)
        return None

    def _succeeded(self, request: Request, answer: Answer, now_ms: int) -> None:
        match request:
            case FindCoordinator():
                self.coordinator = answer.coordinator
                self._to(FOUND_AGAIN[self._resume])
            case Join():
                self._is_confirmed &= self.member_id == answer.member_id
                self.member_id, self.generation = answer.member_id, answer.generation
                self.is_leader = answer.leader == answer.member_id
                self.members = answer.members if self.is_leader else ()
                self._confirmed()
                self._to(Event.JOINED)
            case Sync():
                self.assignment = answer.assignment
                self._settled(now_ms)
                self._to(Event.SYNCED)
            case Heartbeat():
                self._settled(now_ms)
                self._to(Event.BEATEN)

    def _settled(self, now_ms: int) -> None:
        self._beat_at_ms = now_ms + self.settings.heartbeat_interval_ms
        self.failure = None
        self._is_confirmed, self._tried_again = True, False
        self._confirmed()

    def _confirmed(self) -> None:
        """The coordinator knew this member when it took the last request, or later."""
        self.held_until_ms = self._sent_ms + self.settings.session_timeout_ms

    def _troubled(self, name: str, now_ms: int) -> None:
        """What each of Kafka's errors means to Join, Sync, Heartbeat and FindCoordinator."""
        if name == "FENCED_INSTANCE_ID" and self.state is not GroupState.FINDING:
            self._fenced(name, now_ms)
        elif name in REFUSALS:
            self._end(Event.REFUSED, REFUSALS[name], name, "the group refused the member")
        elif self.state is GroupState.FINDING:
            self._pause(now_ms)
            self._to(Event.RETRY)
        elif name in MOVED:
            self._lose_coordinator(now_ms)
        elif name == "UNKNOWN_MEMBER_ID":
            self._forget()
            self._rejoin(now_ms, pause=self.state is GroupState.JOINING)
        elif name == "REBALANCE_IN_PROGRESS" and self.state is GroupState.STABLE:
            self._confirmed()
            self._rejoin(now_ms, pause=False)
        elif name in OUTDATED:
            self._rejoin(now_ms, pause=self.state is GroupState.JOINING)
        else:
            self._pause(now_ms)
            self._to(Event.RETRY)

    def _fenced(self, name: str, now_ms: int) -> None:
        """For good, unless the id is younger than what a coordinator writes down: one that moved
        has the name under the id from before, which may be nobody's. So it is tried once more."""
        if self._is_confirmed or self._tried_again:
            self._end(Event.FENCED, "DUPLICATE_STATIC_MEMBER", name, "another has taken the name")
        else:
            self._tried_again = True
            self._forget()
            self._rejoin(now_ms, pause=True)

    def _rejoin(self, now_ms: int, *, pause: bool) -> None:
        if pause:
            self._pause(now_ms)
        self.is_leader, self.members = False, ()
        self._to(Event.REJOIN)

    def _pause(self, now_ms: int) -> None:
        pause_ms = min(_BACKOFF_MIN_MS << min(self._failures, 10), _BACKOFF_MAX_MS)
        self._failures += 1
        self._retry_at_ms = now_ms + pause_ms

    def _lose_coordinator(self, now_ms: int) -> None:
        """Generation and id stay: what comes next is tried again at the coordinator's new place."""
        if self.state is not GroupState.FINDING:
            self._resume = self.state
        self.coordinator = None
        self._pause(now_ms)
        self._to(Event.LOST)

    def _forget(self) -> None:
        self.member_id, self.generation = NO_MEMBER_ID, NO_GENERATION
        self.is_leader, self.members, self.assignment = False, (), b""
        self.held_until_ms = None
        self._is_confirmed = False

    def _end(self, event: Event, condition: str, name: str, what: str) -> None:
        context = {"group": self.settings.group, "instance_id": self.settings.instance_id}
        self.failure = str(error(condition, f"{name}: {what}", **context))
        self.is_leader, self.members, self.assignment = False, (), b""
        self.held_until_ms = None
        self._to(event)

    def _give_up(self, now_ms: int) -> None:
        still_ms = now_ms - self._progress.yielded_ms
        self.failure = str(
            error(
                "MEMBER_STALLED",
                f"running tasks have yielded nothing for {still_ms} ms, so heartbeats stop until "
                "they do",
                group=self.settings.group,
                instance_id=self.settings.instance_id,
                max_poll_interval_ms=self.settings.stall_ms,
            )
        )
        self._outstanding = None
        self._retry_at_ms = None
        self._has_resumed = False
        if self._can_leave:
            self._left = Event.LEFT_IDLE
            self._to(Event.STALLED_LEAVING)
            self.held_until_ms = None
            return
        keeps = self._resume if self.state is GroupState.FINDING else self.state
        # A static member that is back within its session finds its generation as it was.
        if not self.settings.is_static:
            self._forget()
        self._resume = (
            GroupState.STABLE
            if keeps is GroupState.STABLE and self.member_id
            else GroupState.JOINING
        )
        self._to(Event.STALLED)

    def _has_left(self) -> None:
        self._forget()
        self._resume = GroupState.JOINING
        self._to(self._left)
        if self.state is GroupState.IDLE_GIVEN_UP and self._has_resumed:
            self._resumes()

    def _resumes(self) -> None:
        if self.state is GroupState.LEAVING:
            self._has_resumed = True
        elif self.state is GroupState.IDLE_GIVEN_UP:
            self._beat_at_ms = 0
            self._to(Event.RESUMED)
