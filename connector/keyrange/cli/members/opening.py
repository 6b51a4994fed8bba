"""What commands that look at a table of members share.

Rule of this file: nothing of Spark and no broker.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from keyrange.members.table.operating import Members

MembersTableArgument = Annotated[
    str,
    typer.Argument(
        metavar="TABLE", help="The table of the members: a directory or a URI such as s3://..."
    ),
]


def open_table(path: str, named: Mapping[str, str]) -> Members:
    """As `operating.open_members`, with the settings of the object store among options."""
    from keyrange.cli.commits.opening import storage_of
    from keyrange.members.table import operating

    return operating.open_members(path, storage_of(named))
