"""Rows for several tables, as a function answers with them: by the names of the tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from keyrange.errors import KeyrangeError, error
from keyrange.keyed_state.exact_values import row_converter_of
from keyrange.work.records import Place, Row, RowForm
from keyrange.work.task_context import Job

# Of a table, by its place among those of the job: its rows, and which of all rows they are; None
# for all of them.
Part = tuple[int, pa.RecordBatch, Sequence[int] | None]


class OneForm(RowForm):
    """The rows of a job with one table."""

    @property
    def width(self) -> int:
        """The fields of a tuple that is a row by itself."""
        return len(self.schema)

    def parts(self, rows: Sequence[Row]) -> list[Part]:
        return [(0, self.batch_of(rows), None)]

    def cast_parts(self, result: Any) -> list[tuple[int, pa.RecordBatch]]:
        return [(0, self.cast(result))]

    def converter(self) -> Callable[[Row], Row]:
        """What makes of a row what its columns keep; it raises one of UNFIT."""
        return row_converter_of(self.schema.types)


class TableForms:
    """The rows of a job with several tables. A row is kept as (number of its table, row)."""

    width = None

    def __init__(self, job: Job) -> None:
        self._names = [each.name for each in job.outputs]
        self._forms = [RowForm(each.schema, each.keys, each.topic) for each in job.outputs]
        self.may_refuse = any(each.may_refuse for each in self._forms)

    def rows_of(self, result: Any, place: Place) -> Sequence[Row]:
        """The rows of an answer that is not None. Raises WRONG_RESULT."""
        return [
            (at, row)
            for at, own in self._of_tables(result, place)
            for row in self._forms[at].rows_of(own, place)
        ]

    def owned(self, row: Row) -> Row:
        at, own = row
        return at, self._forms[at].owned(own)

    def parts(self, rows: Sequence[Row]) -> list[Part]:
        places: list[list[int]] = [[] for _ in self._forms]
        for number, (at, _) in enumerate(rows):
            places[at].append(number)
        return [
            (at, form.batch_of([rows[number][1] for number in own]), own)
            for at, (form, own) in enumerate(zip(self._forms, places, strict=True))
        ]

    def check_types(self, rows: Sequence[Row], place: Place) -> None:
        for at, row in rows:
            self._forms[at].check_types([row], place)

    def cast_parts(self, result: Any) -> list[tuple[int, pa.RecordBatch]]:
        """The batches that a function of batches answers with. Raises WRONG_RESULT."""
        answered = [] if result is None else self._of_tables(result, {})
        return [(at, self._forms[at].cast(own)) for at, own in answered]

    def converter(self) -> Callable[[Row], Row]:
        converters = [row_converter_of(each.schema.types) for each in self._forms]
        return lambda row: (row[0], converters[row[0]](row[1]))

    def _of_tables(self, result: Any, place: Place) -> Iterator[tuple[int, Any]]:
        """What an answer has for tables, by their numbers."""
        if not isinstance(result, Mapping):
            raise self._wrong(f"a value of type {type(result).__name__}", place)
        for name, own in result.items():
            if name not in self._names:
                raise self._wrong(f"rows for {str(name)[:100]!r}", place)
            if own is not None:
                yield self._names.index(name), own

    def _wrong(self, found: str, place: Place) -> KeyrangeError:
        tables = ", ".join(map(repr, self._names))
        return error(
            "WRONG_RESULT",
            f"the function answered with {found}, and its rows are for {tables}",
            **place,
        )


def form_of(job: Job) -> OneForm | TableForms:
    if any(each.name for each in job.outputs):
        return TableForms(job)
    return OneForm(job.schema, job.output.keys, job.output.topic)
