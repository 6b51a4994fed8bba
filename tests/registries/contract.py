"""What a registry answers, whichever it is: run on the tests' own and on a real one."""

from __future__ import annotations

import json
import urllib.request
import uuid
from typing import Any
from urllib.parse import quote

import pytest

from keyrange.errors import KeyrangeError
from keyrange.options.registry import RegistrySettings
from keyrange.registry.client import RegistryClient, UnknownToRegistry
from keyrange.registry.subjects import reader_schema

AVRO = '{"type":"record","name":"Order","fields":[{"name":"id","type":"long"}]}'
CITY = '{"type":"record","name":"City","namespace":"geo","fields":[{"name":"n","type":"string"}]}'
PLACE = (
    '{"type":"record","name":"Place","namespace":"geo",'
    '"fields":[{"name":"city","type":"geo.City"}]}'
)
VISIT = (
    '{"type":"record","name":"Visit","fields":[{"name":"from","type":"geo.Place"},'
    '{"name":"in","type":"geo.City"}]}'
)
PROTO = 'syntax = "proto3";\npackage shop;\nmessage Order { int64 id = 1; }\n'
JSON = '{"type":"object","properties":{"id":{"type":"integer"}}}'


def register(url: str, subject: str, text: str, kind: str = "AVRO", *references: Any) -> int:
    """The id of a schema, as a serializer registers it."""
    document = {"schema": text, "schemaType": kind, "references": list(references)}
    request = urllib.request.Request(
        f"{url}/subjects/{quote(subject, safe='')}/versions",
        json.dumps(document).encode(),
        {"Content-Type": "application/vnd.schemaregistry.v1+json"},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        id: int = json.load(answer)["id"]
        return id


def refers(name: str, subject: str, version: int = 1) -> dict[str, Any]:
    return {"name": name, "subject": subject, "version": version}


class RegistryContract:
    """`url` is a fixture; each test has subjects of its own."""

    @pytest.fixture
    def client(self, url: str) -> RegistryClient:
        return RegistryClient(RegistrySettings(urls=(url,)))

    @pytest.fixture
    def subject(self) -> str:
        return f"{uuid.uuid4().hex}-value"

    @pytest.mark.parametrize(
        ("kind", "text"), [("AVRO", AVRO), ("PROTOBUF", PROTO), ("JSON", JSON)]
    )
    def test_a_schema_by_its_id_and_its_subject(
        self, url: str, client: RegistryClient, subject: str, kind: str, text: str
    ) -> None:
        id = register(url, subject, text, kind)
        by_id, latest = client.schema(id), client.latest(subject)
        assert (by_id.id, by_id.type, latest.id, latest.type) == (id, kind, id, kind)
        assert by_id.schema == latest.schema
        assert "".join(by_id.schema.text.split()) == "".join(text.split())

    def test_the_latest_version_is_the_last_one(
        self, url: str, client: RegistryClient, subject: str
    ) -> None:
        first = register(url, subject, AVRO)
        wider = json.loads(AVRO)
        wider["fields"].append({"name": "note", "type": ["null", "string"], "default": None})
        second = register(url, subject, json.dumps(wider))
        assert first != second
        assert client.latest(subject).id == second
        assert json.loads(client.latest(subject).schema.text) == wider
        assert json.loads(client.version(subject, 1).text) == json.loads(AVRO)
        assert json.loads(client.schema(first).schema.text) == json.loads(AVRO)

    @pytest.mark.parametrize(
        ("kind", "text"), [("AVRO", AVRO), ("PROTOBUF", PROTO), ("JSON", JSON)]
    )
    def test_a_schema_that_is_sent_is_known_by_its_id(
        self, client: RegistryClient, subject: str, kind: str, text: str
    ) -> None:
        with pytest.raises(UnknownToRegistry):
            client.id_in(subject, kind, text)
        id = client.register(subject, kind, text)
        assert client.latest(subject).id == id
        assert client.id_in(subject, kind, text) == client.register(subject, kind, text) == id

    def test_references_stand_behind_what_they_use(
        self, url: str, client: RegistryClient, subject: str
    ) -> None:
        register(url, f"{subject}.city", CITY)
        city = refers("geo.City", f"{subject}.city")
        register(url, f"{subject}.place", PLACE, "AVRO", city)
        id = register(url, subject, VISIT, "AVRO", refers("geo.Place", f"{subject}.place"), city)
        found = client.schema(id).schema
        assert [name for name, _ in found.references] == ["geo.City", "geo.Place"]
        assert [json.loads(text) for _, text in found.references] == [
            json.loads(CITY),
            json.loads(PLACE),
        ]
        assert client.latest(subject).schema == found

    def test_what_is_not_there(self, url: str, client: RegistryClient, subject: str) -> None:
        register(url, subject, AVRO)
        with pytest.raises(UnknownToRegistry):
            client.schema(2**31 - 1)
        with pytest.raises(UnknownToRegistry):
            client.latest(f"{subject}-of-nobody")
        with pytest.raises(UnknownToRegistry):
            client.version(subject, 99)
        with pytest.raises(KeyrangeError, match="REGISTRY_SUBJECT_UNKNOWN") as caught:
            reader_schema(RegistrySettings(urls=(url,)), f"{subject}-of-nobody")
        assert f"subject={subject}-of-nobody" in str(caught.value)

    @pytest.mark.parametrize("name", ["a/b", "a b?c=1&d", "größe-value", "a%2Fb", ".a:b"])
    def test_subjects_of_any_name(self, url: str, client: RegistryClient, name: str) -> None:
        id = register(url, f"{uuid.uuid4().hex}{name}", AVRO)
        name = f"{uuid.uuid4().hex}{name}"
        assert register(url, name, AVRO) == id
        assert client.latest(name).id == id

    def test_a_subject_of_another_type_than_the_format(self, url: str, subject: str) -> None:
        register(url, subject, JSON, "JSON")
        settings = RegistrySettings(urls=(url,))
        assert reader_schema(settings, subject, "json").type == "JSON"
        with pytest.raises(KeyrangeError, match="REGISTRY_SCHEMA_UNFIT") as caught:
            reader_schema(settings, subject, "avro")
        assert "of type JSON, and avro reads AVRO" in str(caught.value)

    def test_an_address_that_is_no_registry(self, url: str) -> None:
        with pytest.raises(KeyrangeError, match="REGISTRY_ANSWER_UNFIT"):
            RegistryClient(RegistrySettings(urls=(f"{url}/nowhere",))).schema(1)
