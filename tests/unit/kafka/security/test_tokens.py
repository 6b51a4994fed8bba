"""Tokens: how an endpoint is asked, how long an answer is kept, and what errors do not say."""

from __future__ import annotations

import base64
import json
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from brokers.certificates import issue
from brokers.token_endpoint import Endpoint, token_endpoint
from faults.tcp_proxy import TcpProxy
from keyrange.errors import DeniedError, InvalidError, KeyrangeError, UnavailableError
from keyrange.kafka.security import tokens
from keyrange.options.kafka_properties import ClientSettings

SECRET = "hunter2+/%"
LOGIN = {"clientId": "me", "clientSecret": SECRET}


@pytest.fixture(autouse=True)
def _nothing_kept() -> Iterator[None]:
    tokens.forget()
    yield
    tokens.forget()


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with token_endpoint() as started:
        started.grant(access_token="a.b.c", expires_in=3600)
        yield started


def settings(endpoint: Endpoint, **given: object) -> ClientSettings:
    return ClientSettings(oauth_token_endpoint_url=endpoint.url, **given)  # type: ignore[arg-type]


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def test_the_grant(endpoint: Endpoint) -> None:
    assert tokens.token(settings(endpoint), LOGIN | {"scope": "read write"}) == "a.b.c"
    [(path, headers, body)] = endpoint.requests
    assert path == "/token"
    assert body == "grant_type=client_credentials&scope=read+write"
    assert headers["authorization"] == basic("me", SECRET)
    assert headers["content-type"] == "application/x-www-form-urlencoded"


def test_without_scope_and_with_an_encoded_header(endpoint: Endpoint) -> None:
    assert tokens.token(settings(endpoint, oauth_header_urlencode=True), LOGIN) == "a.b.c"
    [(_, headers, body)] = endpoint.requests
    assert body == "grant_type=client_credentials"
    assert headers["authorization"] == basic("me", "hunter2%2B%2F%25")


def test_a_token_is_kept_for_most_of_its_life(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    client = settings(endpoint)
    endpoint.grant(access_token="one", expires_in="100")
    assert tokens.token(client, LOGIN) == "one"
    endpoint.grant(access_token="two", expires_in=100)
    now[0] += 79
    assert tokens.token(client, LOGIN) == "one"
    now[0] += 2
    assert tokens.token(client, LOGIN) == "two"
    assert tokens.token(settings(endpoint, login_refresh_window_factor=0.5), LOGIN) == "two"
    assert len(endpoint.requests) == 2


def test_a_token_belongs_to_who_asked(endpoint: Endpoint) -> None:
    for login in (LOGIN, LOGIN | {"clientId": "you"}, LOGIN | {"clientSecret": "x"},
                  LOGIN | {"scope": "s"}):  # fmt: skip
        tokens.token(settings(endpoint), login)
        tokens.token(settings(endpoint), login)
    assert len(endpoint.requests) == 4


def test_a_token_without_a_lifetime_is_not_kept(endpoint: Endpoint) -> None:
    endpoint.grant(access_token="t")
    assert [tokens.token(settings(endpoint), LOGIN) for _ in range(2)] == ["t", "t"]
    assert len(endpoint.requests) == 2


def test_a_token_that_a_broker_refused_is_forgotten(endpoint: Endpoint) -> None:
    tokens.token(settings(endpoint), LOGIN)
    tokens.forget()
    tokens.token(settings(endpoint), LOGIN)
    assert len(endpoint.requests) == 2


def failure(client: ClientSettings, kind: type[KeyrangeError]) -> str:
    with pytest.raises(kind) as caught:
        tokens.token(client, LOGIN)
    assert "hunter2" not in str(caught.value)
    assert client.oauth_token_endpoint_url in str(caught.value)
    return str(caught.value)


def test_a_refusal_says_what_the_endpoint_said(endpoint: Endpoint) -> None:
    said = {"error": "invalid_client", "error_description": f"no\n{SECRET} here" + "x" * 500}
    endpoint.answer = lambda: (401, json.dumps(said).encode())
    text = failure(settings(endpoint), DeniedError)
    assert text.startswith("[TOKEN_REFUSED]")
    assert "401: invalid_client, no*** here" in text
    assert len(text) < 600
    pair = basic("me", SECRET).split()[1]
    for quoted in (pair, "x" * 180 + SECRET):
        said = {"error": "e", "error_description": quoted}
        text = failure(settings(endpoint), DeniedError)
        assert pair[:8] not in text
        assert SECRET[:4] not in text


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"[]",
        b"7",
        b"{}",
        b"\xff",
        b'{"token": "t"}',
        b'{"access_token": "a\\u0001b"}',
        b'{"access_token": null}',
        b'{"access_token": ["hunter2 x"]}',
        b'{"access_token": "t", "expires_in": "soon"}',
        b"[" * 100_000,
    ],
)
def test_an_answer_that_is_no_token(endpoint: Endpoint, body: bytes) -> None:
    """Also one that would end the field of the SASL message and begin another."""
    endpoint.answer = lambda: (200, body)
    assert failure(settings(endpoint), DeniedError).startswith("[TOKEN_REFUSED]")


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_the_secret_is_not_carried_to_another_place(endpoint: Endpoint, status: int) -> None:
    endpoint.answer = lambda: (status, b"")
    assert str(status) in failure(settings(endpoint), DeniedError)
    assert [path for path, _, _ in endpoint.requests] == ["/token"]


