"""The client of a registry: what it asks, what it makes of each answer, and where it asks again."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest

from keyrange.errors import KeyrangeError
from keyrange.options import parse_options
from keyrange.options.registry import RegistrySettings
from keyrange.options.secrets import Secret
from keyrange.registry.client import RegistryClient, UnknownToRegistry
from keyrange.registry.subjects import reader_schema
from project.unseen import MARK, check_log, log_everything, whole_text
from registries.contract import AVRO, RegistryContract, refers
from registries.server import Refused, Registry, basic, schema_registry


class TestContract(RegistryContract):
    @pytest.fixture(params=["", "/apis/ccompat/v7"])
    def url(self, request: pytest.FixtureRequest) -> Iterator[str]:
        with schema_registry(base=request.param) as registry:
            yield registry.url


@pytest.fixture
def registry() -> Iterator[Registry]:
    with schema_registry() as made:
        made.register("orders-value", AVRO)
        yield made


def settings(*urls: str, **more: Any) -> RegistrySettings:
    given = {"request_timeout_ms": 5_000, "tries": 3} | more
    return RegistrySettings(urls=urls, **given)


def client(*urls: str, **more: Any) -> tuple[RegistryClient, list[float]]:
    """With the pauses that it would have made."""
    pauses: list[float] = []
    return RegistryClient(settings(*urls, **more), pauses.append), pauses


def closed() -> str:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"http://127.0.0.1:{listener.getsockname()[1]}"


def failed(asked: RegistryClient) -> KeyrangeError:
    return failed_of(asked, 1)


def failed_of(asked: RegistryClient, id: int) -> KeyrangeError:
    with pytest.raises(KeyrangeError) as caught:
        asked.schema(id)
    return caught.value


def test_one_request_for_a_schema(registry: Registry) -> None:
    asked, pauses = client(registry.url)
    assert asked.schema(1).schema.text == AVRO
    assert registry.requests == ["/schemas/ids/1"]
    assert pauses == []


def test_a_schema_by_its_guid(registry: Registry) -> None:
    asked, _ = client(registry.url)
    guid = registry.guid(1)
    found = asked.schema(guid)
    assert (found.id, found.schema.text) == (guid, AVRO)
    with pytest.raises(UnknownToRegistry):
        asked.schema("00000000-0000-0000-0000-000000000000")


@pytest.mark.parametrize("fault", [500, 502, 503, 429, 408, "reset", "half"])
def test_what_passes_is_asked_again(registry: Registry, fault: int | str) -> None:
    registry.faults = [fault, fault]
    asked, pauses = client(registry.url)
    assert asked.schema(1).schema.text == AVRO
    assert len(registry.requests) == 3
    assert pauses == ([3.0, 3.0] if fault == 429 else [0.25, 0.5])


@pytest.mark.parametrize("fault", [500, 429, "reset", "half"])
def test_what_does_not_pass_in_time_is_a_registry_that_is_away(
    registry: Registry, fault: int | str
) -> None:
    registry.faults = [fault] * 3
    failure = failed(client(registry.url)[0])
    assert failure.condition.name == "REGISTRY_UNREACHABLE"
    assert failure.retriable
    assert registry.url in str(failure)
    assert len(registry.requests) == 3


@pytest.mark.parametrize("fault", ["hang", "drip"])
def test_an_answer_has_one_deadline_for_all_of_it(registry: Registry, fault: str) -> None:
    registry.faults = [fault]
    began = time.monotonic()
    failure = failed(client(registry.url, request_timeout_ms=300, tries=1)[0])
    assert time.monotonic() - began < 0.9
    assert failure.condition.name == "REGISTRY_UNREACHABLE"
    assert "did not answer in time" in str(failure)


@pytest.mark.parametrize("fault", ["html", "list", "huge", 301, 404, 400, 418])
def test_what_is_no_registrys_answer_is_told_at_once(registry: Registry, fault: int | str) -> None:
    registry.faults = [fault]
    failure = failed(client(registry.url)[0])
    assert failure.condition.name == "REGISTRY_ANSWER_UNFIT"
    assert not failure.retriable
    assert len(registry.requests) == 1


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"schema": 1},
        {"schema": "a", "schemaType": 7},
        {"schema": "a", "id": "1"},
        {"schema": "a", "references": {"name": "x"}},
        {"schema": "a", "references": [{"name": "x"}]},
        {"schema": "a", "references": [{"name": "x", "subject": "s", "version": "1"}]},
        {"schema": "\ud800"},
        {"schema": "a", "references": [{"name": "\ud800", "subject": "s", "version": 1}]},
        {"schema": "a", "references": [{"name": "x", "subject": "\ud800", "version": 1}]},
    ],
)
def test_json_that_is_no_schema(registry: Registry, document: dict[str, Any]) -> None:
    registry.schemas[1] = document
    registry.answer = lambda *_: document  # type: ignore[method-assign]
    assert failed(client(registry.url)[0]).condition.name == "REGISTRY_ANSWER_UNFIT"


@pytest.mark.parametrize("away", ["closed", 500, "html", "half"])
def test_the_next_address_is_asked(registry: Registry, away: int | str) -> None:
    with schema_registry() as other:
        other.faults = [away] * 9
        first = closed() if away == "closed" else other.url
        asked, pauses = client(first, registry.url)
        assert asked.schema(1).schema.text == AVRO
        asked.schema(1)
        assert pauses == []
        # The one that answered is asked first from then on.
        assert len(other.requests) == (0 if away == "closed" else 1)


def test_an_id_is_unknown_if_no_address_knows_it(registry: Registry) -> None:
    with schema_registry() as late:
        asked, _ = client(late.url, registry.url)
        assert asked.schema(1).schema.text == AVRO
        with pytest.raises(UnknownToRegistry):
            asked.schema(2)
        assert late.requests[-1] == registry.requests[-1] == "/schemas/ids/2"
        # The one that is away may know it, until it has been asked as often as may be.
        late.faults = [500]
        late.register("orders-value", AVRO)
        late.register("orders-value", '"string"')
        assert asked.schema(2).schema.text == '"string"'
        asked, pauses = client(closed(), registry.url)
        with pytest.raises(UnknownToRegistry):
            asked.schema(2)
        assert len(pauses) == 2


def test_a_reference_is_fetched_once_and_also_where_its_subject_is_gone(
    registry: Registry,
) -> None:
    registry.register("base", '"string"')
    base = refers("base", "base")
    for name in ("left", "right"):
        registry.register(name, f'"{name}"', "AVRO", [base])
    both = [refers("left", "left"), refers("right", "right"), base]
    id = registry.register("top", '"top"', "AVRO", both)
    registry.deleted.add(("base", 1))
    found = client(registry.url)[0].schema(id)
    assert found.schema.references == (
        ("base", '"string"'),
        ("left", '"left"'),
        ("right", '"right"'),
    )
    assert len(registry.requests) == 4


def test_references_that_are_not_there_or_never_end(registry: Registry) -> None:
    id = registry.register("top", '"top"', "AVRO", [refers("gone", "gone")])
    with pytest.raises(UnknownToRegistry, match=f"which /schemas/ids/{id} refers to"):
        client(registry.url)[0].schema(id)
    with pytest.raises(KeyrangeError, match=r"REGISTRY_SCHEMA_UNFIT.*which .*refers to"):
        reader_schema(settings(registry.url), "top")
    id = registry.register("circle", '"circle"', "AVRO", [refers("circle", "circle")])
    assert client(registry.url)[0].schema(id).schema.references == (("circle", '"circle"'),)


def test_what_a_schema_refers_to_has_a_size(registry: Registry) -> None:
    """In one chain, each link with a megabyte of text or of references that are all the same."""
    text, padding = '"string"'.ljust(1 << 20), refers("x" * 1_000, "link-0")

    def asked(links: int, wide: bool) -> int:
        registry.requests.clear()
        below: list[dict[str, Any]] = []
        for at in range(links):
            name = f"link-{at}"
            referred = [*below, *[padding] * 1_000 * wide]
            registry.register(name, '"string"' if wide else text, "AVRO", referred)
            below = [refers(name, name)]
        return registry.register("top", AVRO, "AVRO", below)

    id = asked(15, wide=False)
    assert len(client(registry.url)[0].schema(id).schema.references) == 15
    for wide in (False, True):
        id = asked(40, wide)
        failure = failed_of(client(registry.url)[0], id)
        assert failure.condition.name == "REGISTRY_ANSWER_UNFIT"
        assert f"schema {id} cannot be used: the schemas that it refers to" in failure.message
        assert "more than 16777216 bytes" in failure.message
        assert len(registry.requests) < 20


@pytest.mark.parametrize("form", ["basic", "bearer"])
def test_logins(form: str, caplog: pytest.LogCaptureFixture) -> None:
    log_everything(caplog)
    secret = Secret(f"literal:{MARK}")
    given = {"token": secret} if form == "bearer" else {"user": secret, "password": secret}
    login = f"Bearer {MARK}" if form == "bearer" else basic(MARK, MARK)
    with schema_registry(login=login) as registry:
        registry.register("orders-value", AVRO)
        assert client(registry.url, **given)[0].schema(1).type == "AVRO"
        for wrong in ({}, {"token": Secret("other")}):
            failure = failed(client(registry.url, **wrong)[0])
            assert failure.condition.name == "REGISTRY_DENIED"
            assert "401: Unauthorized" in str(failure)
        registry.login = "another"
        registry.requests.clear()
        failure = failed(client(registry.url, **given)[0])
        assert len(registry.requests) == 1
        shown = whole_text(failure)
        assert MARK not in shown
        assert basic(MARK, MARK).split()[1] not in shown
        assert MARK not in repr(settings(registry.url, **given))
    check_log(caplog)


@pytest.mark.parametrize("status", [401, 404, 409, 500])
@pytest.mark.parametrize("form", ["basic", "bearer"])
def test_a_registry_that_quotes_the_login(registry: Registry, form: str, status: int) -> None:
    secret = Secret(f"literal:{MARK}")
    given = {"token": secret} if form == "bearer" else {"user": Secret("a"), "password": secret}
    sent = MARK if form == "bearer" else basic("a", MARK).split()[1]

    def quote(*_: Any) -> Any:
        raise Refused(status, status, "x" * 480 + f" {MARK} {sent}")

    registry.answer = quote  # type: ignore[method-assign]
    shown = whole_text(failed(client(registry.url, tries=1, **given)[0]))
    assert f"status {status}: x" in shown
    for cut in (MARK, sent):
        assert cut[:8] not in shown


@pytest.mark.parametrize("fault", [401, 404, 409, 500, 301, "html", "reset", "half", "closed"])
def test_an_address_is_shown_without_its_path(
    fault: int | str, caplog: pytest.LogCaptureFixture
) -> None:
    log_everything(caplog)
    with schema_registry(base=f"/{MARK}/%E2%82%AC-{MARK}/v7") as registry:
        server = "/".join(registry.url.split("/")[:3])
        if isinstance(fault, int):
            quoted = f"nothing at {registry.url}/schemas, nor below €-{MARK} in {MARK}"

            def quote(*_: Any) -> Any:
                raise Refused(fault, fault, quoted)

            registry.answer = quote  # type: ignore[method-assign]
        url = closed() + f"/{MARK}" if fault == "closed" else registry.url
        registry.faults = [fault] * (not isinstance(fault, int) and fault != "closed")
        given = {"schemaRegistry.url": url, "schemaRegistry.tries": "1", "subscribe": "t"}
        options = parse_options({**given, "kafka.bootstrap.servers": "h:1"}, "stream")
        failure = failed(RegistryClient(options.registry))
    assert MARK not in whole_text(failure)
    assert MARK not in repr(options)
    assert (server in str(failure)) == (fault != "closed")
    assert "/***" in str(failure)
    check_log(caplog)


def test_a_token_that_is_none_is_not_sent(registry: Registry) -> None:
    failure = failed(client(registry.url, token=Secret(f"{MARK}\r\nHost: x"))[0])
    assert failure.condition.name == "INVALID_OPTIONS"
    assert MARK not in whole_text(failure)
    assert registry.requests == []


def test_what_a_registry_says_is_one_printable_line(registry: Registry) -> None:
    registry.faults = [500]
    assert "status 500: said bythe test" in str(failed(client(registry.url, tries=1)[0]))
