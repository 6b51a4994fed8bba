"""The claims of a group's consumers in its commit table, and the one source that this consumer's
slot writes there."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import cache
from types import MappingProxyType
from typing import Final

from keyrange.consumer.settings import ConsumerSettings
from keyrange.errors import KeyrangeError, error
from keyrange.individual_commits.model.commit import Commit, CommitKind
from keyrange.individual_commits.model.driver_fences import check_run
from keyrange.individual_commits.model.partition_progress import PartitionState
from keyrange.individual_commits.model.range_claims import (
    Claim,
    is_of_consumer,
    read_claim,
    source_of,
    write_claim,
)
from keyrange.individual_commits.table.commit_schema import CLAIM_COLUMNS, claims_of, fence_bounds
from keyrange.individual_commits.table.commit_table import LAYOUT, DeltaCommitTable
from keyrange.model.commit_settings import OFFSET_HASH
from keyrange.model.offsets import TopicPartition
from keyrange.storage.delta_store import DeltaStore
from keyrange.storage.table_store import Store

# A consumer that was ended by others keeps its name for so many epochs of the group.
_LEFT_AFTER_EPOCHS: Final = 10


class ClaimLog:
    """What a slot writes to the commit table as the options name it, and the claims of all."""

    def __init__(self, settings: ConsumerSettings, slot: str) -> None:
        source, commits = settings.source, settings.source.commits
        self._store: Store = DeltaStore(commits.table, LAYOUT, commits.revealed_storage())
        self._group = commits.group
        self._slot = slot
        # What the numbers rest on.
        terms = commits.terms(source.key_ranges)
        self._terms = replace(terms, hash=OFFSET_HASH) if settings.by_offset else terms
        self._source = source_of(self._group, slot)
        self._run_id = ""
        self._table = cache(lambda source: DeltaCommitTable(self._store, source))

    @property
    def slot(self) -> str:
        """The slot that writes, which is another one after `adopt`."""
        return self._slot

    def claims(self) -> dict[str, Claim]:
        """The last claim of each source of the group.

        Raises COMMITS_OF_ANOTHER_QUERY where a query of Spark's has commits under the group's name,
        COMMITS_DAMAGED where a claim cannot be read.
        """
        return {source: claim for source, (_, claim) in self._last_claims().items()}

    def _last_claims(self) -> dict[str, tuple[int, Claim]]:
        """The last claim of each source of the group, and the number of its commit."""
        if not self._store.refresh():
            return {}
        last = claims_of(self._store.read(fence_bounds(self._group), CLAIM_COLUMNS))
        # Sources of queries first: who finds one has nothing to do here.
        ordered = sorted(last.items(), key=lambda each: (is_of_consumer(each[0]), each[0]))
        return {source: (seq, self._read(source, seq, text)) for source, (seq, text) in ordered}

    def adopt(self, prefix: str, alive: Callable[[], Collection[str] | None]) -> str | None:
        """Go on in the place of a consumer that has ended, among those whose slots' names begin
        alike; returns its slot, which is this one's from then on, None where there is none.

        One that was closed; or one that others have taken everything from, some epochs ago, and
        that is not `alive` (None: nobody can say who is). Of several who want it one gets it.
        Raises as `claims` does.
        """
        self._run_id = uuid.uuid4().hex
        last = self._last_claims()
        epoch = max((claim.epoch for _, claim in last.values()), default=0)
        for source, (seq, claim) in last.items():
            if not claim.slot.startswith(prefix):
                continue
            if not claim.closed:
                left = claim.holds_nothing and epoch - claim.epoch >= _LEFT_AFTER_EPOCHS
                living = alive() if left else None
                if living is None or claim.slot in living:
                    continue
            # In the epoch of the others: whoever looks next must not take it for one that was left.
            if self._wrote(source, seq + 1, replace(claim, closed=False, epoch=epoch)):
                self._slot, self._source = claim.slot, source
                return claim.slot
        return None

    def close(self) -> None:
        """Say that this consumer has ended, and another may go on in its place."""
        known = self._table(self._source).known()
        claim = self.claims().get(self._source)
        if claim is not None and known.run_id == self._run_id:
            self._wrote(self._source, known.seq + 1, replace(claim, closed=True))

    def check_holds(self) -> None:
        """Whether what this consumer has claimed last is its own. Raises COMMITS_FENCED where
        another has claimed it since."""
        check_run(self._table(self._source).known(), self._run_id, self._source)

    def announce(self, marks: str) -> None:
        """Say that this consumer may have a transaction in Kafka from now on, with marks beside a
        topic. Raises as `check_holds`."""
        self.check_holds()
        known = self._table(self._source).seen()
        claim = replace(self.claims()[self._source], marks=marks)
        self._append(self._commit(self._source, known.seq + 1, write_claim(claim)))

    def _read(self, source: str, seq: int, text: str) -> Claim:
        if not is_of_consumer(source):
            raise error(
                "COMMITS_OF_ANOTHER_QUERY",
                f"group '{self._group}' of the commit table has commits of a query of Spark's",
                source_id=source,
            )
        try:
            return read_claim(text)
        except ValueError as fault:
            where = {"source_id": source, "commit_seq": seq}
            raise error("COMMITS_DAMAGED", str(fault), table=self._store.uri, **where) from None

    def _wrote(
        self,
        source: str,
        seq: int,
        claim: Claim,
        states: Mapping[TopicPartition, PartitionState] | None = None,
        drivers: int | None = None,
    ) -> bool:
        """Write a claim as commit `seq` of a source; whether nobody else has written there."""
        try:
            self._append(self._commit(source, seq, write_claim(claim), states), drivers)
        except KeyrangeError as failure:
            if failure.condition.name != "COMMITS_FENCED":
                raise
            return False
        return True

    def _append(self, commit: Commit, drivers: int | None = None) -> None:
        self._table(commit.source_id).append(commit, drivers)

    def _commit(
        self,
        source: str,
        seq: int,
        claim: str = "",
        states: Mapping[TopicPartition, PartitionState] | None = None,
        whole: bool = False,
        cut_back: Mapping[TopicPartition, int] = MappingProxyType({}),
    ) -> Commit:
        """A claim, or else a commit; of a consumer there are no batches, and the commit's own
        number stands for one."""
        # What a source has left rests on what it did, whoever writes a claim behind it.
        is_own = bool(states) and source == self._source
        terms = self._terms if is_own else self._table(source).known().terms or self._terms
        return Commit(
            seq,
            CommitKind.FENCE if claim else CommitKind.BATCH,
            self._group,
            source,
            self._slot,
            self._run_id,
            -1 if claim else seq,
            time.time_ns() // 1_000_000,
            terms,
            states or {},
            whole=whole,
            who=self._slot,
            claim=claim,
            cut_back=cut_back,
        )
