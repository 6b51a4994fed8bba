"""State that is imported before the first batch of a query: a source of its own in the commit
table, whose one commit names the runs. The first query of the group takes it up.
"""

from __future__ import annotations

import hashlib
import logging
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from keyrange.errors import error, invalid_options
from keyrange.individual_commits.model.commit import Commit, CommitKind, CommitTable
from keyrange.individual_commits.model.partition_progress import fresh
from keyrange.keyed_state.initial_runs import SEQ, InitialRun
from keyrange.model.commit_settings import CommitSettings
from keyrange.model.offsets import TopicPartition
from keyrange.model.state_scope import OWN_STATE, StateScope
from keyrange.model.timers import SeenTimers, after_batch
from keyrange.model.watermarks import PartitionTime
from keyrange.storage.directory import Directory
from keyrange.storage.object_store import FAILURES

_log = logging.getLogger(__name__)

_NO_QUERY: Final = ""


def import_source(group: str) -> str:
    """The source that the import of a group writes: always the same one, so that its first commit
    is there once."""
    return hashlib.sha256(f"keyrange import {group}".encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class InitialTopic:
    """A topic as it is when state is imported. `topic_id`: "" from brokers older than 2.8."""

    topic_id: str
    partitions: int


@dataclass
class InitialState:
    """The import of state into a group of a commit table; `table` has the commits of its
    `import_source`, `directory` is that of states.

    Its steps are `begin`, what writes runs, and `commit`. If the process ends before the commit, no
    run counts and the import can be done again; after it, it is done.
    """

    group: str
    table: CommitTable
    directory: str
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)
    scope: StateScope = OWN_STATE
    _begun: int = -1

    @property
    def source_id(self) -> str:
        return import_source(self.group)

    @property
    def is_done(self) -> bool:
        """Whether the group has imported state."""
        return self.table.known().is_import

    def homes(self, topics: Mapping[str, InitialTopic]) -> dict[str, int]:
        """The topics under whose partitions state stands, and how many these are. Raises
        INVALID_OPTIONS where state.topic is none of them."""
        found = {
            name: topic.partitions
            for name, topic in topics.items()
            if self.scope.topic in ("", name)
        }
        if not found:
            named = f"state.topic={self.scope.topic}"
            raise invalid_options(f"{named} is none of the topics {', '.join(sorted(topics))}")
        return found

    def begin(self) -> None:
        """Raises INITIAL_STATE_TOO_LATE where the group has commits, those of an import too."""
        # Who begins from here on is noticed by `commit`.
        self._begun = self.table.begun(self.group)
        if self.is_done:
            [first] = self.table.history(SEQ, SEQ + 1)
            by = f"{first.who or 'a job'}, from {first.why}"
            raise self._too_late(f"has imported state already, by {by}")
        sources = sorted({each.source_id for each in self.table.fences(self.group)})
        if sources:
            raise self._too_late(f"has commits of source {sources[0]} already")

    def _too_late(self, why: str) -> Exception:
        return error("INITIAL_STATE_TOO_LATE", f"group '{self.group}' of the commit table {why}")

    def commit(
        self,
        runs: Iterable[InitialRun],
        topics: Mapping[str, InitialTopic],
        who: str,
        why: str,
        now_ms: int,
    ) -> None:
        """Let runs be what the first query of the group begins with. `who` imports them, and `why`
        says from where. Raises COMMITS_FENCED where a query or another import of the group has
        begun meanwhile."""
        states = {
            TopicPartition(name, number): fresh(topic.topic_id, 0)
            for name, topic in topics.items()
            for number in range(topic.partitions)
        }
        found: dict[TopicPartition, list[InitialRun]] = {}
        for each in runs:
            found.setdefault(each.partition, []).append(each)
        timers = {
            partition: after_batch((), [SeenTimers(each.next_timer, True) for each in own])
            for partition, own in found.items()
        }
        commit = Commit(
            seq=SEQ,
            kind=CommitKind.IMPORT,
            group=self.group,
            source_id=self.source_id,
            query_id=_NO_QUERY,
            run_id=uuid.uuid4().hex,
            batch_id=-1,
            committed_at_ms=now_ms,
            terms=CommitSettings(state_topic=self.scope.topic),
            states=states,
            who=who,
            why=why,
            runs={p: tuple(each.run.committed(SEQ) for each in own) for p, own in found.items()},
            times={p: PartitionTime(None, each) for p, each in timers.items() if each},
        )
        self.table.append(commit, self._begun)
        self._remove_others({each.run.file for own in found.values() for each in own}, now_ms)

    def _remove_others(self, files: set[str], now_ms: int) -> None:
        """Of imports that ended before their commit."""
        try:
            names = {name.rpartition("/")[2] for name in files}
            Directory(self.directory, self.storage).remove_older(self.source_id, names, now_ms)
        except FAILURES as failure:
            _log.warning("files of an earlier import stay in %s: %s", self.directory, failure)
