"""What all commands have: examples, which their `--help` ends with, and options in groups.

Rule of this file: a table, and how it is printed. Places and names are those of the guides. A test
parses each example.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import wraps
from itertools import groupby
from typing import Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

from keyrange.cli.exit_codes import EXIT_CODES
from keyrange.text.wrapping import wrapped

# Characters: more than any first sentence has.
_WHOLE: Final = 1_000

# A line that begins with the program is an example; it may end with a comment.
_TEXT: Final = r"""
keyrange broker start                  # prints HOST:PORT
keyrange broker start --version 3.9.2 --dir /tmp/broker
keyrange broker stop                   # its data stays
keyrange broker status --output json   # exit code 3: none runs
keyrange checkpoint show s3://lake/_checkpoints/orders
keyrange checkpoint show /lake/_checkpoints/orders --batches 20
keyrange checkpoint export /lake/_checkpoints/orders   # JSON for startingOffsets
keyrange checkpoint export /lake/_checkpoints/orders --to /lake/_checkpoints/moved
keyrange checkpoint export /lake/_checkpoints/prices --commit-table /lake/prices_commits
keyrange commits show /lake/prices_commits
keyrange commits show /lake/prices_commits --topic orders --partition 3 --ranges 20
keyrange commits show /lake/prices_commits --live --bootstrap-servers broker:9092
keyrange commits gaps /lake/prices_commits
keyrange commits gaps /lake/prices_commits --topic orders --output json
keyrange commits history /lake/prices_commits --since 2h
keyrange commits history /lake/prices_commits --since 2026-05-01T12:00:00Z --limit 100
keyrange commits verify /lake/prices_commits
keyrange commits verify /lake/prices_commits --sink /lake/prices
keyrange commits reset /lake/prices_commits --topic orders --partition 3 --to 41200 \
    --why "bad prices since noon"        # says what it would do
keyrange commits reset /lake/prices_commits --topic orders --to commit:118 \
    --why "bad release" --checkpoint /lake/_checkpoints/prices --confirm
keyrange deadletters list /lake/prices_commits --error KeyError --since 1d
keyrange deadletters list /lake/prices_commits --status dead --output json
keyrange deadletters show /lake/prices_commits orders-3:41207
keyrange deadletters show /lake/prices_commits orders-3 --key N14228
keyrange deadletters replay /lake/prices_commits --error KeyError --why "mended"
keyrange deadletters replay /lake/prices_commits --all --why "mended" --confirm
keyrange members list /lake/orders_members
keyrange members list /lake/orders_members --live --bootstrap-servers broker:9092
keyrange members history /lake/orders_members --since 2h
keyrange members rebalance /lake/orders_members --why "a rack was added" --confirm
keyrange members scale /lake/orders_members 3 --why "a third host is coming" --confirm
keyrange members remove /lake/orders_members orders-3 --why "the host is gone" --confirm
keyrange ranges plan --bootstrap-servers broker:9092 --topic orders \
    --option parallelism=32
keyrange ranges plan --bootstrap-servers broker:9092 --topic orders --suggest
keyrange ranges owner --key N14228 --bootstrap-servers broker:9092 --topic orders
keyrange ranges owner --key hex:00ff --partitions 12 --ranges 16   # without a broker
keyrange ranges owner --key N14228 --topic orders --members /lake/orders_members
keyrange ranges owner --key N14228 --topic orders --members /lake/orders_members \
    --commits /lake/orders_commits --option slot.directory=/var/lib/keyrange
keyrange state show /lake/orders_commits
keyrange state show /lake/orders_commits --topic orders --output json
keyrange state list /lake/orders_commits --limit 50
keyrange state get /lake/orders_commits --key customer-7
keyrange state get /lake/orders_commits --key hex:00ff --at 118
keyrange state history /lake/orders_commits --key customer-7 --limit 50
keyrange state diff /lake/orders_commits --from 118 --at 120
keyrange state export /lake/orders_commits --to state.parquet
keyrange state import /lake/new_commits --from state.parquet \
    --topic orders --bootstrap-servers broker:9092 --confirm
keyrange state serve /lake/orders_commits --port 8700
keyrange state serve /lake/orders_commits --address 0.0.0.0 --token-file /run/secrets/token
keyrange state verify commits --function orders:count --bootstrap-servers b:9092 \
    --option valueFormat=json --option "valueSchema=id int, amount double"   # as the job has them
