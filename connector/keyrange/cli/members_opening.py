"""What commands that look at a table of members share.

Rule of this file: nothing of Spark and no broker.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from keyrange.delta.members_by_hand import Members

MembersTableArgument = Annotated[
    str,
    typer.Argument(
        metavar="TABLE", help="The table of the members: a directory or a URI such as s3://..."
    ),
]


def open_table(path: str, named: Mapping[str, str]) -> Members:
    """As `members_by_hand.open_members`, with the settings of the object store among options."""
    from keyrange.cli.commits_opening import storage_of
    from keyrange.delta import members_by_hand

    return members_by_hand.open_members(path, storage_of(named))
