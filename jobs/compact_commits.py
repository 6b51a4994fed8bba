"""Keep the tables of individual commits small: compaction, checkpoint of Delta's log, vacuum.

    python jobs/compact_commits.py /lake/prices_commits s3://lake/quotes_commits

A query does the same by itself, every hundred commits, between two batches. This is for tables of
queries that have stopped or never get so far in one run, such as short ones with availableNow. It
may run beside the queries: of two who write, the query wins, and what was to be compacted is left
for the next time. Small files become one where there are fifty of them. Nothing that a query, the
command line or an older reader asks for is removed; files that no version needs go after the
table's own retention of half an hour.

With each table come those beside it, where they are there: `_dead_letters` and `_members`. Settings
of the object store are given as `--option objectStore.NAME=VALUE`; a VALUE `@FILE` is read
from a file, `env:NAME` from the environment.

No Spark takes part. The exit code is 1 where a table is not there or could not be compacted.
"""

from __future__ import annotations

import argparse
import logging
import sys

from keyrange.cli.arguments import named_values
from keyrange.cli.source_options import storage_of
from keyrange.errors import KeyrangeError
from keyrange.individual_commits.table import commit_table, dead_letters
from keyrange.members.table import assignments
from keyrange.options.commits import DEAD_LETTERS, beside
from keyrange.options.members import MEMBERS
from keyrange.storage.delta_store import DeltaStore
from keyrange.storage.table_store import Conflict

log = logging.getLogger("compact")

# What is beside a commit table, by what its name has behind it.
LAYOUTS = {"": commit_table.LAYOUT, DEAD_LETTERS: dead_letters.LAYOUT, MEMBERS: assignments.LAYOUT}


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Compact and vacuum tables of individual commits.")
    parser.add_argument("tables", nargs="+", metavar="TABLE", help="a commit table: path or URI")
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="objectStore.NAME=VALUE, a setting of the object store; VALUE may be @FILE",
    )
    return parser.parse_args(arguments)


def stores(table: str, storage: dict[str, str]) -> list[DeltaStore]:
    """The tables that go by a commit table's name, whether they are there or not."""
    return [
        DeltaStore(beside(table, suffix), layout, storage) for suffix, layout in LAYOUTS.items()
    ]


def compact(store: DeltaStore) -> bool:
    """Whether there is such a table. Says what came of it."""
    if not store.refresh():
        return False
    before = store.extent()
    try:
        store.tidy_up()
    except Conflict:
        log.info("%s: a query was faster, it is left for the next time", store.uri)
        return True
    store.refresh()
    after = store.extent()
    log.info("%s: %s, before %s", store.uri, text_of(*after), text_of(*before))
    return True


def text_of(files: int, size_bytes: int) -> str:
    return f"{files:,} files, {size_bytes / 1e6:,.2f} MB"


def main(arguments: list[str] | None = None) -> int:
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
    given = parse_arguments(arguments)
    failed = 0
    try:
        storage = storage_of(named_values(given.option))
    except KeyrangeError as failure:
        raise SystemExit(str(failure)) from None
    for table in given.tables:
        try:
            found = [compact(store) for store in stores(table, storage)]
            if not found[0]:
                log.error("%s: there is no commit table", table)
                failed = 1
        except KeyrangeError as failure:
            log.error("%s", failure)
            failed = 1
    return failed


if __name__ == "__main__":
    sys.exit(main())
