"""What is shown of a broker that refuses a login."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from brokers.logins import OAUTH, PLAIN, parsed
from keyrange.errors import KeyrangeError
from keyrange.kafka.security import sasl_handshake, tokens
from keyrange.options.secrets import UnseenText
from project.unseen import MARK, whole_text


class Echo:
    """A broker that refuses each login, and says something of what it was sent."""

    host, address = "h", "h:1"

    def __init__(self, say: Callable[[str], str], mechanisms: Sequence[str] = ()) -> None:
        self._say, self._offered = say, mechanisms

    def extend_connecting(self, seconds: float) -> None: ...

    def call(self, request: Any) -> Any:
        if not hasattr(request, "auth_bytes"):
            return SimpleNamespace(error_code=33 if self._offered else 0, mechanisms=self._offered)
        said = self._say(request.auth_bytes.decode())
        return SimpleNamespace(error_code=58, error_message=said, auth_bytes=b"")


def refusal(broker: Echo, mechanism: str, jaas: str) -> str:
    options = {
        "bootstrap.servers": "h:1",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": jaas,
    }
    with pytest.raises(KeyrangeError, match="SASL_AUTHENTICATION_FAILED") as caught:
        sasl_handshake.authenticate(broker, parsed(options))
    assert MARK not in whole_text(caught.value)
    return caught.value.message


@pytest.mark.parametrize(
    ("mechanism", "jaas"),
    [
        ("PLAIN", f'{PLAIN}username="reader" password="{MARK} and more";'),
        ("OAUTHBEARER", f'{OAUTH}unsecuredLoginStringClaim_sub="u" extension_key="{MARK}";'),
    ],
)
def test_a_broker_that_quotes_what_it_was_sent_gives_nothing_away(
    mechanism: str, jaas: str
) -> None:
    """Whole, in the middle, at the end that is cut off, and one field alone."""
    for say in (
        str,
        lambda sent: f"refused: {sent}!",
        lambda sent: "." * 190 + sent,
        lambda sent: re.split(r"[\0\1]", sent)[2],
        lambda sent: re.split(r"auth=Bearer |[\0\1]", sent)[2],
    ):
        said = refusal(Echo(say), mechanism, jaas)
        assert "***" in said
        assert "eyJ" not in said


def test_what_a_broker_says_is_short_and_in_one_line() -> None:
    jaas = PLAIN + 'username="reader" password="p";'
    said = refusal(Echo(lambda _: "1\n2\x1b[2J" + "x" * 100_000), "PLAIN", jaas)
    assert said.startswith("authentication failed: 1 2\\u001b[2Jxxx")
    assert said.endswith("x (broker=h:1, mechanism=PLAIN, user=reader)")
    assert len(said) < 300
    assert "SASL_AUTHENTICATION_FAILED (broker=h:1" in refusal(Echo(lambda _: ""), "PLAIN", jaas)
    offered = refusal(Echo(str, ["X" * 1000] * 100), "PLAIN", jaas)
    assert "the listener offers XXX" in offered
    assert len(offered) < 400


def test_a_token_that_was_kept_is_asked_for_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker's clock may be ahead, or this host has slept."""
    asked: list[str] = []

    def ask(*_: Any) -> tuple[UnseenText, float]:
        asked.append(f"t{len(asked)}")
        return UnseenText(asked[-1]), 3_600.0

    monkeypatch.setattr(tokens, "_ask", ask)
    client = parsed(
        {
            "bootstrap.servers": "h:1",
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.endpoint.url": "https://h/token",
            "sasl.jaas.config": f'{OAUTH}clientId="me" clientSecret="{MARK}";',
        }
    )
    tokens.token(client, {"clientId": "me", "clientSecret": MARK})
    for condition in ("BROKER_UNREACHABLE", "SASL_AUTHENTICATION_FAILED"):
        with pytest.raises(KeyrangeError, match=condition) as caught:
            sasl_handshake.authenticate(Echo(str), client)
        assert MARK not in whole_text(caught.value)
        assert caught.value.retriable == (condition == "BROKER_UNREACHABLE")
    assert asked == ["t0", "t1"]
