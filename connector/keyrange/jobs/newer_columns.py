"""A table that follows its schema while the query runs: before a batch is planned the planner asks
for the newest schemas of keys and values, and tells its tasks of those that only add fields.

Tasks say by which columns they have written files, and the manifest keeps these. A batch without a
manifest is planned anew, and read by what is the newest then.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import astuple, replace
from typing import Any, Final

from keyrange.errors import KeyrangeError
from keyrange.formats.format import format_of
from keyrange.formats.left_out import changed, fields_beyond
from keyrange.jobs.definition import JobDefinition
from keyrange.jobs.record_columns import schema_without_function
from keyrange.kafka.cluster import Cluster
from keyrange.model.value_forms import Schema, UnfitSchema, ValueForms
from keyrange.options import SourceOptions
from keyrange.values.forms import is_asked_for, newest, with_schemas
from keyrange.values.reading import type_of
from keyrange.work.outcome_rows import HIDDEN

_log = logging.getLogger(__name__)

# What was registered before a batch was planned is in records of this batch at the earliest.
_PAUSE_S: Final = 1.0
# It takes a tenth of a second to look into the last records of 32 partitions.
_PAUSE_OF_RECORDS_S: Final = 5.0
# Behind an answer that says nothing new to go by.
_LONG_PAUSE_S: Final = 30.0


def follows(options: SourceOptions, definition: JobDefinition) -> bool:
    """Whether the job's table gets columns while the query runs: it takes records as they are, by
    schemas that no option says."""
    tables = definition.tables
    is_plain = not (definition.function or definition.topics or definition.holds)
    evolves = is_plain and len(tables) == 1 and tables[0].evolves
    return evolves and any(is_asked_for(options, each) for each in definition.forms.columns)


def followed(definition: JobDefinition, newer: Mapping[str, Any]) -> JobDefinition:
    """The job of a batch that is read by newer schemas, as `NewestColumns` tells of them."""
    schemas: Any = {
        side: (Schema(text, message, tuple(map(tuple, references))), id)
        for side, ((text, message, references), id) in newer["schemas"].items()
    }
    forms = with_schemas(definition.forms, schemas)
    return replace(
        definition, forms=forms, tables=(replace(definition.tables[0], schema=newer["columns"]),)
    )


class NewestColumns:
    """Asks again and again in one run of a query, which goes on by what it knows where nobody
    answers. `options` are those that the user gave."""

    def __init__(self, options: SourceOptions, definition: JobDefinition, cluster: Cluster) -> None:
        self._options, self._cluster = options, cluster
        self._own = self._forms = definition.forms
        asked = (each for each in definition.forms.columns if is_asked_for(options, each))
        self._pause_s = _PAUSE_S if all(each.framed for each in asked) else _PAUSE_OF_RECORDS_S
        self._ask_at = 0.0
        self._told = ""
        self._newer: Mapping[str, Any] | None = None

    def __call__(self) -> Mapping[str, Any] | None:
        """What tasks are told of the schemas of the next batch; None where they are the job's."""
        if time.monotonic() >= self._ask_at:
            why = self._ask()
            self._ask_at = time.monotonic() + (_LONG_PAUSE_S if why else self._pause_s)
            if why and why != self._told:
                _log.warning("the query goes on with the columns that it has: %s", why)
            self._told = why
        return self._newer

    def _ask(self) -> str:
        """Take in what is new; why that cannot be, "" where it can."""
        try:
            found = newest(self._options, self._forms, self._cluster)
            if found == self._forms:
                return ""
            added: list[str] = []
            forms = self._own.columns, self._forms.columns, found.columns
            for own, was, form in zip(*forms, strict=True):
                types = type_of(form), type_of(was)
                if other := next(changed(*types), None):
                    text = f"the newest schema of {form.column}s does more than to add fields"
                    return f"{text}: {other}. Start the query again to go by it"
                # Records of before may be pending, and others may still be written by it.
                for each in (own, was):
                    format_of(form.format).check_reads(form.schema, each.schema, form.settings)
                added += fields_beyond(*types)
            self._take(found)
        except (KeyrangeError, UnfitSchema) as failure:
            # What is not known now may be known for a later batch.
            return f"it cannot go by the newest schema: {failure}"
        if added:
            _log.info("the query reads new fields from this batch on: %s", ", ".join(added))
        return ""

    def _take(self, forms: ValueForms) -> None:
        table = schema_without_function(replace(self._options, forms=forms)).toNullable()
        if HIDDEN in table.names:
            raise UnfitSchema(f"column {HIDDEN!r} is keyrange's own")
        self._newer = {
            "columns": table.json(),
            "schemas": {
                form.column: [list(astuple(form.schema)), form.schema_id]
                for form, own in zip(forms.columns, self._own.columns, strict=True)
                if form != own
            },
        }
        self._forms = forms
