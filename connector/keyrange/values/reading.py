"""Keys and values of batches of records, read as their forms say."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from keyrange.errors import error
from keyrange.model.columns import PLACE
from keyrange.model.offsets import TopicPartition
from keyrange.model.value_forms import BAD_COLUMN, ColumnForm, ValueForms
from keyrange.values.formats import format_of


def type_of(form: ColumnForm) -> pa.DataType:
    """That of a column when it is read. Raises UnfitSchema."""
    return format_of(form.format).type_of(form.schema, form.settings)


def types_of(forms: ValueForms, source: Mapping[str, pa.DataType]) -> dict[str, pa.DataType]:
    """The columns of the source, in their order, with the types that they are read into, and those
    that say more of them. Raises UnfitSchema."""
    read = {form.column: type_of(form) for form in forms.columns if form.column in source}
    found = {name: read.get(name, kind) for name, kind in source.items()}
    if forms.rescued:
        found[forms.rescued] = pa.string()
    if forms.columns and forms.bad == "column":
        found[BAD_COLUMN] = pa.string()
    return found


class ValueReader:
    """Reads batch after batch in one task."""

    def __init__(self, forms: ValueForms) -> None:
        from keyrange.values.payloads import Payloads

        self._forms = forms
        self._payloads = Payloads.of
        self._decoders = {
            form.column: format_of(form.format).decoder(form.schema, form.schema, form.settings)
            for form in forms.columns
        }

    def read(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, Mapping[int, str]]:
        """The batch with its columns read, and of the rows that are not to be gone on with why, by
        their numbers: names of fields and kinds, nothing of what is in them."""
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        why: dict[int, str] = {}
        rescued = None
        for name, decoder in self._decoders.items():
            if name not in columns:
                continue
            found = decoder.read(self._payloads(columns[name]))
            columns[name] = found.column
            if name == "value":
                rescued = found.rescued
            for row, text in zip(found.bad.rows.tolist(), found.bad.errors, strict=True):
                told = f"{name}: {text}"
                why[row] = f"{why[row]}; {told}" if row in why else told
        rows = batch.num_rows
        if self._forms.rescued:
            columns[self._forms.rescued] = (
                pa.nulls(rows, pa.string()) if rescued is None else rescued
            )
        if self._forms.bad == "column":
            columns[BAD_COLUMN] = _texts(why, rows)
        goes_on = self._forms.bad in ("null", "column")
        return pa.RecordBatch.from_pydict(columns), {} if goes_on else why

    def read_all(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with its columns read. Raises BAD_VALUE for the first row that is not to be
        gone on with, of a batch that says which record it is."""
        read, unreadable = self.read(batch)
        if unreadable:
            row = min(unreadable)
            topic, partition, offset = (batch.column(name)[row].as_py() for name in PLACE)
            at = TopicPartition(topic, partition)
            raise error("BAD_VALUE", unreadable[row], partition=at, offset=offset)
        return read


def _texts(why: Mapping[int, str], rows: int) -> pa.StringArray:
    if not why:
        return pa.nulls(rows, pa.string())
    return pa.array([why.get(row) for row in range(rows)], pa.string())
