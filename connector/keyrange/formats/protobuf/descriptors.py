"""What a schema's text says, as descriptors of the reference library.

A text is the source of a .proto file, as registries answer with; or in base64 a FileDescriptorSet,
as `protoc --descriptor_set_out --include_imports` writes it, or one FileDescriptorProto, as
Confluent's registry answers with for `format=serialized`. Source is read by the `protoc` of
grpcio-tools, the only exact reader of the language that Python's index has: 2.8 MB of a wheel, in a
process of its own that takes 90 ms, once for each text.
"""

from __future__ import annotations

import base64
import binascii
import functools
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Final

from google.protobuf import (
    any_pb2,
    api_pb2,
    descriptor_pb2,
    descriptor_pool,
    duration_pb2,
    empty_pb2,
    field_mask_pb2,
    source_context_pb2,
    struct_pb2,
    timestamp_pb2,
    type_pb2,
    wrappers_pb2,
)
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from keyrange.model.value_forms import Schema, UnfitSchema
from keyrange.text.packages import install_line

_WELL_KNOWN: Final = {
    each.DESCRIPTOR.name: each.DESCRIPTOR.serialized_pb
    for each in (
        any_pb2,
        source_context_pb2,
        type_pb2,
        api_pb2,
        descriptor_pb2,
        duration_pb2,
        empty_pb2,
        field_mask_pb2,
        struct_pb2,
        timestamp_pb2,
        wrappers_pb2,
    )
}
_BASE64: Final = re.compile(r"[A-Za-z0-9+/\s]*=*\s*")
_COMPILER_TIMEOUT_S: Final = 60
_MAIN: Final = "keyrange_schema.proto"


@functools.lru_cache(maxsize=256)
def message_of(schema: Schema, *, maps: bool = True) -> Any:
    """The descriptor of the message that a schema names, or of its file's first one. Without `maps`
    a map is the list of entries that it is in a payload: the library's own maps leave out an entry
    with a field that it does not know, and have no order. Raises UnfitSchema."""
    files = _files(schema)
    pool = _pool(files, maps)
    if not schema.message:
        names = _names(files[-1].package, files[-1].message_type[:1])
        if not names:
            raise UnfitSchema("defines no message")
        return pool.FindMessageTypeByName(names[0])
    # Of a simple name, the file that is asked for comes before those that it imports.
    for file in reversed(files):
        for name in _names(file.package, file.message_type):
            if schema.message == name or name.endswith(f".{schema.message}"):
                return pool.FindMessageTypeByName(name)
    raise UnfitSchema(f"defines no message {schema.message[:200]!r}")


def message_at(schema: Schema, indexes: Sequence[int]) -> str:
    """The full name of the message that Confluent's wire format names by these indexes: of a
    message in the file, then of one in that, and so on. The entries of maps, which the source of a
    file does not write as messages, do not count. Raises UnfitSchema."""
    file = _files(schema)[-1]
    name, messages = str(file.package), list(file.message_type)
    if not indexes:
        raise UnfitSchema("names no message: there are no message indexes")
    for index in indexes:
        messages = [each for each in messages if not each.options.map_entry]
        if not 0 <= index < len(messages):
            raise UnfitSchema("defines no message at these message indexes")
        name = _within(name, messages[index])
        messages = list(messages[index].nested_type)
    return name


def indexes_of(schema: Schema) -> tuple[int, ...]:
    """Those of the message that a schema names, as `message_at` takes them. Raises UnfitSchema."""
    file = _files(schema)[-1]
    wanted = message_of(schema).full_name
    name, messages = str(file.package), list(file.message_type)
    indexes: list[int] = []
    while name != wanted:
        messages = [each for each in messages if not each.options.map_entry]
        names = [_within(name, each) for each in messages]
        at = next((at for at, each in enumerate(names) if f"{wanted}.".startswith(f"{each}.")), -1)
        if at < 0:
            raise UnfitSchema(f"defines message {wanted} in a file that it imports")
        indexes.append(at)
        name, messages = names[at], list(messages[at].nested_type)
    return tuple(indexes)


def serialized(schema: Schema) -> Schema:
    """The same schema as a FileDescriptorSet, which tasks read without a compiler. Raises
    UnfitSchema."""
    files = descriptor_pb2.FileDescriptorSet(file=_files(schema))
    return Schema(base64.b64encode(files.SerializeToString()).decode(), schema.message)


def alone(schema: Schema) -> str:
    """The schema's own file as registries take one: its source, or a FileDescriptorProto in base64.
    Raises UnfitSchema where it imports files that not everybody has."""
    *others, file = _files(schema)
    if more := [each.name for each in others if each.name not in _WELL_KNOWN]:
        raise UnfitSchema(
            f"imports {more[0][:200]!r}, whose subject a registry would have to be told: register "
            "the schema by your own tools, and give none"
        )
    if _decoded(schema.text) is None:
        return schema.text
    return base64.b64encode(file.SerializeToString()).decode()


@functools.lru_cache(maxsize=256)
def _files(schema: Schema) -> tuple[Any, ...]:
    """The files in an order in which each stands behind those that it imports, that of the schema
    last."""
    data = _decoded(schema.text)
    if data is None:
        return _compiled(schema)
    files = _of_base64(data)
    for name, text in schema.references:
        if (read := _decoded(text)) is None:
            raise UnfitSchema("is in base64, and what it imports is not: give all in one form")
        found = _of_base64(read)
        try:
            found[-1].name = name
        except ValueError:
            raise UnfitSchema(f"imports {name[:200]!r}, which is not Unicode") from None
        files = [*found, *files]
    return tuple(files)


