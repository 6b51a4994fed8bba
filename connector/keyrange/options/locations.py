"""Which tables and directories of one query may lie in one another."""

from __future__ import annotations

import posixpath
import re
from itertools import permutations

from keyrange.options.commits import CommitOptions
from keyrange.options.members import MemberOptions

# Hadoop's names for S3, and the scheme of paths on this machine.
_SCHEMES = {"s3a": "s3", "s3n": "s3", "file": ""}


def misplaced(
    table: str, checkpoint: str, commits: CommitOptions, members: MemberOptions
) -> list[str]:
    """What is wrong with where a query keeps its files: two of the same path, and one that lies
    where the owner of another removes what it does not know. `table`: a job's, else "".

    VACUUM removes from a table's directory whatever its log does not name, except below names that
    begin with `_` or `.` (Delta's own rule); keyrange removes old batches from `verdictDirectory`,
    files that no commit names from `stateDirectory`, and slots from `slot.directory`. A checkpoint
    loses nothing but Spark's own files.
    """
    tables = {
        "table": table,
        "option 'commitTable'": commits.table,
        "option 'deadLetterTable'": commits.dead_letter_table,
        "option 'memberTable'": members.table,
    }
    directories = {
        "option 'verdictDirectory'": commits.verdict_directory,
        "option 'stateDirectory'": commits.state_directory,
        "option 'slot.directory'": members.slot_directory,
    }
    named = {**tables, "checkpoint": checkpoint, **directories}
    paths = {name: normalized(path) for name, path in named.items() if path}
    wrong = []
    for (inner, path), (outer, around) in permutations(paths.items(), 2):
        if path == around:
            if list(paths).index(inner) < list(paths).index(outer):
                wrong.append(f"{inner} must not be the same path as {outer}")
        elif path.startswith(f"{around.rstrip('/')}/") and outer != "checkpoint":
            below = path[len(around.rstrip("/")) + 1 :].split("/", 1)[0]
            spared = below[0] in "_." and below != "_delta_log" and outer in tables
            if not spared:
                who = "VACUUM" if outer in tables else "keyrange"
                wrong.append(
                    f"{inner} must not be in the directory of {outer}: {who} would remove it"
                )
    return wrong


def normalized(location: str) -> str:
    """A path or URI of which two are the same text if they are the same place."""
    found = re.match(r"([A-Za-z][A-Za-z0-9+.-]*):/(?:/([^/]*))?", location)
    if found is None:
        return _path(location)
    scheme = _SCHEMES.get(found[1].lower(), found[1].lower())
    rest = location[found.end() :]
    if not scheme:
        return _path(f"/{rest}")
    return f"{scheme}://{found[2] or ''}{_path(f'/{rest}')}".rstrip("/")


def _path(path: str) -> str:
    return posixpath.normpath(re.sub("^/+", "/", path))
