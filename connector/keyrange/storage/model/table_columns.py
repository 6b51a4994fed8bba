"""How the columns of a Delta table and those of rows that are to go into it differ, and the table's
columns with what the rows have more.

Columns are Delta's documents of a schema, which are Spark's: a dictionary with `fields`. A new
field is added behind the others of its struct, nullable; a type is changed as Delta's feature
`typeWidening` has it: the nearest field keeps what its type was (`delta.typeChanges`), by which
readers know the files that were written before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

# From each of these to a later one values go without loss, as Delta's own schema evolution does it.
_WIDER: Final = (("byte", "short", "integer", "long"), ("float", "double"))
_CHANGES: Final = "delta.typeChanges"
_GENERATED: Final = "delta.generationExpression"
# In the metadata of a column: a rule for its values, to which files that are there are not held.
_RULES: Final = ("delta.", "__CHAR_VARCHAR_TYPE_STRING", "CURRENT_DEFAULT")
# By these a column has values that rows need not have.
_VALUES: Final = (_GENERATED, "delta.identity.", "CURRENT_DEFAULT")
# Without column mapping Delta has no such names.
_NO_NAME: Final = frozenset(" ,;{}()\n\t=")
_SQL: Final = {"byte": "TINYINT", "short": "SMALLINT", "integer": "INT", "long": "BIGINT"}


@dataclass(frozen=True, slots=True)
class TableRules:
    """What a table's features and properties say of its columns: whether types may be widened,
    whether it has timestamps without a zone, which names are Delta's own, and whether columns have
    any names. `holds_nulls`: whoever writes holds rows to NOT NULL."""

    widens: bool = False
    has_ntz: bool = False
    reserved: frozenset[str] = frozenset()
    any_name: bool = False
    holds_nulls: bool = False


class Comparison:
    """`fields` are the table's, with what rows have more. `added` and `widened` are columns by
    their paths, with the type in SQL that they get. `wrong`: why rows do not go into the table.
    `left_out`: fields of structs that the rows lack. `types_differ`: whether the table has columns
    of types that those of rows are not put into."""

    def __init__(
        self, there: Mapping[str, Any], rows: Mapping[str, Any], rules: TableRules
    ) -> None:
        """The columns of a table beside those of rows."""
        self._rules = rules
        self.added: list[tuple[str, str]] = []
        self.widened: list[tuple[str, str]] = []
        self.wrong: list[str] = []
        self.left_out: list[str] = []
        self.types_differ = False
        self.fields: Sequence[Mapping[str, Any]] = self._struct(there, rows, ())["fields"]

    @property
    def is_changed(self) -> bool:
        return bool(self.added or self.widened)

    def statements(self, table: str) -> str:
        """What makes a table of the rows' columns, in SQL."""
        begin = f"ALTER TABLE delta.`{table}`"
        named = ", ".join(f"{path} {kind}" for path, kind in self.added)
        found = [f"{begin} ADD COLUMNS ({named})"] if named else []
        found += [f"{begin} ALTER COLUMN {path} TYPE {kind}" for path, kind in self.widened]
        return "; ".join(found)

    def _struct(
        self, there: Mapping[str, Any], rows: Mapping[str, Any], path: tuple[str, ...]
    ) -> dict[str, Any]:
        """The fields of a struct of the table, with those that rows have more."""
        fields = [dict(each) for each in there["fields"]]
        known = {each["name"].lower(): at for at, each in enumerate(fields)}
        for each in rows["fields"]:
            own = (*path, each["name"])
            at = known.setdefault(each["name"].lower(), len(fields))
            if at == len(fields):
                fields.append(self._new(each, own))
            elif fields[at]["name"] != each["name"]:
                text = f"its column {_named((*path, fields[at]['name']))} would be {_named(own)}"
                self.wrong.append(f"{text}: Delta has no names that differ in their case alone")
            else:
                fields[at] = self._field(fields[at], each, own)
        names = {each["name"] for each in rows["fields"]}
        if path:
            self.left_out += [
                _named((*path, each["name"])) for each in fields if each["name"] not in names
            ]
        for each in fields:
            if not each["nullable"] and not self._is_held(each, names):
                self.wrong.append(f"column {_named((*path, each['name']))} takes no nulls")
        return {**there, "fields": fields}

    def _is_held(self, there: Mapping[str, Any], names: set[str]) -> bool:
        """Whether nulls in a column that takes none are noticed, and not all of its values are."""
        if not self._rules.holds_nulls:
            return False
        given = there["metadata"]
        return there["name"] in names or any(key.startswith(_VALUES) for key in given)

    def _new(self, rows: Mapping[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
        self.added.append((_named(path), type_in_sql(rows["type"])))
        for each in _inside(rows):
            self._check_new(each["name"], each["type"], path)
        return {**rows, "nullable": True, "metadata": {}}

    def _check_new(self, name: str, kind: Any, path: tuple[str, ...]) -> None:
        column = f"column {_named(path)} cannot be added"
        if not self._rules.any_name and _NO_NAME.intersection(name):
            self.wrong.append(f"{column}: a table without column mapping has no name {name!r}")
        if len(path) == 1 and name.lower() in self._rules.reserved:
            self.wrong.append(f"{column}: the name is one of Delta's change data feed")
        if kind == "timestamp_ntz" and not self._rules.has_ntz:
            self.wrong.append(
                f"{column}: timestamps without a zone need feature timestampNtz, which ALTER TABLE "
                "... SET TBLPROPERTIES ('delta.feature.timestampNtz' = 'supported') adds"
            )

    def _field(
        self, there: Mapping[str, Any], rows: Mapping[str, Any], path: tuple[str, ...]
    ) -> dict[str, Any]:
        changes = list(there["metadata"].get(_CHANGES, ()))
        kind = self._type(there["type"], rows["type"], path, (), changes)
        found = {**there, "type": kind}
        if changes:
            found["metadata"] = {**there["metadata"], _CHANGES: changes}
        return found

    def _type(
        self,
        there: Any,
        rows: Any,
        path: tuple[str, ...],
        inner: tuple[str, ...],
        changes: list[dict[str, Any]],
    ) -> Any:
        """The type of a column, or of what is in its lists and maps, at `inner`. `changes`: what
        the field's metadata say of earlier types, to which one more is added."""
        whole = (*path, *inner)
        if isinstance(there, str) or isinstance(rows, str) or there["type"] != rows["type"]:
            return self._plain(there, rows, whole, inner, changes)
        if there["type"] == "struct":
            return self._struct(there, rows, whole)
        element, contains = ("element", "containsNull")
        if there["type"] == "map":
            element, contains = ("value", "valueContainsNull")
            if there["keyType"] != rows["keyType"]:
                self._differ(there, rows, whole)
        if not there[contains]:
            self.wrong.append(f"column {_named((*whole, element))} takes no nulls")
        name = f"{element}Type"
        kind = self._type(there[name], rows[name], path, (*inner, element), changes)
        return {**there, name: kind}

    def _plain(
        self,
        there: Any,
        rows: Any,
        whole: tuple[str, ...],
        inner: tuple[str, ...],
        changes: list[dict[str, Any]],
    ) -> Any:
        if there == rows or _was(rows, there, inner, changes):
            return there
        if not _is_wider(rows, there):
            self._differ(there, rows, whole)
        elif not self._rules.widens:
            self._differ(there, rows, whole)
            self.wrong[-1] += (
                "; ALTER TABLE ... SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true') lets "
                "the type be changed"
            )
        else:
            self.widened.append((_named(whole), type_in_sql(rows)))
            place = {"fieldPath": ".".join(inner)} if inner else {}
            changes.append({"toType": rows, "fromType": there, **place})
            return rows
        return there

    def _differ(self, there: Any, rows: Any, path: tuple[str, ...]) -> None:
        kinds = f"is {type_in_sql(there)} and would be {type_in_sql(rows)}"
        self.wrong.append(f"column {_named(path)} {kinds}")
        self.types_differ = True


def ruled_columns(fields: Sequence[Mapping[str, Any]], computed: Sequence[str]) -> list[str]:
    """The columns whose values are held to a rule, but for those that are `computed` by it."""
    found = []
    for each in fields:
        given = dict(each["metadata"])
        if each["name"] in computed:
            given.pop(_GENERATED, None)
        own = _inside({**each, "metadata": given})
        keys = {key for inner in own for key in inner["metadata"] if key != _CHANGES}
        if any(key.startswith(_RULES) for key in keys):
            found.append(each["name"])
    return found


def type_in_sql(kind: Any) -> str:
    """A type as Spark's SQL names it."""
    if isinstance(kind, str):
        return _SQL.get(kind, kind.upper())
    if kind["type"] == "array":
        return f"ARRAY<{type_in_sql(kind['elementType'])}>"
    if kind["type"] == "map":
        return f"MAP<{type_in_sql(kind['keyType'])}, {type_in_sql(kind['valueType'])}>"
    fields = (f"{quoted(each['name'])}: {type_in_sql(each['type'])}" for each in kind["fields"])
    return f"STRUCT<{', '.join(fields)}>"


def quoted(name: str) -> str:
    """A column's name in SQL."""
    return name if name.isidentifier() and name.isascii() else f"`{name.replace('`', '``')}`"


def _is_wider(kind: Any, than: Any) -> bool:
    for kinds in _WIDER:
        if kind in kinds and than in kinds:
            return kinds.index(kind) > kinds.index(than)
    return False


def _was(
    kind: Any, is_now: Any, inner: tuple[str, ...], changes: Sequence[Mapping[str, Any]]
) -> bool:
    """Whether a column was of a type before it was changed to its own: readers know its files."""
    own = [each for each in changes if each.get("fieldPath", "") == ".".join(inner)]
    return any(each["fromType"] == kind for each in own) and _is_wider(is_now, kind)


def _inside(field: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """A field and all in its type; what lists and maps hold is told as a field without a name."""
    yield field
    kind = field["type"]
    if isinstance(kind, str):
        return
    yield from chain.from_iterable(map(_inside, kind.get("fields", ())))
    for name in ("elementType", "keyType", "valueType"):
        if name in kind:
            yield from _inside({"name": "", "type": kind[name], "metadata": {}})


def _named(path: Sequence[str]) -> str:
    """A column as ALTER TABLE names it."""
    return ".".join(map(quoted, path))