keyrange state verify /lake/orders_commits   # exit code 1: a file is damaged
keyrange volumes show --bootstrap-servers broker:9092 --option min.available.ratio=0.1
keyrange volumes show --bootstrap-servers broker:9092 --follow --every 10s
keyrange volumes guard --bootstrap-servers broker:9092 \
    --option min.available.ratio=0.1     # looks, and alters nothing
keyrange volumes reap --bootstrap-servers broker:9092
keyrange volumes release --bootstrap-servers broker:9092             # what it would do
keyrange volumes release --bootstrap-servers broker:9092 --confirm
keyrange doctor
keyrange doctor --bootstrap-servers broker:9092 --topic orders
keyrange errors COMMITS_FENCED
keyrange errors KAFKA_DATA_LOSS        # all that begin with it
keyrange options
keyrange options maxOffsetsPerTrigger
keyrange options --output json
keyrange report s3://lake/_checkpoints/orders --out orders.html
keyrange report /lake/_checkpoints/prices --commits /lake/prices_commits --serve
keyrange watch s3://lake/_checkpoints/orders --bootstrap-servers broker:9092
keyrange watch /lake/_checkpoints/orders --once --output json
keyrange records --key N14228 --bootstrap-servers broker:9092 --topic orders --limit 20
keyrange records --offset orders-3:41207 --bootstrap-servers broker:9092
keyrange records --last 5 --follow --bootstrap-servers broker:9092 --topic orders \
    --format "%k %o %v"
keyrange records --key null --bootstrap-servers broker:9092 --topic orders --output json
"""


def _words_of(example: str) -> str:
    """The words of its command: a noun and a verb, or one alone."""
    return str(re.findall(r"keyrange ([a-z]+(?: [a-z]+(?= |$))?)", example)[0])


EXAMPLES: Final = {
    words: [*found]
    for words, found in groupby(re.split(r"\n(?=keyrange )", _TEXT.strip()), _words_of)
}


class _Page(TyperCommand):
    """The help of a command, which breaks between words only and ends with examples."""

    def get_short_help_str(self, limit: int = 45) -> str:
        # A list breaks what has no room on its line; by click's limit it would be cut.
        return super().get_short_help_str(limit + _WHOLE)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        _, _, words = ctx.command_path.partition(" ")
        with formatter.section("Examples"):
            for example in EXAMPLES.get(words, ()):
                for line in _lines(example, formatter.width - 2):
                    formatter.write(f"  {line}\n")


class Pages(TyperGroup):
    """The help of a group of commands; that of all of them ends with the exit codes."""

    def get_short_help_str(self, limit: int = 45) -> str:
        return super().get_short_help_str(limit + _WHOLE)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        if ctx.parent is None:
            with formatter.section("Exit codes"):
                formatter.write_dl(EXIT_CODES)


def _lines(example: str, width: int) -> list[str]:
    """An example in lines that a shell takes; an option stays beside its value."""
    command = re.sub(r" \\\n *", " ", example)
    if len(command) <= width:
        return [command]
    command, _, comment = command.partition(" # ")
    units = re.sub(r'--\S+ (?:"[^"]*"|[^-"]\S*)', lambda it: it[0].replace(" ", "\0"), command)
    lines = " \\\n".join(wrapped(units.strip(), width - 2, "", "    ")).replace("\0", " ")
    return [*wrapped(comment.strip(), width, "# "), *lines.split("\n")]


def spread(command: Callable[..., None]) -> Callable[..., None]:
    """A command as typer takes it: a parameter that is a dataclass is an option for each field."""
    signature = inspect.signature(command, eval_str=True)
    groups = {name: each.annotation for name, each in signature.parameters.items()}
    groups = {name: group for name, group in groups.items() if is_dataclass(group)}

    @wraps(command)
    def taking(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{each.name: given.pop(each.name) for each in fields(group)})
        command(**given)

    options: list[inspect.Parameter] = []
    for name, own in signature.parameters.items():
        of_group = name in groups and inspect.signature(groups[name], eval_str=True)
        options += of_group.parameters.values() if of_group else [own]
    told = [each.replace(kind=each.KEYWORD_ONLY) for each in options]
    taking.__signature__ = inspect.Signature(told)  # type: ignore[attr-defined]
    return taking


def add_examples(app: typer.Typer) -> None:
    """Let the help of every command end with its examples, and options come in groups."""
    for group in app.registered_groups:
        assert group.typer_instance is not None
        group.cls = Pages
        add_examples(group.typer_instance)
    for command in app.registered_commands:
        assert command.callback is not None
        command.callback, command.cls = spread(command.callback), _Page
