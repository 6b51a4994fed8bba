"""What a reader makes of what a writer wrote: Avro's rules, applied to two schemas once.

The rules are the specification's 1.12 ("Schema Resolution"). Where it leaves something open, this
does as Avro's Java does, by which Spark and Kafka's own tools read: a record outside of a union may
have any name, and of a reader's union the branch of the writer's own type comes before one to which
that type is promoted.

Stricter than either: two logical types of numbers that mean something else do not resolve, nor two
decimals of other scales. A time in other units is read by the writer's.

Who rescues what has no place resolves more: a field of a record that does not resolve is one that
the reader has not, and is null there; so is one without a default that the writer has not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from keyrange.formats.avro.defaults import default_of
from keyrange.formats.avro.schemas import MISSING, NAMED, AvroField, AvroType, unqualified
from keyrange.formats.avro.types import members
from keyrange.formats.cells import UNSET, Node
from keyrange.formats.column_kinds import below, where
from keyrange.model.value_forms import COLUMNS_MAX, UnfitSchema

PROMOTED: Final = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}
# Times that differ in their units alone.
_FAMILIES: Final = (
    ("timestamp-millis", "timestamp-micros"),
    ("local-timestamp-millis", "local-timestamp-micros"),
)
_PAIRS_MAX: Final = 10 * COLUMNS_MAX
_NUMBERS: Final = ("int", "long", "float", "double")


@dataclass(frozen=True, slots=True, eq=False)
class Nothing:
    """A null."""


@dataclass(frozen=True, slots=True, eq=False)
class Skip:
    """What the writer has and the reader has not."""

    writer: AvroType


@dataclass(frozen=True, slots=True, eq=False)
class Read:
    """A value without others in it. `symbols` are those of a reader's enum by the writer's number,
    None where it has none."""

    writer: AvroType
    reader: AvroType
    node: Node
    symbols: tuple[str | None, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Record:
    """The writer's fields in their order. `defaults`, of fields that the writer has not, by their
    place in the reader's."""

    node: Node
    steps: tuple[tuple[str, Action], ...]
    defaults: tuple[tuple[int, Any], ...]


@dataclass(frozen=True, slots=True, eq=False)
class Repeat:
    """An array or a map."""

    writer: AvroType
    node: Node
    element: Action


@dataclass(frozen=True, slots=True, eq=False)
class Member:
    """One field of the struct that stands for a reader's union."""

    node: Node
    at: int
    action: Action