@pytest.mark.parametrize("status", [408, 429, 500, 503])
@pytest.mark.parametrize("body", [b"busy", b"[" * 100_000])
def test_what_passes_by_itself_may_be_tried_again(
    endpoint: Endpoint, status: int, body: bytes
) -> None:
    endpoint.answer = lambda: (status, body)
    text = failure(settings(endpoint), UnavailableError)
    assert text.startswith("[TOKEN_ENDPOINT_UNREACHABLE]")


def test_an_endpoint_that_is_not_there_or_silent() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        silent = Endpoint(f"http://127.0.0.1:{listener.getsockname()[1]}/token")
        text = failure(settings(silent, login_timeout_ms=200), UnavailableError)
        assert "timed out" in text
    assert "refused" in failure(settings(silent), UnavailableError)


@pytest.mark.parametrize("step_bytes", [1, 100])
def test_an_endpoint_that_sends_a_byte_now_and_then(endpoint: Endpoint, step_bytes: int) -> None:
    """In the headers, or in the token."""
    endpoint.grant(access_token="a" * 5_000)
    address = urlsplit(endpoint.url)
    with TcpProxy((address.hostname or "", address.port or 0)) as proxy:
        proxy.to_client.set("trickle", step_bytes=step_bytes, every_ms=50)
        trickling = Endpoint(f"http://127.0.0.1:{proxy.port}/token")
        began = time.monotonic()
        text = failure(settings(trickling, login_timeout_ms=400), UnavailableError)
        # All of it would take some 260 s a byte at a time.
        assert time.monotonic() - began < 60
        assert "timed out" in text
        proxy.mode = "pass"
        assert tokens.token(settings(trickling), LOGIN) == "a" * 5_000


