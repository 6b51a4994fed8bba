"""The output of a verdict into a topic of its job: senders send what files hold, each its share in
a transaction that says which batch it was.

What is out is asked of Kafka, by the senders' marks. Kafka forgets a mark that has stood for
`offsets.retention.minutes`. So each sender leaves one before there is a manifest of which it may
send: where there is none afterwards it was forgotten, and does not say that nothing was sent.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from keyrange.errors import error
from keyrange.individual_commits.batch_in_checkpoint import Planned
from keyrange.individual_commits.model.verdict_manifest import (
    Manifest,
    ManifestTopic,
    topic_text,
)
from keyrange.individual_commits.verdict_store import VerdictStore
from keyrange.sending.model.marks import Mark
from keyrange.sending.model.shards import shared_out
from keyrange.sending.open_senders import OpenSenders, number_of
from keyrange.sending.sending_tasks import SENT, sending
from keyrange.sending.shard_sender import FileRows, Share
from keyrange.storage.data_files import DataFile, check_there
from keyrange.storage.directory import Directory
from keyrange.storage.model.sink_driver import Driver, overtaken
from keyrange.work import appended_files

_log = logging.getLogger(__name__)

# What a driver sends by itself: a job of Spark's costs more.
_SMALL_BYTES: Final = 4 << 20
_THREADS: Final = 16


@dataclass(frozen=True)
class TopicOutput:
    """A topic of a job, which calls it `name`, and what sends to it. `form` is Spark's JSON of the
    rows' columns; `storage`: settings of the object store with the files."""

    name: str
    form: Mapping[str, Any]
    open: OpenSenders
    senders: int
    batch: Any
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)
    if_forgotten: str = "fail"

    @property
    def topic(self) -> str:
        return self.open.address.topic

    def as_told(self) -> ManifestTopic:
        """What a manifest is to say of it."""
        return ManifestTopic(self.topic, self.senders, self.form, self.open.address.topic_id)

    def mark(self, application: str, at: Planned, driver: Driver | None) -> None:
        """Before there is a manifest of a batch: let each sender have a mark.

        Raises COMMITS_FENCED, CHECKPOINT_BEHIND where one has sent that batch or a later one, and
        as `ShardSender` does."""
        wanted = [
            sender
            for sender in range(self.senders)
            if not self.open.is_marked(application, self.name, sender)
        ]
        if wanted:
            # Each waits for the coordinators most of the time.
            leave = partial(self._leave, application, Mark(at.batch_id - 1), number_of(driver))
            with ThreadPoolExecutor(min(len(wanted), _THREADS)) as threads:
                list(threads.map(leave, wanted))

    def _leave(self, application: str, first: Mark, driver: int, sender: int) -> None:
        opened = self.open.opened(application, self.name, sender)
        known = opened.start()
        if known is not None and known.driver > driver:
            raise overtaken(known.driver, source_id=application)
        if known is not None and known.batch_id > first.batch_id:
            message = (
                f"{topic_text(self.topic)} has the query's batch {known.batch_id}, and of batch "
                f"{first.batch_id + 1} there is no manifest yet"
            )
            raise error("CHECKPOINT_BEHIND", message, source_id=application)
        opened.leave((known or first).of_driver(driver, self.senders))
        self.open.marked(application, self.name, sender)

    def stop_others(self, driver: Driver) -> None:
        """Let nothing more come from the drivers that one has stopped. Raises
        UNCOMMITTED_OUTPUT where one has sent what it has not committed."""
        for application in sorted(driver.applications):
            taken_over = self.open.taken_over(application, self.name, driver, self.senders)
            for known in taken_over:
                _check_committed(known, application, driver, self.topic)

    def check_before(self, application: str, batch_id: int) -> None:
        """Once in a run: whether the topic has the batch before the first one. Raises
        OTHER_TOPIC."""
        known = self.open.opened(application, self.name, 0).start()
        if known is None:
            _log.warning(
                "Kafka knows nothing of what the query has sent to %s until batch %d: its group's "
                "offsets were forgotten (offsets.retention.minutes)",
                *(topic_text(self.topic), batch_id),
            )
        elif not known.is_out(batch_id):
            message = (
                f"{topic_text(self.topic)} has the query's batches until {known.batch_id}, and its "
                "checkpoint calls a later one finished"
            )
            raise error("OTHER_TOPIC", message, batch=batch_id)

    def write(
        self,
        store: VerdictStore,
        manifest: Manifest,
        application: str,
        at: Planned,
        is_made: bool,
        driver: Driver | None = None,
    ) -> None:
        """Send what a manifest says, once. `is_made`: whether this run has made it. A run that ends
        between two senders leaves the rest to the next one.

        Raises VERDICT_DAMAGED, COMMITS_FENCED, TOPIC_OUTPUT_FORGOTTEN, and as
        `TransactionalProducer` does."""
        files = appended_files.files_of(manifest.rows["file"], self.name)
        if not files:
            return
        if not is_made:
            left = "it is not sent yet"
            directory = Directory(store.location, self.storage)
            check_there(directory, files, at.batch_id, left, path=store.location)
        senders = manifest.topics[self.name].senders
        mark = Mark(at.batch_id, number_of(driver), senders, _plan_of(files))
        stored = store.location, self.storage
        shares = [
            Share(
                *(application, self.name, number),
                FileRows(tuple(files[each] for each in places), at.batch_id, *stored),
                *(mark, self.if_forgotten, is_made),
            )
            for number, places in enumerate(
                shared_out([each.size_bytes for each in files], senders)
            )
        ]
        if len(shares) == 1 and sum(each.size_bytes for each in files) <= _SMALL_BYTES:
            self.open.send(shares[0])
        else:
            self._send_in_tasks(shares)
        for share in shares:
            self.open.marked(application, self.name, share.number)

    def _send_in_tasks(self, shares: list[Share]) -> None:
        # The first one has a share of each batch: what it knows holds for all, before any begins.
        first = self.open.opened(shares[0].application, self.name, 0)
        first.start()
        first.is_out(shares[0])
        # They fence those of this process.
        self.open.close()
        count = len(shares)
        places = self.batch.sparkSession.range(0, count, 1, count)
        sent = places.mapInArrow(sending(self.open.address, shares), SENT).collect()
        told = {each.sender for each in sent}
        if told != {each.number for each in shares}:
            raise RuntimeError(f"of {count} senders {sorted(told)} have answered")


def _plan_of(files: Sequence[DataFile]) -> str:
    """Names of files are of one attempt alone."""
    return hashlib.sha256(" ".join(each.name for each in files).encode()).hexdigest()[:16]


def _check_committed(known: Mark, application: str, driver: Driver, topic: str) -> None:
    committed = driver.committed.get(application)
    if committed is not None and known.batch_id > committed:
        message = (
            f"the topic has output of batch {known.batch_id} of another query, whose commit is not "
            "there: its records would come again"
        )
        raise error("UNCOMMITTED_OUTPUT", message, topic=topic, writer=application)