@dataclass(frozen=True, slots=True, eq=False)
class Branches:
    """A writer's union."""

    actions: tuple[Action, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Misfit:
    """A branch that the reader has no place for: a bad value where it occurs."""

    why: str
    writer: AvroType


Action = Nothing | Skip | Read | Record | Repeat | Member | Branches | Misfit


def resolve(writer: AvroType, reader: AvroType, root: Node, *, rescues: bool = False) -> Action:
    """How to read into `root`, which is of the reader's type. Raises UnfitSchema.

    A field that the writer has not becomes a constant of its node, unless another branch of the
    writer's reads into the same record.
    """
    resolver = _Resolver(rescues)
    action = resolver.resolved(writer, reader, root, "")
    resolver.check()
    records: dict[int, list[Record]] = {}
    for each in parts(action):
        if isinstance(each, Record):
            records.setdefault(id(each.node), []).append(each)
    for record, *others in records.values():
        if not others:
            for at, value in record.defaults:
                record.node.children[at].constant = value
    return action


def parts(action: Action) -> Iterator[Action]:
    """An action, and all that are in it."""
    yield action
    within: Iterable[Action] = ()
    match action:
        case Record():
            within = (each for _, each in action.steps)
        case Repeat():
            within = (action.element,)
        case Member():
            within = (action.action,)
        case Branches():
            within = action.actions
    for each in within:
        yield from parts(each)


def misfits(action: Action) -> Iterator[str]:
    """Which values of the writer's the reader has no place for."""
    for each in parts(action):
        if isinstance(each, Misfit):
            yield each.why
        elif isinstance(each, Read):
            known = zip(each.writer.symbols, each.symbols, strict=False)
            yield from (f"{each.reader} has no symbol {was}" for was, own in known if own is None)


def reads_defaults(record: Record) -> bool:
    """Whether its defaults are no constants, since rows differ in what the writer has."""
    return any(record.node.children[at].constant is UNSET for at, _ in record.defaults)


class _Resolver:
    """Goes through two schemas side by side. Unions within unions' branches make pairs without end
    out of short ones."""

    def __init__(self, rescues: bool) -> None:
        self._read = 0
        self._rescues = rescues

    def check(self) -> None:
        """What does not resolve within a union is passed over there."""
        if self._read > _PAIRS_MAX:
            raise UnfitSchema(f"the schemas make more than {_PAIRS_MAX} pairs of types")

    def resolved(self, writer: AvroType, reader: AvroType, node: Node, path: str) -> Action:
        self._read += 1
        self.check()
        if writer.kind == "union":
            return self._of_writers_union(writer, reader, node, path)
        if reader.kind == "union":
            return self._to_readers_union(writer, reader, node, path)
        if writer.kind != reader.kind:
            if reader.kind not in PROMOTED.get(writer.kind, ()):
                raise _misfit(writer, reader, path)
            return _read(writer, reader, node, path)
        if writer.kind in ("enum", "fixed") and not _same_name(writer, reader):
            raise _misfit(writer, reader, path)
        match writer.kind:
            case "null":
                return Nothing()
            case "record":
                return self._record(writer, reader, node, path)
            case "array" | "map":
                mark = "[]" if writer.kind == "array" else "{}"
                element = self.resolved(
                    writer.element, reader.element, node.children[-1], path + mark
                )
                return Repeat(writer, node, element)
            case "enum":
                known = {each: each for each in reader.symbols}
                symbols = tuple(known.get(each, reader.default) for each in writer.symbols)
                return Read(writer, reader, node, symbols)
            case "fixed" if writer.size != reader.size:
                raise UnfitSchema(
                    f"{where(path)}the writer's {writer} has {writer.size} bytes, the reader's "
                    f"{reader.size}"
                )
        return _read(writer, reader, node, path)

    def _of_writers_union(
        self, writer: AvroType, reader: AvroType, node: Node, path: str
    ) -> Branches:
        actions: list[Action] = []
        first: UnfitSchema | None = None
        fits = False
        for each in writer.branches:
            try:
                actions.append(self.resolved(each, reader, node, path))
                fits = fits or each.kind != "null"
            except UnfitSchema as failure:
                actions.append(Misfit(str(failure), each))
                first = first if each.kind == "null" else first or failure
        if first is not None and not fits:
            raise first
        return Branches(tuple(actions))

    def _to_readers_union(
        self, writer: AvroType, reader: AvroType, node: Node, path: str
    ) -> Action:
        if writer.kind == "null":
            if any(each.kind == "null" for each in reader.branches):
                return Nothing()
            raise _misfit(writer, reader, path)
        held = members(reader)
        if isinstance(held, AvroType):
            return self.resolved(writer, held, node, path)
        same = [at for at, each in enumerate(held) if each.kind == writer.kind]
        named = writer.kind in NAMED
        ranked = [at for at in same if held[at].name == writer.name]
        ranked += [at for at in same if named and _same_name(writer, held[at])]
        # As Java's Avro: a record of another name that has the fields.
        ranked += [at for at in same if writer.kind == "record"]
        ranked += [at for at, each in enumerate(held) if each.kind in PROMOTED.get(writer.kind, ())]
        # The branch that holds all of a value comes before one that would leave a part of it.
        rescues, self._rescues = self._rescues, False
        try:
            for at in dict.fromkeys(ranked):
                with suppress(UnfitSchema):
                    found = self.resolved(writer, held[at], node.children[at], path)
                    return Member(node, at, found)
        finally:
            self._rescues = rescues
        raise _misfit(writer, reader, path)

    def _record(self, writer: AvroType, reader: AvroType, node: Node, path: str) -> Record:
        written = {each.name for each in writer.fields}
        places: dict[str, int] = {each.name: at for at, each in enumerate(reader.fields)}
        for at, each in enumerate(reader.fields):
            if each.name not in written:
                for alias in each.aliases:
                    places.setdefault(alias, at)
        steps: list[tuple[str, Action]] = []
        taken: set[int] = set()
        unfit: list[tuple[int, Any]] = []
        for each in writer.fields:
            at = places.get(each.name, -1)
            if at < 0 or at in taken:
                steps.append((each.name, Skip(each.type)))
                continue
            taken.add(at)
            try:
                steps.append(self._field(each, reader.fields[at], node.children[at], path))
            except UnfitSchema:
                if not self._rescues:
                    raise
                steps.append((each.name, Skip(each.type)))
                unfit.append((at, None))
        missing = [at for at in range(len(reader.fields)) if at not in taken]
        defaults = [(at, self._default(reader.fields[at], path)) for at in missing]
        return Record(node, tuple(steps), (*defaults, *unfit))

    def _field(
        self, writer: AvroField, reader: AvroField, node: Node, path: str
    ) -> tuple[str, Action]:
        inner = self.resolved(writer.type, reader.type, node, below(path, reader.name))
        return reader.name, inner

    def _default(self, field: AvroField, path: str) -> Any:
        path = below(path, field.name)
        if field.default is not MISSING:
            return default_of(field.default, field.type, path)
        if self._rescues:
            return None
        raise UnfitSchema(f"{where(path)}the writer has none, and the reader no default for it")


def _read(writer: AvroType, reader: AvroType, node: Node, path: str) -> Read:
    """Raises UnfitSchema where the same bytes mean something else."""
    ours, theirs = writer.logical, reader.logical
    if ours == theirs == "decimal" and writer.scale != reader.scale:
        raise UnfitSchema(
            f"{where(path)}the writer's decimal has the scale {writer.scale}, the reader's "
            f"{reader.scale}"
        )
    differ = ours and theirs and ours != theirs and writer.kind in _NUMBERS
    if differ and not any(ours in each and theirs in each for each in _FAMILIES):
        raise _misfit(writer, reader, path)
    if ours == "decimal" and reader.kind == "string":
        raise _misfit(writer, reader, path)
    return Read(writer, reader, node)


def _same_name(writer: AvroType, reader: AvroType) -> bool:
    """Without the namespaces; or by an alias of the reader's."""
    names = {unqualified(each) for each in reader.aliases}
    return unqualified(writer.name) in {unqualified(reader.name), *names}


def _misfit(writer: AvroType, reader: AvroType, path: str) -> UnfitSchema:
    return UnfitSchema(f"{where(path)}the writer's {writer} is no {reader}")
