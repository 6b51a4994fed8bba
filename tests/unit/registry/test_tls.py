"""Registries behind TLS: whom the client trusts, and what it shows of itself."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from brokers.certificates import Identity, issue
from keyrange.errors import KeyrangeError
from keyrange.options import parse_options
from keyrange.options.registry import RegistrySettings
from keyrange.registry.client import RegistryClient
from registries.contract import AVRO
from registries.server import Registry, schema_registry


@dataclass(frozen=True)
class Files:
    directory: Path
    root: Identity

    def write(self, name: str, *parts: str) -> str:
        path = self.directory / name
        path.write_text("".join(parts))
        return str(path)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    directory = tmp_path_factory.mktemp("certificates")
    root = issue("root", authority=True)
    made = Files(directory, root)
    for name, of in (("server", issue("server", root)), ("client", issue("client", root))):
        made.write(f"{name}.pem", of.pem, of.key_pem())
    other = issue("elsewhere", root, names=())
    made.write("elsewhere.pem", other.pem, other.key_pem())
    made.write("root.pem", root.pem)
    return made


@pytest.fixture(params=["server"])
def registry(request: pytest.FixtureRequest, files: Files) -> Iterator[Registry]:
    name, _, mutual = request.param.partition(" ")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.directory / f"{name}.pem")
    if mutual:
        context.verify_mode = ssl.CERT_REQUIRED
        # With TLS 1.3 the client is done before the server refuses it, and may meet a connection
        # that is closed before it reads why.
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        context.load_verify_locations(files.directory / "root.pem")
    with schema_registry(context) as made:
        made.register("orders-value", AVRO)
        yield made


def settings(url: str, **ssl_options: str) -> RegistrySettings:
    given = {f"schemaRegistry.ssl.{name}": value for name, value in ssl_options.items()}
    source = {"kafka.bootstrap.servers": "a:1", "subscribe": "orders", "schemaRegistry.url": url}
    return parse_options({**source, **given}).registry


def trusting(files: Files) -> dict[str, str]:
    return {"truststore.location": str(files.directory / "root.pem")}


def failure(chosen: RegistrySettings) -> KeyrangeError:
    with pytest.raises(KeyrangeError) as caught:
        RegistryClient(chosen).schema(1)
    return caught.value


def test_an_authority_that_is_trusted(registry: Registry, files: Files) -> None:
    chosen = settings(registry.url, **trusting(files))
    assert RegistryClient(chosen).schema(1).schema.text == AVRO
    inline = settings(registry.url, **{"truststore.certificates": files.root.pem})
    assert RegistryClient(inline).schema(1).schema.text == AVRO


def test_an_authority_that_is_not(registry: Registry) -> None:
    failed = failure(settings(registry.url))
    assert failed.condition.name == "REGISTRY_TLS_FAILED"
    assert "unable to get local issuer certificate" in str(failed)
    assert registry.requests == []


@pytest.mark.parametrize("registry", ["elsewhere"], indirect=True)
def test_a_certificate_of_another_host(registry: Registry, files: Files) -> None:
    failed = failure(settings(registry.url, **trusting(files)))
    assert failed.condition.name == "REGISTRY_TLS_FAILED"
    assert "localhost" in str(failed)
    unchecked = {"endpoint.identification.algorithm": "", **trusting(files)}
    assert RegistryClient(settings(registry.url, **unchecked)).schema(1).id == 1


@pytest.mark.parametrize("registry", ["server mutual"], indirect=True)
def test_a_registry_that_wants_a_certificate(registry: Registry, files: Files) -> None:
    failed = failure(settings(registry.url, **trusting(files)))
    assert failed.condition.name == "REGISTRY_TLS_FAILED"
    client = {"keystore.location": str(files.directory / "client.pem"), **trusting(files)}
    assert RegistryClient(settings(registry.url, **client)).schema(1).id == 1


def test_a_registry_without_tls(files: Files) -> None:
    with schema_registry() as plain:
        url = plain.url.replace("http:", "https:")
        failed = failure(settings(url, **trusting(files)))
    assert failed.condition.name == "REGISTRY_TLS_FAILED"


def test_a_store_that_is_not_there(registry: Registry) -> None:
    failed = failure(settings(registry.url, **{"truststore.location": "/nowhere/trust.pem"}))
    assert failed.condition.name == "STORE_NOT_READ"
    assert "schemaRegistry.ssl.truststore.location /nowhere/trust.pem" in str(failed)
