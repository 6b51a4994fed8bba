"""Schemas are asked for once for each process, and once for each host."""

from __future__ import annotations

import json
import multiprocessing
import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from keyrange.errors import KeyrangeError
from keyrange.model.value_forms import Schema
from keyrange.options.registry import RegistrySettings
from keyrange.ranges.sharing import shared_directory
from keyrange.registry.client import RegistryClient
from keyrange.registry.host_cache import HostCache, host_cache
from keyrange.registry.registered_schemas import RegisteredSchema
from keyrange.registry.schema_lookup import Schemas, schemas_of
from registries.contract import AVRO, refers
from registries.server import Registry, schema_registry

READER = RegisteredSchema(90, "AVRO", Schema("reader"))
GUID = "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0"


@pytest.fixture
def registry() -> Iterator[Registry]:
    with schema_registry() as made:
        made.register("base", '"string"')
        made.register("orders-value", AVRO, "AVRO", [refers("base", "base")])
        yield made


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """In the place of the host's shared memory."""
    monkeypatch.setattr(shared_directory, "_SHARED_MEMORY", tmp_path)
    return tmp_path


def settings(*urls: str, tries: int = 1) -> RegistrySettings:
    return RegistrySettings(urls=urls, request_timeout_ms=2_000, tries=tries)


def found_by(registry: Registry, reader: RegisteredSchema = READER) -> Schemas:
    """As a new process has it."""
    chosen = settings(registry.url)
    return Schemas(RegistryClient(chosen), host_cache(chosen, reader), reader, 2.0)


def files(memory: Path) -> list[Path]:
    return sorted(memory.glob("keyrange-*/schemas/*/*.json"))


def test_a_schema_is_fetched_once_for_all_processes(registry: Registry, memory: Path) -> None:
    first, second = found_by(registry), found_by(registry)
    found = first.find(2)
    assert found == RegisteredSchema(2, "AVRO", Schema(AVRO, references=(("base", '"string"'),)))
    assert first.find(2) == second.find(2) == found
    assert registry.requests == ["/schemas/ids/2", "/subjects/base/versions/1?deleted=true"]
    for each in (*files(memory), *files(memory)[0].parents[:3]):
        assert stat.S_IMODE(each.stat().st_mode) == (0o600 if each.is_file() else 0o700)


def test_the_readers_schema_is_not_asked_for(registry: Registry, memory: Path) -> None:
    assert found_by(registry).find(90) is READER
    assert registry.requests == []


def test_a_number_is_no_guid(registry: Registry, memory: Path) -> None:
    """Nor has another registry the same schemas."""
    guid = registry.guid(1)
    schemas = found_by(registry)
    assert schemas.find(guid) == RegisteredSchema(guid, "AVRO", Schema('"string"'))
    assert schemas.find(1) == RegisteredSchema(1, "AVRO", Schema('"string"'))
    assert len(files(memory)) == 2
    with schema_registry() as other:
        assert found_by(other).find(1) is None


def test_a_registry_that_was_made_anew(registry: Registry, memory: Path) -> None:
    """Under its old address: what it says of the reader's schema is different."""
    found_by(registry).find(1)
    registry.schemas[1] = {"schema": '"bytes"'}
    other = RegisteredSchema(90, "AVRO", Schema("other reader"))
    assert found_by(registry, other).find(1) == RegisteredSchema(1, "AVRO", Schema('"bytes"'))


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"no line",
        b"\xff\xfe\n{}",
        lambda content: content[:-5],
        lambda content: content.replace(b"string", b"strinG"),
        "of another schema",
        "a link",
        "a directory",
    ],
)
def test_a_copy_that_is_no_good_is_fetched_again(
    registry: Registry, memory: Path, damage: Any, caplog: pytest.LogCaptureFixture
) -> None:
    found = found_by(registry).find(1)
    (path,) = files(memory)
    if damage == "of another schema":
        found_by(registry).find(2)
        (other,) = set(files(memory)) - {path}
        other.replace(path)
    elif damage == "a link":
        path.rename(memory / "elsewhere")
        path.symlink_to(memory / "elsewhere")
    elif damage == "a directory":
        path.unlink()
        path.mkdir()
    else:
        path.write_bytes(damage(path.read_bytes()) if callable(damage) else damage)
    registry.requests.clear()
    assert found_by(registry).find(1) == found
    assert registry.requests == ["/schemas/ids/1"]
    assert "fetched again" in caplog.text
    registry.requests.clear()
    found_by(registry).find(1)
    assert registry.requests == (["/schemas/ids/1"] if damage == "a directory" else [])


