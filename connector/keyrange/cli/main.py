"""The command `keyrange`: composition of its nouns, and what an error looks like.

Rule of this file: a reader that closes the pipe ends it without a word. Nouns import nothing heavy
before their commands run.
"""

from __future__ import annotations

import os
import signal
import sys
from io import TextIOWrapper
from typing import Annotated, Any, Final

import typer

import keyrange
from keyrange.cli import broker, doctor, error_reference, option_reference, records
from keyrange.cli.checkpoint import commands as checkpoint
from keyrange.cli.commits import commands as commits
from keyrange.cli.deadletters import commands as deadletters
from keyrange.cli.examples import Pages, add_examples
from keyrange.cli.exit_codes import ExitCode
from keyrange.cli.members import commands as members
from keyrange.cli.ranges import commands as ranges
from keyrange.cli.render import note, print_text, say_failure
from keyrange.cli.report import commands as report
from keyrange.cli.state import commands as state
from keyrange.cli.volumes import commands as volumes
from keyrange.cli.watch import commands as watch
from keyrange.errors import KeyrangeError
from keyrange.observing.logs import follow_environment

app = typer.Typer(
    name="keyrange",
    help="A Kafka source for Spark Structured Streaming: look at it, and try it out. Data goes to "
    "stdout, everything else to stderr; --output json is for programs.",
    cls=Pages,
    no_args_is_help=True,
    # Plain text: it reads the same in a pipe, and rich is not loaded for it.
    rich_markup_mode=None,
    # A traceback with the values of local variables could show a password.
    pretty_exceptions_enable=False,
)

# typer exports what inherits from it, and not itself.
_UsageError: Final[Any] = typer.BadParameter.__base__


def _print_version(wanted: bool) -> None:
    if wanted:
        print_text(f"keyrange {keyrange.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    pass


# One line per noun; each is a module beside this one with an `app` of its own.
app.add_typer(broker.app, name="broker")
app.add_typer(checkpoint.app, name="checkpoint")
app.add_typer(commits.app, name="commits")
app.add_typer(deadletters.app, name="deadletters")
app.add_typer(members.app, name="members")
app.add_typer(ranges.app, name="ranges")
app.add_typer(state.app, name="state")
app.add_typer(volumes.app, name="volumes")
app.command()(doctor.doctor)
app.command()(error_reference.errors)
app.command()(option_reference.options)
app.command()(records.records)
app.command()(report.report)
app.command()(watch.watch)


# Behind the last noun.
add_examples(app)


def main() -> None:
    """Run the command line, and end this process with its exit code."""
    for name in ("stdout", "stderr"):
        # Whoever started it may have closed them: what is said there nobody reads.
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115  as long as it runs
    # What has it ignored stays ignored.
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _terminate)
    code = _run()
    if "deltalake" in sys.modules:
        # Arrow's threads may still let go of files that Python opened for them. While the
        # interpreter shuts down that aborts the process, now and then, with all its work done.
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def _terminate(*_: object) -> None:
    """SIGTERM ends a command as Ctrl-C does: it gives the terminal back and closes what is open."""
    raise SystemExit(ExitCode.TERMINATED)


def _run() -> int:
    if isinstance(sys.stdout, TextIOWrapper):
        # A terminal of another encoding than UTF-8 shows what it can.
        sys.stdout.reconfigure(errors="replace")
    follow_environment()
    try:
        code = app(prog_name="keyrange", standalone_mode=False) or ExitCode.SUCCESS
    except _UsageError as failure:
        code = _say_usage(failure)
    except SystemExit as ending:
        code = ending.code if isinstance(ending.code, int) else int(ending.code is not None)
    except KeyrangeError as failure:
        say_failure(" ".join(str(failure).split()), failure.condition.name)
        code = ExitCode.ERROR
    except KeyboardInterrupt:
        code = ExitCode.INTERRUPTED
    except BrokenPipeError:
        return _leave_pipe()
    except OSError as failure:
        # A place that cannot be read or written, or has no room: the text names it.
        say_failure(str(failure), type(failure).__name__)
        code = ExitCode.ERROR
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        return _leave_pipe()
    return code


def _say_usage(failure: Any) -> int:
    """Say what is wrong with the command line, in lines that a terminal breaks between words."""
    said = failure.format_message()
    if failure.ctx is None or "\n" in said:
        # The help, where a command was to be named.
        failure.show()
    else:
        note(failure.ctx.get_usage())
        note(f"Try '{failure.ctx.command_path} --help' for help.")
        say_failure(said, type(failure).__name__)
    return ExitCode.USAGE


def _leave_pipe() -> int:
    """The reader has seen enough. Without this, Python complains of the pipe when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return ExitCode.ERROR  # as typer does where it is the one to notice


if __name__ == "__main__":
    main()