def _decoded(text: str) -> bytes | None:
    """The bytes of what is in base64; source has characters that base64 has not."""
    if not _BASE64.fullmatch(text):
        return None
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except binascii.Error as failure:
        raise UnfitSchema("is neither base64 nor the source of a .proto file") from failure


def _of_base64(data: bytes) -> list[Any]:
    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(data)
        if len(files.file) and not len(UnknownFieldSet(files)) and files.file[-1].name:
            return list(files.file)
    except DecodeError:
        pass
    try:
        file = descriptor_pb2.FileDescriptorProto.FromString(data)
    except DecodeError as failure:
        raise UnfitSchema("holds no descriptors in its base64") from failure
    if not len(file.message_type):
        raise UnfitSchema("defines no message")
    file.name = file.name or _MAIN
    return [file]


def _compiled(schema: Schema) -> tuple[Any, ...]:
    """The files of a source and of what it imports, as protoc has them."""
    with tempfile.TemporaryDirectory(prefix="keyrange-proto-") as scratch:
        # What protoc reads, and beside it what it writes.
        directory, answer = Path(scratch, "sources"), Path(scratch, "descriptors")
        directory.mkdir()
        for name, text in schema.references:
            if _decoded(text) is not None:
                raise UnfitSchema("is source, and what it imports is not: give all in one form")
            _write(directory, name, text)
        _write(directory, _MAIN, schema.text)
        command = [sys.executable, "-P", "-m", "grpc_tools.protoc", f"-I{directory}"]
        command += ["--include_imports", f"--descriptor_set_out={answer}", _MAIN]
        try:
            done = subprocess.run(
                command, capture_output=True, timeout=_COMPILER_TIMEOUT_S, check=False
            )
        except subprocess.SubprocessError as failure:
            raise UnfitSchema("is source that protoc does not finish with") from failure
        if done.returncode:
            raise UnfitSchema(
                _complaint(done.stderr.decode("utf-8", "replace").replace(f"{directory}/", ""))
            )
        return tuple(descriptor_pb2.FileDescriptorSet.FromString(answer.read_bytes()).file)


def _write(directory: Path, name: str, text: str) -> None:
    """A file of the source, under a name that a registry says."""
    path = PurePosixPath(name)
    is_main = path.parts[:1] == (_MAIN,) and name != _MAIN
    if path.is_absolute() or ".." in path.parts or not path.parts or is_main or "\0" in name:
        raise UnfitSchema(f"imports {name[:200]!r}, which is no name of a file")
    target = directory / path
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        # Two names may be of one file.
        with target.open("x", encoding="utf-8") as file:
            file.write(text)
    except (OSError, UnicodeEncodeError) as failure:
        why = failure.strerror if isinstance(failure, OSError) else "it is not Unicode"
        raise UnfitSchema(f"makes no file {name[:200]!r} for protoc: {why}") from None


def _complaint(text: str) -> str:
    if "No module named" in text:
        return (
            f"is the source of a .proto file, which needs grpcio-tools: {install_line('protobuf')}"
        )
    lines = [line for line in text.splitlines() if _MAIN in line or ".proto:" in line]
    first = (lines or text.splitlines() or ["no reason"])[0]
    return f"is no source that protoc reads: {first.replace(f'{_MAIN}:', 'line ', 1)[:300]}"


def _pool(files: Iterable[Any], maps: bool) -> Any:
    """Extensions are not in it: to all readers their fields are unknown ones, as they are to
    Spark."""
    pool = descriptor_pool.DescriptorPool()
    left = {file.name: _bare(file, maps) for file in files}
    added: set[str] = set()

    def add(name: str, user: str) -> None:
        if name in added:
            return
        added.add(name)
        if name not in left and name not in _WELL_KNOWN:
            raise UnfitSchema(f"lacks {name[:200]!r}, which {user[:200]!r} imports")
        file = left.get(name)
        if file is None:
            file = descriptor_pb2.FileDescriptorProto.FromString(_WELL_KNOWN[name])
            file = _bare(file, maps)
        for each in file.dependency:
            add(each, name)
        try:
            pool.Add(file)
        except (TypeError, ValueError) as failure:
            # Upstream's text says which name is not resolved.
            raise UnfitSchema(f"is no valid descriptor: {str(failure)[:300]}") from failure

    try:
        for name in left:
            add(name, "")
    except RecursionError:
        raise UnfitSchema("imports files that import others without end") from None
    return pool


def _bare(file: Any, maps: bool) -> Any:
    """Without extensions, and maybe without a word of maps."""
    found = descriptor_pb2.FileDescriptorProto()
    found.CopyFrom(file)
    found.ClearField("extension")
    found.ClearField("service")
    messages = list(found.message_type)
    while messages:
        message = messages.pop()
        message.ClearField("extension")
        message.options.ClearField("message_set_wire_format")
        if not maps:
            message.options.ClearField("map_entry")
        messages += message.nested_type
    return found


def _names(within: str, messages: Iterable[Any]) -> list[str]:
    """Full names, those of a level before those within."""
    found, below = [], []
    for each in messages:
        name = _within(within, each)
        found.append(name)
        below += _names(name, [inner for inner in each.nested_type if not inner.options.map_entry])
    return found + below


def _within(name: str, message: Any) -> str:
    return f"{name}.{message.name}" if name else str(message.name)