@pytest.mark.parametrize("place", ["keyrange", "schemas", "registry"])
def test_a_place_that_others_may_enter_is_not_used(
    registry: Registry, memory: Path, place: str, caplog: pytest.LogCaptureFixture
) -> None:
    found_by(registry).find(1)
    open_to_all = files(memory)[0].parents[["registry", "schemas", "keyrange"].index(place)]
    open_to_all.chmod(0o755)
    registry.requests.clear()
    assert found_by(registry).find(1) is not None
    assert registry.requests == ["/schemas/ids/1"]
    assert "schemas are not kept on this host" in caplog.text


def test_no_room_for_copies(registry: Registry, memory: Path) -> None:
    (memory / f"keyrange-{os.getuid()}").write_text("a file")
    assert found_by(registry).find(1) is not None
    assert found_by(registry).find(1) is not None
    assert len(registry.requests) == 2


def test_copies_that_are_swept_are_made_again(registry: Registry, memory: Path) -> None:
    schemas = found_by(registry)
    schemas.find(1)
    shared_directory.shutil.rmtree(memory / f"keyrange-{os.getuid()}")
    schemas.find(2)
    assert len(files(memory)) == 1


def _find(url: str, barrier: Any, answers: Any) -> None:
    chosen = settings(url)
    schemas = Schemas(RegistryClient(chosen), host_cache(chosen, READER), READER, 5.0)
    barrier.wait(30)
    answers.put(schemas.find(2))


def test_processes_that_begin_together_ask_once(registry: Registry, memory: Path) -> None:
    registry.pace = lambda: threading.Event().wait(0.1)
    context = multiprocessing.get_context("fork")
    barrier, answers = context.Barrier(6), context.Queue()
    workers = [
        context.Process(target=_find, args=(registry.url, barrier, answers)) for _ in range(6)
    ]
    for each in workers:
        each.start()
    found = [answers.get(timeout=30) for _ in workers]
    for each in workers:
        each.join(30)
    assert found == [found[0]] * 6
    assert found[0].type == "AVRO"
    assert len(registry.requests) == 2
    assert list(memory.rglob("*.lock")) == []


def test_a_process_that_holds_the_lock_for_ever_is_not_waited_for(
    registry: Registry, memory: Path
) -> None:
    cache = host_cache(settings(registry.url), READER)
    with cache.alone(1, 0.0):
        chosen = settings(registry.url)
        waits = Schemas(RegistryClient(chosen), HostCache(cache._directory), READER, 0.2)
        assert waits.find(1) is not None


def test_what_is_unknown_is_asked_again_after_a_while(registry: Registry, memory: Path) -> None:
    now = [0.0]
    chosen = settings(registry.url)
    cache = host_cache(chosen, READER)
    schemas = Schemas(RegistryClient(chosen), cache, READER, 2.0, lambda: now[0])
    assert [schemas.find(3), schemas.find(3), schemas.find(GUID)] == [None] * 3
    assert len(registry.requests) == 2
    assert files(memory) == []
    registry.register("orders-value", '"long"')
    now[0] = 61.0
    assert schemas.find(3) is not None


def test_a_registry_that_is_away_is_nothing_that_is_known(registry: Registry, memory: Path) -> None:
    registry.faults = [500]
    schemas = found_by(registry)
    with pytest.raises(KeyrangeError, match="REGISTRY_UNREACHABLE"):
        schemas.find(1)
    assert schemas.find(1) is not None


def test_decoders_of_a_process_share_what_they_found() -> None:
    chosen = settings("http://localhost:1")
    assert schemas_of(chosen, READER) is schemas_of(settings("http://localhost:1"), READER)
    assert schemas_of(chosen, READER) is not schemas_of(settings("http://localhost:2"), READER)


def test_a_copy_is_json_behind_its_checksum(registry: Registry, memory: Path) -> None:
    found_by(registry).find(1)
    _, text = files(memory)[0].read_text().split("\n")
    assert json.loads(text)["schema"] == {"text": '"string"', "message": "", "references": []}
