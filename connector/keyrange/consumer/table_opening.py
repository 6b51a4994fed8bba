"""The commit table as the options of a consumer name it."""

from __future__ import annotations

from dataclasses import replace

from keyrange.consumer.commit_log import Begin, CommitLog
from keyrange.consumer.settings import ConsumerSettings
from keyrange.individual_commits.model.commit_settings import OFFSET_HASH
from keyrange.individual_commits.table.commit_table import LAYOUT
from keyrange.storage.delta_store import DeltaStore


def new_commit_log(settings: ConsumerSettings, slot: str, begin: Begin | None = None) -> CommitLog:
    """The commit table as a slot writes it; without `begin` it is there to be read."""
    commits = settings.source.commits
    store = DeltaStore(commits.table, LAYOUT, commits.revealed_storage())
    terms = commits.terms(settings.source.key_ranges.nulls_first)
    if settings.by_offset:
        terms = replace(terms, hash=OFFSET_HASH)
    fails = settings.source.fail_on_data_loss
    return CommitLog(
        store, commits.group, slot, terms, begin or (lambda _wanted, _later: {}), fails
    )