def test_a_proxy_does_not_see_what_goes_to_loopback(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    with token_endpoint() as proxy:
        monkeypatch.setenv("http_proxy", proxy.url.removesuffix("/token"))
        monkeypatch.delenv("no_proxy", raising=False)
        assert tokens.token(settings(endpoint), LOGIN) == "a.b.c"
        assert proxy.requests == []


def test_https_is_verified(tmp_path: Path) -> None:
    """With the trust store of the JAAS entry, as Java's module has it, or the system's."""
    identity = issue("endpoint")
    (tmp_path / "server.pem").write_text(identity.pem + identity.key_pem())
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(tmp_path / "server.pem")
    with token_endpoint(server) as endpoint:
        endpoint.grant(access_token="t", expires_in=60)
        trusting = LOGIN | {"ssl.truststore.location": str(tmp_path / "server.pem")}
        assert tokens.token(settings(endpoint), trusting) == "t"
        inline = LOGIN | {"ssl.truststore.certificates": identity.pem, "scope": "s"}
        assert tokens.token(settings(endpoint), inline) == "t"
        tokens.forget()
        text = failure(settings(endpoint), DeniedError)
        assert "certificate" in text
        assert len(endpoint.requests) == 2


def test_a_token_of_a_file_is_read_each_time(tmp_path: Path) -> None:
    file = Endpoint(f"file://{tmp_path}/token")
    for token in ("one", "two"):
        (tmp_path / "token").write_text(f"{token}\n")
        assert tokens.token(settings(file), {}) == token
    (tmp_path / "token").write_text("no token\n")
    assert failure(settings(file), DeniedError).startswith("[TOKEN_REFUSED]")
    (tmp_path / "token").unlink()
    assert failure(settings(file), InvalidError).startswith("[SECRET_NOT_FOUND]")


def claims(token: str) -> dict[str, object]:
    head, body, signature = token.split(".")
    assert signature == ""
    assert "=" not in token
    assert json.loads(base64.urlsafe_b64decode(head + "==")) == {"alg": "none"}
    found: dict[str, object] = json.loads(base64.urlsafe_b64decode(body + "=="))
    return found


def test_unsecured_tokens_are_javas() -> None:
    login = {
        "unsecuredLoginStringClaim_sub": "thePrincipalName",
        "unsecuredLoginListClaim_scope": "|scopeValue1|scopeValue2",
        "unsecuredLoginNumberClaim_age": "42",
        "unsecuredLoginLifetimeSeconds": "60",
        "unsecuredLoginExtension_traceId": "1",
    }
    assert claims(tokens.unsecured_token(login, 1000)) == {
        "sub": "thePrincipalName",
        "scope": ["scopeValue1", "scopeValue2"],
        "age": 42,
        "iat": 1000,
        "exp": 1060,
    }
    other = {"unsecuredLoginPrincipalClaimName": "who", "unsecuredLoginStringClaim_who": "me"}
    assert claims(tokens.unsecured_token(other, 0)) == {"who": "me", "iat": 0, "exp": 3600}
    assert tokens.token(ClientSettings(), login).count(".") == 2


def test_a_token_is_not_of_the_brokers_future() -> None:
    """A broker compares milliseconds, cut off, of the same clock."""
    login = {"unsecuredLoginStringClaim_sub": "reader"}
    assert claims(tokens.unsecured_token(login, 1000.0009))["iat"] == 1000


@pytest.mark.parametrize(
    ("login", "named"),
    [
        ({}, "unsecuredLoginStringClaim_sub"),
        ({"unsecuredLoginPrincipalClaimName": "who"}, "unsecuredLoginStringClaim_who"),
        ({"unsecuredLoginNumberClaim_sub": "hunter2"}, "unsecuredLoginNumberClaim_sub"),
        ({"unsecuredLoginLifetimeSeconds": "hunter2"}, "unsecuredLoginLifetimeSeconds"),
    ],
)
def test_a_wrong_claim_is_named(login: dict[str, str], named: str) -> None:
    with pytest.raises(InvalidError, match=named) as caught:
        tokens.unsecured_token(login, 0)
    assert "hunter2" not in str(caught.value)


def test_extensions() -> None:
    found = tokens.extensions(
        LOGIN | {"extension_logicalCluster": "lkc-1", "unsecuredLoginExtension_traceId": "1"}
    )
    assert found == {"logicalCluster": "lkc-1", "traceId": "1"}
    for name, value in (("auth", "x"), ("a1", "x"), ("a", "x\x01auth=Bearer y")):
        with pytest.raises(InvalidError, match="extension"):
            tokens.extensions({f"extension_{name}": value})
