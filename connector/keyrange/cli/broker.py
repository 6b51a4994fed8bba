"""`keyrange broker`: a real Kafka broker on this machine, to try things out.

Rule of this file: it only asks `embedded.daemon` and prints; everything heavy is imported by the
command that needs it.
"""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from keyrange.cli.exit_codes import ExitCode
from keyrange.cli.render import OutputFormat, OutputOption, note, print_as, print_record, print_text

app = typer.Typer(no_args_is_help=True, help="Run a Kafka broker on this machine, to try keyrange.")

DirectoryOption = Annotated[
    Path | None,
    typer.Option("--dir", help="Where the broker keeps its data; default: the user's cache."),
]


def _directory(named: Path | None) -> Path:
    from keyrange.embedded.daemon import default_directory

    return named.absolute() if named else default_directory()


@app.command()
def start(
    version: Annotated[str, typer.Option(help="The Kafka version, 3.3 or newer, e.g. 4.3.1.")] = "",
    directory: DirectoryOption = None,
    output: OutputOption = OutputFormat.TEXT,
) -> None:
    """Start a broker that outlives this command.

    If the broker runs already, the command prints its address.
    """
    from keyrange.embedded import daemon
    from keyrange.embedded.settings import BrokerSettings

    settings = BrokerSettings(version=version) if version else BrokerSettings()
    started = daemon.start(_directory(directory), settings, note)
    if version and started.version != version:
        note(f"a broker of version {started.version} was running already")
    values = asdict(started)
    print_as(output, "broker.start/1", values, lambda it: print_text(it["bootstrap_servers"]))


@app.command()
def stop(directory: DirectoryOption = None) -> None:
    """Stop the broker, and keep its data for the next start.

    If no broker runs, the command does nothing.
    """
    from keyrange.embedded import daemon

    stopped = daemon.stop(_directory(directory))
    note(f"stopped the broker (process {stopped.pid})" if stopped else "no broker is running")


@app.command()
def status(directory: DirectoryOption = None, output: OutputOption = OutputFormat.TEXT) -> None:
    """Show the broker that runs; exit code 3 if none does."""
    from keyrange.embedded import daemon

    running = daemon.status(_directory(directory))
    if running is None:
        note("no broker is running")
        raise typer.Exit(ExitCode.NO_BROKER)
    print_as(output, "broker.status/1", asdict(running), partial(print_record, "broker"))
