"""What commands that look at a table of members share: the table, and what the broker says of the
members of its group.

Rule of this file: nothing of Spark, and only commands that are told to ask a broker do so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

import typer

from keyrange.cli.source_options import connected, storage_of
from keyrange.members.model.join_metadata import MemberMetadata, read_metadata

if TYPE_CHECKING:
    from keyrange.members.model.group_messages import Peer
    from keyrange.members.table.assignment_admin import Members
    from keyrange.members.table.assignment_schema import Stored

MembersTableArgument = Annotated[
    str,
    typer.Argument(
        metavar="TABLE", help="The table of the members: a directory or a URI such as s3://..."
    ),
]


def open_table(path: str, named: Mapping[str, str]) -> Members:
    """As `assignment_admin.open_members`, with the settings of the object store among options."""
    from keyrange.members.table import assignment_admin

    return assignment_admin.open_members(path, storage_of(named))


@dataclass(frozen=True, slots=True)
class LiveMember:
    """A member that the broker knows now, and what it tells of itself."""

    name: str
    is_static: bool
    told: MemberMetadata


@dataclass(frozen=True, slots=True)
class LiveGroup:
    """The group of the members, in a state of Kafka's."""

    state: str
    members: tuple[LiveMember, ...]


def ask(named: Mapping[str, str], stored: Stored) -> LiveGroup:
    """Ask for the members of the group that a driver's row names.

    `named` are options of the source. Raises what the source raises for them.
    """
    from keyrange.members.coordinator_client import describe_members

    with connected({**named, "subscribe": "none"}) as (_, cluster):
        found = describe_members(cluster, stored.member_group or f"{stored.group}.members")
    return LiveGroup(found.state, tuple(live_member(each) for each in found.members))


def live_member(view: Peer) -> LiveMember:
    """A member with what it says of itself; what is none of keyrange's has only its ids."""
    name = view.instance_id or view.member_id
    told = read_metadata(view.metadata) or MemberMetadata(name)
    told = replace(told, host=told.host or view.client_host)
    return LiveMember(name, view.instance_id is not None, told)
