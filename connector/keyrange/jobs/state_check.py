"""Whether a job's variables take in the state that there is, before a task reads any of it."""

from __future__ import annotations

from collections.abc import Iterable

from keyrange.errors import KeyrangeError
from keyrange.keyed_state.model.state_runs import StateRun
from keyrange.keyed_state.state_files import FileBlocks
from keyrange.keyed_state.variables import StateForm, Variable
from keyrange.options.commits import CommitOptions
from keyrange.storage.directory import Directory


def check_variables(
    variables: tuple[Variable, ...], runs: Iterable[StateRun], options: CommitOptions
) -> None:
    """By the file that was written last. Raises STATE_SCHEMA_CHANGED."""
    newest = max(runs, key=lambda run: run.until_seq, default=None)
    if newest is None:
        return
    directory = Directory(options.state_directory, options.revealed_storage())
    try:
        FileBlocks(directory, newest, StateForm(variables))
    except KeyrangeError as failure:
        # Whether a file can be read, the task says that needs it.
        if failure.condition.name == "STATE_SCHEMA_CHANGED":
            raise
