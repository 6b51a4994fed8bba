"""What commands that look at dead letters share: where they are, and which of them are meant."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from keyrange.cli.commits_opening import storage_of

if TYPE_CHECKING:
    from keyrange.delta.dead_letters import DeadLetter, DeadLetters

LettersOption = Annotated[
    str,
    typer.Option("--dead-letters", metavar="PATH", help="Their table; usually TABLE_dead_letters."),
]
ErrorOption = Annotated[
    str, typer.Option("--error", help="Only those whose error holds this text.")
]
SinceOption = Annotated[
    str,
    typer.Option(
        "--since", metavar="TIME", help="Only those from then on: ISO 8601, or how long ago (2h)."
    ),
]


def open_letters(table: str, dead_letters: str, named: Mapping[str, str]) -> DeadLetters:
    """The dead letters of a commit table, which may have none.

    Raises INVALID_OPTIONS where there is neither a table of theirs nor a commit table.
    """
    from keyrange.delta import commit_table
    from keyrange.delta.dead_letters import LAYOUT, DeadLetters
    from keyrange.delta.delta_rs import DeltaRsStore
    from keyrange.errors import invalid_options

    storage = storage_of(named)
    path = dead_letters or f"{table.rstrip('/')}_dead_letters"
    store = DeltaRsStore(path, LAYOUT, storage)
    if not store.refresh():
        if dead_letters:
            raise invalid_options([f"there is no table of dead letters at {path}"])
        if not DeltaRsStore(table, commit_table.LAYOUT, storage).refresh():
            raise invalid_options([f"there is no commit table at {table}, and none at {path}"])
    return DeadLetters(store)


def chosen_letters(
    letters: Iterable[DeadLetter], group: str, source: str, error: str, since_ms: int
) -> list[DeadLetter]:
    """Those of a group and a source (the beginning of its id), by error text and time."""
    text = error.lower()
    return [
        each
        for each in letters
        if group in ("", each.group)
        and each.source_id.startswith(source)
        and text in each.error.lower()
        and each.written_at_ms >= since_ms
    ]
