"""Tests on platforms that the ordinary run has not: ci/soak.sh platforms runs them."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from brokers.certificates import Identity, issue
from brokers.logins import OAUTH, create_numbers
from brokers.real_broker import Topics
from brokers.token_endpoint import token_endpoint
from platforms.every_login import EveryLogin, every_login
from platforms.kdc import TICKET_S, Kdc
from platforms.s3_server import S3Server
from platforms.signed_tokens import CLIENT_SECRET, Provider, Signer
from project.forms import FORM

# They import what only ci/platforms.sh installs.
collect_ignore_glob = [] if FORM == "platforms" else ["test_*.py"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker("platform")


@pytest.fixture(scope="module")
def s3_server() -> Iterator[S3Server]:
    """An S3 server of a module's own, which this process and those it starts find."""
    with S3Server() as server, pytest.MonkeyPatch.context() as patch:
        for name, value in server.environment.items():
            patch.setenv(name, value)
        yield server


@pytest.fixture(scope="module")
def kdc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kdc]:
    """A realm that this process, and all that it starts, belongs to."""
    with Kdc(tmp_path_factory.mktemp("kdc")) as made, pytest.MonkeyPatch.context() as patch:
        for name, value in made.environment.items():
            patch.setenv(name, value)
        yield made


@pytest.fixture(scope="module")
def reader(kdc: Kdc) -> Path:
    """The key tab of a principal whose tickets are short."""
    return kdc.add("reader", f"{TICKET_S:.0f}s")


@pytest.fixture(scope="module")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Provider]:
    home = tmp_path_factory.mktemp("provider")
    root = issue("provider", authority=True)
    identity = issue("endpoint", root)
    (home / "root.pem").write_text(root.pem)
    (home / "server.pem").write_text(identity.pem + identity.key_pem())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(home / "server.pem")
    with token_endpoint(context) as endpoint:
        jaas = (
            f'{OAUTH}clientId="reader" clientSecret="{CLIENT_SECRET}" '
            f'ssl.truststore.location="{home}/root.pem";'
        )
        yield Provider(Signer(), endpoint, jaas, home / "root.pem")


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory) -> tuple[Identity, Path]:
    """The authority of the clients' certificates, and the file that the broker has of it."""
    root = issue("clients", authority=True)
    path = tmp_path_factory.mktemp("clients") / "root.pem"
    path.write_text(root.pem)
    return root, path


@pytest.fixture(scope="module")
def topic(topics: Topics) -> str:
    """A topic of numbers, of the module's own broker where it has one."""
    return create_numbers(topics, "numbers")


@pytest.fixture(scope="module")
def every(
    kdc: Kdc,
    reader: Path,
    provider: Provider,
    clients: tuple[Identity, Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[EveryLogin]:
    """A broker that people log in to in every way."""
    home = tmp_path_factory.mktemp("every")
    with every_login(home, kdc, reader, provider, clients) as made:
        yield made


@pytest.fixture
def s3(s3_server: S3Server) -> Iterator[S3Server]:
    """The same without faults and calls of another test."""
    s3_server.set_faults()
    s3_server.calls()
    yield s3_server
    s3_server.set_faults()
