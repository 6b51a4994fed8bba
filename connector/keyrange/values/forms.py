"""How keys and values are read: what options say of it, made whole on the driver.

Tasks are told the forms and ask nobody: all of them, and a batch that runs again, read by the same
schemas for as long as a query runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from keyrange.errors import invalid_options
from keyrange.model.value_forms import (
    RAW,
    REGISTERED,
    SELF_DESCRIBED,
    ColumnForm,
    ReadSettings,
    RowsForm,
    Schema,
    Side,
    UnfitSchema,
    ValueForms,
    locations,
)
from keyrange.options import SourceOptions
from keyrange.options.registry import subject_of
from keyrange.options.value_parsers import Violations

if TYPE_CHECKING:
    from keyrange.kafka.cluster import Cluster

_UTC: Final = "UTC"
# Formats that may read JSON, whose times may name no zone.
_OF_COLUMNS: Final = ("json", *SELF_DESCRIBED)


def value_forms(options: SourceOptions) -> ValueForms:
    """The forms of keys and values. A registry is asked for the schemas that no option says.

    Raises INVALID_OPTIONS for a schema that its format does not read or a subject that is not
    named, and as `reader_schema` does.
    """
    values = options.values
    if not values.typed:
        return RAW
    settings = ReadSettings(values.time_zone or _UTC, bool(values.rescued))
    forms = []
    for side in values.read_columns:
        form, text, location, message = values.form(side)
        given = ColumnForm(side, form, Schema(text, message), settings)
        forms.append(_registered(options, _read(options, given, location)))
    # It brings pyarrow, which Spark's lookup of the source does without.
    from keyrange.values.reading import told

    wrong, known = [], []
    for each in forms:
        try:
            known.append(told(each))
        except UnfitSchema as failure:
            wrong.append(f"option '{each.column}Schema' {failure}")
    if wrong:
        raise invalid_options(wrong)
    return _checked(ValueForms(tuple(known), values.bad, values.rescued))


def is_asked_for(options: SourceOptions, form: ColumnForm) -> bool:
    """Whether a registry or the topic's own records say the schema, and no option does."""
    _, text, location, _ = options.values.form(form.column)
    asks = form.framed or form.format in SELF_DESCRIBED
    return asks and not (text or location)


def newest(options: SourceOptions, forms: ValueForms, cluster: Cluster) -> ValueForms:
    """The forms with the schemas that are asked for as they are now; the same ones where these are.
    Raises as `value_forms`, and UnfitSchema."""
    from keyrange.values.reading import told

    # Who asks for each batch is answered, or asks later.
    once = replace(options, registry=replace(options.registry, tries=1))
    schemas = {}
    for form in forms.columns:
        if is_asked_for(options, form):
            asked = replace(form, schema=Schema("", options.values.form(form.column)[-1]))
            found = _registered(once, asked, cluster)
            if found.schema_id is None or found.schema_id != form.schema_id:
                found = told(found)
                schemas[form.column] = found.schema, found.schema_id
    return with_schemas(forms, schemas)


def with_schemas(
    forms: ValueForms, schemas: Mapping[Side, tuple[Schema, int | str | None]]
) -> ValueForms:
    """The forms of a job with other schemas, and what a registry calls these. Raises as `in_zone`
    and `rows_after`."""
    columns = []
    for form in forms.columns:
        schema, id = schemas.get(form.column, (form.schema, form.schema_id))
        columns.append(replace(form, schema=schema, schema_id=id))
    found = _checked(replace(forms, columns=tuple(columns)))
    return found if forms.rows is None else rows_after(found, forms.rows.keys)


def _read(options: SourceOptions, form: ColumnForm, location: str) -> ColumnForm:
    """The form with the schema that is in a file, where one is named, and those of writers."""
    if not location:
        return form
    from keyrange.values.schema_files import schema_in

    storage = options.commits.revealed_storage()
    text, *writers = (
        schema_in(form.column, form.format, each, storage)
        for each in locations(form.format, location)
    )
    schema = replace(form.schema, text=text)
    return replace(form, schema=schema, writers=tuple(map(Schema, writers)))


