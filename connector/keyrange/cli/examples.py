"""Examples of every command, which its `--help` ends with. A test parses each of them.

Rule of this file: a table, and how it is printed. Places and names are those of the guides.
"""

from __future__ import annotations

from typing import Final

import typer

# By the words of the command; an example may end with a comment.
EXAMPLES: Final[dict[str, tuple[str, ...]]] = {
    "broker start": (
        "keyrange broker start                  # prints HOST:PORT",
        "keyrange broker start --version 3.9.2 --dir /tmp/broker",
    ),
    "broker stop": ("keyrange broker stop                   # its data stays",),
    "broker status": ("keyrange broker status --output json   # exit code 3: none runs",),
    "checkpoint show": (
        "keyrange checkpoint show s3://lake/_checkpoints/orders",
        "keyrange checkpoint show /lake/_checkpoints/orders --batches 20",
    ),
    "checkpoint export": (
        "keyrange checkpoint export /lake/_checkpoints/orders   # JSON for startingOffsets",
        "keyrange checkpoint export /lake/_checkpoints/orders --to /lake/_checkpoints/moved",
        "keyrange checkpoint export /lake/_checkpoints/prices --commit-table /lake/prices_commits",
    ),
    "commits show": (
        "keyrange commits show /lake/prices_commits",
        "keyrange commits show /lake/prices_commits --topic orders --partition 3 --ranges 20",
        "keyrange commits show /lake/prices_commits --live --bootstrap-servers broker:9092",
    ),
    "commits gaps": (
        "keyrange commits gaps /lake/prices_commits",
        "keyrange commits gaps /lake/prices_commits --topic orders --output json",
    ),
    "commits history": (
        "keyrange commits history /lake/prices_commits --since 2h",
        "keyrange commits history /lake/prices_commits --since 2026-05-01T12:00:00Z --limit 100",
    ),
    "commits verify": (
        "keyrange commits verify /lake/prices_commits",
        "keyrange commits verify /lake/prices_commits --sink /lake/prices",
    ),
    "commits reset": (
        "keyrange commits reset /lake/prices_commits --topic orders --partition 3 --to 41200 \\\n"
        '    --why "bad prices since noon"        # says what it would do',
        "keyrange commits reset /lake/prices_commits --topic orders --to commit:118 \\\n"
        '    --why "bad release" --checkpoint /lake/_checkpoints/prices --confirm',
    ),
    "deadletters list": (
        "keyrange deadletters list /lake/prices_commits --error KeyError --since 1d",
        "keyrange deadletters list /lake/prices_commits --status dead --output json",
    ),
    "deadletters show": ("keyrange deadletters show /lake/prices_commits orders-3:41207",),
    "deadletters replay": (
        'keyrange deadletters replay /lake/prices_commits --error KeyError --why "mended"',
        'keyrange deadletters replay /lake/prices_commits --all --why "mended" --confirm',
    ),
    "members list": (
        "keyrange members list /lake/orders_members",
        "keyrange members list /lake/orders_members --live --bootstrap-servers broker:9092",
    ),
    "members history": ("keyrange members history /lake/orders_members --since 2h",),
    "members rebalance": (
        'keyrange members rebalance /lake/orders_members --why "a rack was added" --confirm',
    ),
    "members remove": (
        'keyrange members remove /lake/orders_members orders-3 --why "the host is gone" --confirm',
    ),
    "ranges plan": (
        "keyrange ranges plan --bootstrap-servers broker:9092 --topic orders \\\n"
        "    --option parallelism=32",
        "keyrange ranges plan --bootstrap-servers broker:9092 --topic orders --suggest",
    ),
    "ranges owner": (
        "keyrange ranges owner --key N14228 --bootstrap-servers broker:9092 --topic orders",
        "keyrange ranges owner --key hex:00ff --partitions 12 --ranges 16   # without a broker",
        "keyrange ranges owner --key N14228 --topic orders --members /lake/orders_members",
        "keyrange ranges owner --key N14228 --topic orders --members /lake/orders_members \\\n"
        "    --commits /lake/orders_commits --option slot.directory=/var/lib/keyrange",
    ),
    "state show": (
        "keyrange state show /lake/orders_commits",
        "keyrange state show /lake/orders_commits --topic orders --count --output json",
    ),
    "state get": (
        "keyrange state get /lake/orders_commits --key customer-7",
        "keyrange state get /lake/orders_commits --key hex:00ff --at 118",
    ),
    "state history": ("keyrange state history /lake/orders_commits --key customer-7 --limit 50",),
    "state diff": ("keyrange state diff /lake/orders_commits --from 118 --at 120",),
    "state export": ("keyrange state export /lake/orders_commits --to state.parquet",),
    "state verify": (
        "keyrange state verify commits --function orders:count --bootstrap-servers b:9092",
        "keyrange state verify /lake/orders_commits   # exit code 1: a file is damaged",
    ),
    "volumes show": (
        "keyrange volumes show --bootstrap-servers broker:9092 --option min.available.ratio=0.1",
        "keyrange volumes show --bootstrap-servers broker:9092 --follow --every 10s",
    ),
    "volumes guard": (
        "keyrange volumes guard --bootstrap-servers broker:9092 \\\n"
        "    --option min.available.ratio=0.1     # looks, and alters nothing",
    ),
    "volumes reap": ("keyrange volumes reap --bootstrap-servers broker:9092",),
    "volumes release": (
        "keyrange volumes release --bootstrap-servers broker:9092             # what it would do",
        "keyrange volumes release --bootstrap-servers broker:9092 --confirm",
    ),
    "doctor": ("keyrange doctor", "keyrange doctor --bootstrap-servers broker:9092 --topic orders"),
    "errors": (
        "keyrange errors COMMITS_FENCED",
        "keyrange errors KAFKA_DATA_LOSS        # all that begin with it",
    ),
    "options": (
        "keyrange options",
        "keyrange options maxOffsetsPerTrigger",
        "keyrange options --output json",
    ),
    "report": (
        "keyrange report s3://lake/_checkpoints/orders --out orders.html",
        "keyrange report /lake/_checkpoints/prices --commits /lake/prices_commits --serve",
    ),
    "watch": (
        "keyrange watch s3://lake/_checkpoints/orders --bootstrap-servers broker:9092",
        "keyrange watch /lake/_checkpoints/orders --once --output json",
    ),
    "records": (
        "keyrange records --key N14228 --bootstrap-servers broker:9092 --topic orders --limit 20",
        "keyrange records --offset orders-3:41207 --bootstrap-servers broker:9092",
        "keyrange records --key null --bootstrap-servers broker:9092 --topic orders --output json",
    ),
}


def add_examples(app: typer.Typer, words: tuple[str, ...] = ()) -> None:
    """Let the help of every command end with its examples."""
    for group in app.registered_groups:
        if group.typer_instance is not None:
            add_examples(group.typer_instance, (*words, str(group.name)))
    for command in app.registered_commands:
        assert command.callback is not None
        name = command.name or command.callback.__name__
        if found := EXAMPLES.get(" ".join((*words, name))):
            lines = [f"  {line}" for example in found for line in example.splitlines()]
            command.epilog = "\b\n" + "\n".join(["Examples:", *lines])
