"""What the commands of the volume guard share: the cluster, and the guard's options.

Rule of this file: nothing of Spark and no broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from keyrange.cli.arguments import named_values

if TYPE_CHECKING:
    from keyrange.options.volumes import VolumeOptions

AdminServersOption = Annotated[
    str,
    typer.Option(
        "--bootstrap-servers",
        metavar="HOST:PORT,...",
        help="The Kafka cluster; stands for --option kafka.admin.bootstrap.servers.",
    ),
]


def guard_options(
    bootstrap_servers: str, given: list[str] | None, needs_limit: bool = True
) -> VolumeOptions:
    """The options of the guard. Raises INVALID_OPTIONS that names all that is wrong."""
    from keyrange.options.volumes import parse_volume_options

    options = named_values(given or [])
    if bootstrap_servers:
        options["kafka.admin.bootstrap.servers"] = bootstrap_servers
    return parse_volume_options(options, needs_limit)