def _registered(
    options: SourceOptions, form: ColumnForm, cluster: Cluster | None = None
) -> ColumnForm:
    """The form with what the registry says of it, where there is one. `cluster`: of who asks again
    and again."""
    registry = options.registry
    if not registry.urls or form.format not in REGISTERED:
        return (
            form
            if form.schema.text or form.format not in SELF_DESCRIBED
            else _said(options, form, cluster)
        )
    if form.schema.text:
        return replace(form, framed=True)
    violations = Violations()
    assert options.subscription is not None
    subject = subject_of(registry, form.column, options.subscription, violations)
    violations.check()
    from keyrange.registry.subjects import reader_schema

    found = reader_schema(registry, subject, form.format, again=cluster is not None)
    schema = replace(found.schema, message=form.schema.message or found.schema.message)
    return replace(form, schema=schema, framed=True, schema_id=found.id)


def _said(options: SourceOptions, form: ColumnForm, cluster: Cluster | None) -> ColumnForm:
    """The form with what the topic's own records say of it."""
    from keyrange.values.schemas_in_records import schema_in_records

    try:
        schema = schema_in_records(options, form.column, form.format, cluster)
    except UnfitSchema as failure:
        raise invalid_options(f"option '{form.column}Schema' has to say it: {failure}") from None
    return replace(form, schema=schema)


def in_zone(options: SourceOptions, session_zone: str) -> ValueForms:
    """The forms of a job: times that name no zone are of its session's, where option timeZone says
    none. Raises INVALID_OPTIONS."""
    forms = options.forms
    if options.values.time_zone:
        return forms

    def zoned(form: ColumnForm) -> ColumnForm:
        return replace(form, settings=replace(form.settings, time_zone=session_zone))

    rows = forms.rows and replace(forms.rows, key=zoned(forms.rows.key))
    return _checked(replace(forms, columns=tuple(map(zoned, forms.columns)), rows=rows))


def rows_after(forms: ValueForms, keys: tuple[str, ...]) -> ValueForms:
    """The forms of a table that holds the last row of each of `keys`: changes are read as the rows
    after them. Raises INVALID_OPTIONS where nulls would stand for what cannot be read: they would
    take the place of the last good row."""
    if forms.columns and forms.bad in ("null", "column"):
        raise invalid_options(
            f"option 'badValues' is {forms.bad}, and what cannot be read has no row in a table "
            "with keys: set it to fail or deadLetter"
        )
    form = forms.changes
    if form is None:
        return forms
    from keyrange.formats.format import change_format_of

    schema = change_format_of(form.format).key_schema(form.schema, keys)
    settings = replace(form.settings, rescues=False)
    key = replace(
        form, column="key", format="connect", schema=schema, schema_id=None, settings=settings
    )
    return replace(forms, rows=RowsForm(keys, _given_key(forms, key) or key))


def _given_key(forms: ValueForms, expected: ColumnForm) -> ColumnForm | None:
    """How options say that records' keys are read, None where they do not: of other columns that
    they have nothing is asked. Raises INVALID_OPTIONS."""
    given = next((each for each in forms.columns if each.column == "key"), None)
    if given is None:
        return None
    from keyrange.values.reading import type_of

    found, wanted = type_of(given), type_of(expected)
    named: Any = {each.name: each.type for each in found} if hasattr(found, "names") else {}
    wrong = [
        f"option 'keyFormat' reads keys as {found}, and keys are {each.name} of type {each.type}: "
        "leave it out where the connector writes keys as it writes values"
        for each in wanted
        if named.get(each.name) != each.type
    ]
    if wrong:
        raise invalid_options(wrong[:1])
    return given


def _checked(forms: ValueForms) -> ValueForms:
    for form in forms.columns:
        zone = form.settings.time_zone
        if form.format in _OF_COLUMNS and '"timestamp"' in form.schema.text and not _is_known(zone):
            raise invalid_options(
                f"times without a zone are of zone {zone[:40]!r}, which Python does not know: "
                "give option 'timeZone', or spark.sql.session.timeZone, as an offset such as "
                "+01:00 or as a region such as America/Los_Angeles"
            )
    return forms


def _is_known(time_zone: str) -> bool:
    # It brings numpy.
    from keyrange.formats.time_zones import zone_of

    try:
        zone_of(time_zone)
    except ValueError:
        return False
    return True
